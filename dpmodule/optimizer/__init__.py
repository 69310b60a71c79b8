"""Optimizers, and the Updater that applies one to parameters by index."""

import typing

from .._core import lazy
from . import base
from .base import Optimizer as Optimizer
from .base import create as create
from .base import register as register
from .grouped import GroupedOptimizer as GroupedOptimizer
from .sgd import NAG as NAG
from .sgd import SGD as SGD
from .sgd import PlainMomentum as PlainMomentum
from .sgd import Test as Test
from .sgd import ccSGD as ccSGD
from .updater import Updater as Updater
from .updater import get_updater as get_updater

if typing.TYPE_CHECKING:
    from . import contrib as contrib
    from .adaptive import AdaDelta as AdaDelta
    from .adaptive import AdaGrad as AdaGrad
    from .adaptive import Adam as Adam
    from .adaptive import Adamax as Adamax
    from .adaptive import Nadam as Nadam
    from .adaptive import PlainAdaGrad as PlainAdaGrad
    from .adaptive import RMSProp as RMSProp
    from .descent import DCASGD as DCASGD
    from .descent import FTML as FTML
    from .descent import SGLD as SGLD
    from .descent import Ftrl as Ftrl
    from .descent import Signum as Signum
    from .layerwise import LAMB as LAMB
    from .layerwise import LARS as LARS
    from .layerwise import LBSGD as LBSGD
    from .torch_optimizer import TorchOptimizer as TorchOptimizer

_LATER = {
    "adaptive": "AdaDelta AdaGrad Adam Adamax Nadam PlainAdaGrad RMSProp",
    "descent": "DCASGD FTML Ftrl SGLD Signum",
    "layerwise": "LAMB LARS LBSGD",
    "torch_optimizer": "TorchOptimizer",
}
"""Optimizers that are imported on first access, by their module."""

__all__ = [*lazy.public_names(vars()), *lazy.modules_of(_LATER), "contrib", "optimizer"]

base.registry.add_later(__name__, {**_LATER, "contrib": "GroupAdaGrad"})
__getattr__, __dir__ = lazy.attributes(__name__, __all__, {**_LATER, "contrib": "", "optimizer": ""})
