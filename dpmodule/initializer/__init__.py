"""Initial values of parameters (`mx.init`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compat import lazy
from .base import InitDesc as InitDesc
from .base import Initializer as Initializer
from .base import alias as alias
from .base import create as create
from .base import register as register
from .base import registry
from .random import MSRAPrelu as MSRAPrelu
from .random import Normal as Normal
from .random import Orthogonal as Orthogonal
from .random import Uniform as Uniform
from .random import Xavier as Xavier

if TYPE_CHECKING:
    from .rnn import FusedRNN as FusedRNN
    from .structured import Bilinear as Bilinear
    from .structured import Constant as Constant
    from .structured import Load as Load
    from .structured import LSTMBias as LSTMBias
    from .structured import Mixed as Mixed
    from .structured import One as One
    from .structured import Zero as Zero

__all__ = [
    "Bilinear",
    "Constant",
    "FusedRNN",
    "InitDesc",
    "Initializer",
    "LSTMBias",
    "Load",
    "MSRAPrelu",
    "Mixed",
    "Normal",
    "One",
    "Orthogonal",
    "Uniform",
    "Xavier",
    "Zero",
    "alias",
    "create",
    "register",
]

_LATER = {
    "rnn": "FusedRNN",
    "structured": "Bilinear Constant LSTMBias Load Mixed One Zero",
    "torch_value": "TorchValue",
}
"""Initializers that are imported when they are first asked for, by their module."""

registry.add_later(__name__, {**_LATER, "structured": "Bilinear Constant LSTMBias One ones Zero zeros"})
__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
