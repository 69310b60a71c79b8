"""Seeds and random arrays (`mx.random`); the sampling functions are those of `mx.nd.random`."""

from ._core import lazy
from ._devices.generators import seed as seed
from ._devices.generators import seed_all as seed_all
from .ndarray.random import exponential as exponential
from .ndarray.random import gamma as gamma
from .ndarray.random import generalized_negative_binomial as generalized_negative_binomial
from .ndarray.random import multinomial as multinomial
from .ndarray.random import negative_binomial as negative_binomial
from .ndarray.random import normal as normal
from .ndarray.random import poisson as poisson
from .ndarray.random import randint as randint
from .ndarray.random import randn as randn
from .ndarray.random import shuffle as shuffle
from .ndarray.random import uniform as uniform

__all__ = lazy.public_names(vars())

lazy.publish(__name__, __all__)
