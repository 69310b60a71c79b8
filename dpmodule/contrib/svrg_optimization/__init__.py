"""Stochastic variance reduced gradients: `svrg_module.SVRGModule`."""

from ... import later
from . import svrg_module as svrg_module
from . import svrg_optimizer as svrg_optimizer

__all__ = ["svrg_module", "svrg_optimizer"]

later.publish(__name__, __all__)
