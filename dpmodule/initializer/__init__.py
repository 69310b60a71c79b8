"""Initial values of parameters (`mx.init`)."""

from __future__ import annotations

from .base import InitDesc as InitDesc
from .base import Initializer as Initializer
from .base import create as create
from .base import register as register
from .random import MSRAPrelu as MSRAPrelu
from .random import Normal as Normal
from .random import Orthogonal as Orthogonal
from .random import Uniform as Uniform
from .random import Xavier as Xavier
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
    "create",
    "register",
]
