"""Evaluation metrics: running averages over batches."""

import typing

from .._core import lazy
from . import base
from .base import EvalMetric as EvalMetric
from .base import alias as alias
from .base import check_label_shapes as check_label_shapes
from .base import register as register
from .classification import Accuracy as Accuracy
from .classification import CrossEntropy as CrossEntropy
from .classification import NegativeLogLikelihood as NegativeLogLikelihood
from .classification import TopKAccuracy as TopKAccuracy
from .composite import CompositeEvalMetric as CompositeEvalMetric
from .composite import create as create

if typing.TYPE_CHECKING:
    from .confusion import AUC as AUC
    from .confusion import F1 as F1
    from .confusion import MCC as MCC
    from .confusion import PCC as PCC
    from .confusion import LogLoss as LogLoss
    from .custom import Caffe as Caffe
    from .custom import CustomMetric as CustomMetric
    from .custom import Loss as Loss
    from .custom import Torch as Torch
    from .custom import np as np
    from .regression import MAE as MAE
    from .regression import MSE as MSE
    from .regression import RMSE as RMSE
    from .regression import PearsonCorrelation as PearsonCorrelation
    from .regression import Perplexity as Perplexity

_LATER = {
    "confusion": "AUC F1 LogLoss MCC PCC",
    "custom": "Caffe CustomMetric Loss Torch np",
    "regression": "MAE MSE Perplexity RMSE PearsonCorrelation",
}
"""Metrics that are imported on first access, by their module."""

__all__ = [*lazy.public_names(vars()), *lazy.modules_of(_LATER)]

base.registry.add_later(
    __name__,
    {**_LATER, "custom": "Caffe CustomMetric Loss Torch", "regression": f"{_LATER['regression']} pearsonr"},
)
__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
