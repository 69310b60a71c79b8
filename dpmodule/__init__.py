"""dpmodule: one symbol graph, one set of parameters, many executors.

MXNet's symbolic Module API on PyTorch: ``import dpmodule as mx``.
"""

import gc
import importlib
from typing import TYPE_CHECKING, Any

_collects = gc.isenabled()
gc.disable()  # the new objects would trigger collections, which also scan all objects of torch
try:
    from ._core import lazy

    lazy.install_paths()
    from . import attribute, base, context, error, log, name, ndarray, ops, registry, symbol, util
    from . import ndarray as nd
    from . import symbol as sym
    from .attribute import AttrScope
    from .base import MXNetError
    from .context import Context, cpu, cpu_pinned, current_context, gpu, gpu_memory_info, num_gpus
    from .libinfo import __version__ as __version__
    from .ndarray import NDArray, waitall
    from .symbol import Symbol
    from .util import (
        is_np_array,
        is_np_shape,
        np_array,
        np_shape,
        set_np_shape,
        use_np,
        use_np_array,
        use_np_shape,
    )

    if _collects and not gc.get_freeze_count():
        # together they move all objects to the oldest generation, which the next young collections do not scan
        gc.freeze()
        gc.unfreeze()
finally:
    if _collects:
        gc.enable()
    del _collects

if TYPE_CHECKING:
    from . import (
        autograd,
        callback,
        checkpoint,
        contrib,
        executor,
        fluid,
        gluon,
        hogwild,
        image,
        initializer,
        interop,
        io,
        kvstore,
        libinfo,
        lr_scheduler,
        metric,
        model,
        module,
        monitor,
        onnx,
        operator,
        optimizer,
        profiler,
        random,
        recordio,
        rnn,
        runtime,
        streams,
        symbol_doc,
        test_utils,
        visualization,
    )
    from . import image as img
    from . import initializer as init
    from . import kvstore as kv
    from . import module as mod
    from . import monitor as mon
    from . import optimizer as opt
    from . import random as rnd
    from . import visualization as viz
    from .as_mxnet import install_as_mxnet
    from .executor import engine
    from .hogwild import AsyncExecutor, DataFeedDesc, InMemoryDataset, QueueDataset
    from .module import executor_manager
    from .monitor import Monitor

_MOVED = {
    "engine": "executor.engine",
    "executor_manager": "module.executor_manager",
    "img": "image",
    "init": "initializer",
    "kv": "kvstore",
    "mod": "module",
    "mon": "monitor",
    "opt": "optimizer",
    "rnd": "random",
    "viz": "visualization",
}
"""Modules that are shown under short names."""

_FROM_LATER = {"as_mxnet": "install_as_mxnet", "hogwild": "AsyncExecutor DataFeedDesc InMemoryDataset QueueDataset", "monitor": "Monitor"}
"""Space-separated names of the package that its modules define."""

ops.add_lazy_operators("dpmodule.operator", "Custom _NDArray _Native")

__all__ = [
    "AsyncExecutor",
    "AttrScope",
    "Context",
    "DataFeedDesc",
    "InMemoryDataset",
    "MXNetError",
    "Monitor",
    "NDArray",
    "QueueDataset",
    "Symbol",
    "attribute",
    "autograd",
    "base",
    "callback",
    "checkpoint",
    "context",
    "contrib",
    "cpu",
    "cpu_pinned",
    "current_context",
    "engine",
    "error",
    "executor",
    "executor_manager",
    "fluid",
    "get_include",
    "gluon",
    "gpu",
    "gpu_memory_info",
    "hogwild",
    "image",
    "img",
    "init",
    "initializer",
    "install_as_mxnet",
    "interop",
    "io",
    "is_np_array",
    "is_np_shape",
    "kv",
    "kvstore",
    "libinfo",
    "log",
    "lr_scheduler",
    "metric",
    "misc",
    "mod",
    "model",
    "module",
    "mon",
    "monitor",
    "name",
    "nd",
    "ndarray",
    "np_array",
    "np_shape",
    "num_gpus",
    "onnx",
    "operator",
    "opt",
    "optimizer",
    "profiler",
    "random",
    "recordio",
    "registry",
    "rnd",
    "rnn",
    "runtime",
    "set_np_shape",
    "streams",
    "sym",
    "symbol",
    "symbol_doc",
    "test_utils",
    "use_np",
    "use_np_array",
    "use_np_shape",
    "util",
    "visualization",
    "viz",
    "waitall",
]


def get_include() -> str:
    """Return the folder of the C++ headers, for extensions that define functors (see `dpmodule.streams`)."""
    return str(importlib.import_module(".native", __name__).include())


def load_ipython_extension(shell: object) -> None:
    """Answer ``import mxnet`` by this package in a notebook; ``%load_ext dpmodule`` calls it.

    Args:
        shell: IPython's.
    """
    importlib.import_module(".as_mxnet", __name__).install_as_mxnet()


def __getattr__(name: str) -> Any:
    for home, names in _FROM_LATER.items():
        if name in names.split():
            return getattr(importlib.import_module(f".{home}", __name__), name)
    if name in __all__:  # a module, imported at its first use, since most programs do not need it
        found = globals()[name] = importlib.import_module(f".{_MOVED.get(name, name)}", __name__)
        return found
    if name in {"np", "npx", "numpy", "numpy_extension"}:
        raise AttributeError(
            f"mx.{name} is not available: MXNet's NumPy interface is not part of this package; use mx.nd, mx.sym "
            "or NumPy itself"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
