"""Initializers with Paddle's names; those of `mx.init` are also accepted."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import lazy
from .._devices import generators
from ..base import ArgumentError
from ..initializer import Constant as FillConstant
from ..initializer import Initializer, MSRAPrelu, register
from ..initializer import Xavier as XavierByShape
from ..ndarray import NDArray

__all__ = [
    "MSRA",
    "Constant",
    "ConstantInitializer",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]

lazy.publish(__name__, __all__)


def Constant(value: float = 0.0) -> Initializer:
    """Return an initializer with a constant."""
    return FillConstant(value)


def NumpyArrayInitializer(value: Any) -> Initializer:
    """Return an initializer with the values of an array.

    Args:
        value: the array, of the parameter's shape.
    """
    return FillConstant(np.asarray(value))


def Xavier(uniform: bool = True) -> Initializer:
    """Return Xavier's initializer, scaled by the mean of inputs and outputs; the default of weights.

    Args:
        uniform: whether the distribution is uniform; otherwise it is normal.
    """
    return XavierByShape("uniform" if uniform else "gaussian", "avg", 3)


def MSRA(uniform: bool = True) -> Initializer:
    """Return the MSRA initializer, scaled by the number of inputs, for layers before a rectifier.

    Args:
        uniform: whether the distribution is uniform; otherwise it is normal.
    """
    return XavierByShape("uniform", "in", 6) if uniform else MSRAPrelu("in", 0.0)


@register
class FluidUniform(Initializer):
    """Draw from a uniform distribution.

    Raises:
        ArgumentError: `low` is above `high`.
    """

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        if not low <= high:
            raise ArgumentError(f"Uniform: low is {low!r} and high {high!r}, expected low <= high")
        super().__init__(low=low, high=high)
        self.low, self.high = low, high

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.uniform_(self.low, self.high, generator=generators.generator(arr.context))


@register
class FluidNormal(Initializer):
    """Draw from a normal distribution.

    Raises:
        ArgumentError: `scale` is negative.
    """

    def __init__(self, loc: float = 0.0, scale: float = 1.0) -> None:
        if not scale >= 0:
            raise ArgumentError(f"Normal: scale is {scale!r}, expected a number from 0")
        super().__init__(loc=loc, scale=scale)
        self.loc, self.scale = loc, scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.normal_(self.loc, self.scale, generator=generators.generator(arr.context))


Uniform, Normal = FluidUniform, FluidNormal
ConstantInitializer, UniformInitializer, NormalInitializer = Constant, Uniform, Normal
XavierInitializer, MSRAInitializer = Xavier, MSRA
