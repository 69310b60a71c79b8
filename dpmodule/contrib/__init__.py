"""What MXNet keeps under `mx.contrib`; ``mx.contrib.nd`` and ``mx.contrib.sym`` hold the contrib operators."""

from .._core import lazy
from ..ndarray import contrib as nd
from ..symbol import contrib as sym
from . import svrg_optimization as svrg_optimization

ndarray, symbol = nd, sym

_LATER = {"amp": "", "autograd": "", "io": "", "onnx": "", "tensorboard": ""}

__all__ = ["nd", "ndarray", "svrg_optimization", "sym", "symbol", *_LATER]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
