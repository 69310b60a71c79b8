"""Optimizers, and the Updater that applies one to parameters by index."""

from .adaptive import AdaGrad, Adam, RMSProp
from .base import Optimizer, create, register
from .grouped import GroupedOptimizer
from .sgd import NAG, SGD, Test, ccSGD
from .updater import Updater, get_updater

__all__ = [
    "NAG",
    "SGD",
    "AdaGrad",
    "Adam",
    "GroupedOptimizer",
    "Optimizer",
    "RMSProp",
    "Test",
    "Updater",
    "ccSGD",
    "create",
    "get_updater",
    "register",
]
