"""Optimizers, and the Updater that applies one to parameters by index."""

from typing import TYPE_CHECKING

from ..compat import lazy
from .base import Optimizer, create, register, registry
from .grouped import GroupedOptimizer
from .sgd import NAG, SGD, Test, ccSGD
from .updater import Updater, get_updater

if TYPE_CHECKING:
    from . import contrib
    from .adaptive import AdaGrad, Adam, RMSProp
    from .descent import DCASGD, SGLD, Signum
    from .layerwise import LAMB, LARS, LBSGD
    from .leader import FTML, Ftrl
    from .moments import AdaDelta, Adamax, Nadam
    from .torch_optimizer import TorchOptimizer

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

_LATER = {
    "adaptive": "AdaGrad Adam RMSProp",
    "descent": "DCASGD SGLD Signum",
    "layerwise": "LAMB LARS LBSGD",
    "leader": "FTML Ftrl",
    "moments": "AdaDelta Adamax Nadam",
    "torch_optimizer": "TorchOptimizer",
}
"""Optimizers that few programs need, by the module that is imported when one of them is asked for."""

registry.add_later(__name__, {**_LATER, "contrib": "GroupAdaGrad"})
__getattr__, __dir__ = lazy.attributes(__name__, __all__, {**_LATER, "contrib": "", "optimizer": ""})
