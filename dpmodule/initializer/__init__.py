"""Initial values of parameters (`mx.init`)."""

import typing

from .._core import lazy
from . import base
from .base import InitDesc as InitDesc
from .base import Initializer as Initializer
from .base import alias as alias
from .base import create as create
from .base import register as register
from .random import MSRAPrelu as MSRAPrelu
from .random import Normal as Normal
from .random import Orthogonal as Orthogonal
from .random import Uniform as Uniform
from .random import Xavier as Xavier

if typing.TYPE_CHECKING:
    from .structured import Bilinear as Bilinear
    from .structured import Constant as Constant
    from .structured import FusedRNN as FusedRNN
    from .structured import Load as Load
    from .structured import LSTMBias as LSTMBias
    from .structured import Mixed as Mixed
    from .structured import One as One
    from .structured import Zero as Zero

_LATER = {"structured": "Bilinear Constant FusedRNN LSTMBias Load Mixed One Zero"}
"""Public initializers that are imported on first access, by their module."""

__all__ = [*lazy.public_names(vars()), *lazy.modules_of(_LATER)]

# TorchModuleValue can be created by name from graphs, but is not public
base.registry.add_later(
    __name__, {"structured": "Bilinear Constant FusedRNN LSTMBias One ones TorchModuleValue Zero zeros"}
)
__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, {"structured": f"{_LATER['structured']} TorchModuleValue"}
)
