"""Stochastic variance reduced gradients: `svrg_module.SVRGModule`."""

from ...compat import lazy
from . import svrg_module as svrg_module
from . import svrg_optimizer as svrg_optimizer

__all__ = ["svrg_module", "svrg_optimizer"]

lazy.publish(__name__, __all__)
