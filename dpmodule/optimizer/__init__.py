"""Optimizers, and the Updater that applies one to parameters by index."""

from . import contrib, optimizer
from .adaptive import AdaGrad, Adam, RMSProp
from .base import Optimizer, create, register
from .descent import DCASGD, SGLD, Signum
from .grouped import GroupedOptimizer
from .layerwise import LAMB, LARS, LBSGD
from .leader import FTML, Ftrl
from .moments import AdaDelta, Adamax, Nadam
from .sgd import NAG, SGD, Test, ccSGD
from .torch_optimizer import TorchOptimizer
from .updater import Updater, get_updater

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LARS",
    "LBSGD",
    "NAG",
    "SGD",
    "SGLD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "Adamax",
    "Ftrl",
    "GroupedOptimizer",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Signum",
    "Test",
    "TorchOptimizer",
    "Updater",
    "ccSGD",
    "contrib",
    "create",
    "get_updater",
    "optimizer",
    "register",
]
