"""What MXNet keeps under `mx.contrib`; ``mx.contrib.nd`` and ``mx.contrib.sym`` hold the contrib operators."""

import importlib
from types import ModuleType

from ..ndarray import contrib as nd
from ..symbol import contrib as sym
from . import svrg_optimization as svrg_optimization

ndarray, symbol = nd, sym

__all__ = ["amp", "autograd", "io", "nd", "ndarray", "svrg_optimization", "sym", "symbol"]


def __getattr__(name: str) -> ModuleType:
    if name in ("amp", "autograd", "io"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
