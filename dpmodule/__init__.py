"""dpmodule: one symbol graph, one set of parameters, many executors.

MXNet's symbolic Module API on PyTorch: ``import dpmodule as mx``.
"""

from . import (
    attribute,
    base,
    callback,
    checkpoint,
    context,
    contrib,
    executor,
    executor_manager,
    initializer,
    io,
    kvstore,
    log,
    lr_scheduler,
    metric,
    mode,
    model,
    module,
    monitor,
    name,
    ndarray,
    optimizer,
    random,
    registry,
    rnn,
    symbol,
    util,
)
from . import initializer as init
from . import kvstore as kv
from . import module as mod
from . import monitor as mon
from . import ndarray as nd
from . import optimizer as opt
from . import symbol as sym
from .attribute import AttrScope
from .base import MXNetError
from .context import Context, cpu, cpu_pinned, current_context, gpu, gpu_memory_info, num_gpus
from .monitor import Monitor
from .ndarray import NDArray, waitall
from .symbol import Symbol

__version__ = "0.1.0"

__all__ = [
    "AttrScope",
    "Context",
    "MXNetError",
    "Monitor",
    "NDArray",
    "Symbol",
    "attribute",
    "base",
    "callback",
    "checkpoint",
    "context",
    "contrib",
    "cpu",
    "cpu_pinned",
    "current_context",
    "executor",
    "executor_manager",
    "gpu",
    "gpu_memory_info",
    "init",
    "initializer",
    "io",
    "kv",
    "kvstore",
    "log",
    "lr_scheduler",
    "metric",
    "mod",
    "mode",
    "model",
    "module",
    "mon",
    "monitor",
    "name",
    "nd",
    "ndarray",
    "num_gpus",
    "opt",
    "optimizer",
    "random",
    "registry",
    "rnn",
    "sym",
    "symbol",
    "util",
    "waitall",
]
