"""Initial values of parameters (`mx.init`)."""

from __future__ import annotations

from . import torch_value as torch_value  # registers itself
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
