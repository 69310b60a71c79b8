"""MXNet's import path of the optimizers (`mx.optimizer.optimizer`)."""

from __future__ import annotations

from .. import later
from .adaptive import AdaGrad as AdaGrad
from .adaptive import Adam as Adam
from .adaptive import RMSProp as RMSProp
from .base import Optimizer as Optimizer
from .base import create as create
from .base import register as register
from .descent import DCASGD as DCASGD
from .descent import SGLD as SGLD
from .descent import Signum as Signum
from .layerwise import LAMB as LAMB
from .layerwise import LARS as LARS
from .layerwise import LBSGD as LBSGD
from .leader import FTML as FTML
from .leader import Ftrl as Ftrl
from .moments import AdaDelta as AdaDelta
from .moments import Adamax as Adamax
from .moments import Nadam as Nadam
from .sgd import NAG as NAG
from .sgd import SGD as SGD
from .sgd import Test as Test
from .sgd import ccSGD as ccSGD
from .updater import Updater as Updater
from .updater import get_updater as get_updater

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
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Signum",
    "Test",
    "Updater",
    "ccSGD",
    "create",
    "get_updater",
    "register",
]

later.publish(__name__, __all__)
