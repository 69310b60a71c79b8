"""Stochastic variance reduced gradients: `svrg_module.SVRGModule`."""

from ..._core import lazy
from . import svrg_module as svrg_module

__all__ = ["svrg_module", "svrg_optimizer"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__)
