"""Callbacks that `fit` calls after each batch, each epoch or each evaluation.

Batch callbacks take a `BatchEndParam`; epoch callbacks take ``(epoch, symbol, arg_params, aux_params)``; a `Callback`
is called at all these points. Lines are written to Python's root logger at level INFO, as MXNet does.
"""

import typing

from .._core import lazy
from .base import BatchEndParam as BatchEndParam
from .base import Callback as Callback
from .mxnet import LogValidationMetricsCallback as LogValidationMetricsCallback
from .mxnet import ProgressBar as ProgressBar
from .mxnet import Speedometer as Speedometer
from .mxnet import TqdmBar as TqdmBar
from .mxnet import do_checkpoint as do_checkpoint
from .mxnet import log_train_metric as log_train_metric
from .mxnet import module_checkpoint as module_checkpoint

if typing.TYPE_CHECKING:
    from .checkpoint import Checkpoint as Checkpoint
    from .early_stopping import EarlyStopping as EarlyStopping
    from .ema import EMA as EMA
    from .loggers import CSVLogger as CSVLogger
    from .loggers import LiveCurve as LiveCurve
    from .loggers import TensorBoard as TensorBoard

_LATER = {
    "ema": "EMA",
    "checkpoint": "Checkpoint",
    "early_stopping": "EarlyStopping",
    "loggers": "CSVLogger LiveCurve TensorBoard",
}

__all__ = [*lazy.public_names(vars()), *lazy.modules_of(_LATER)]
__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
