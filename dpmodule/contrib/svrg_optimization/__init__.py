"""Stochastic variance reduced gradients: `svrg_module.SVRGModule`."""

from . import svrg_module as svrg_module
from . import svrg_optimizer as svrg_optimizer
