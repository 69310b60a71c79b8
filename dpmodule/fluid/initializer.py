"""Initializers with Paddle's names; those of `mx.init` are also accepted."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import torch

from .._core import lazy
from .._devices import generators
from ..base import ArgumentError
from ..initializer import Constant as FillConstant
from ..initializer import Initializer, register
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
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]

lazy.publish(__name__, __all__)


def Constant(value: float = 0.0, force_cpu: bool = False) -> Initializer:
    """Return an initializer with a constant.

    Args:
        force_cpu: ignored.
    """
    return FillConstant(value)


def NumpyArrayInitializer(value: Any) -> Initializer:
    """Return an initializer with the values of an array.

    Args:
        value: the array, of the parameter's shape.
    """
    return FillConstant(np.asarray(value))


def Xavier(
    uniform: bool = True, fan_in: float | None = None, fan_out: float | None = None, seed: int = 0
) -> Initializer:
    """Return Xavier's initializer, scaled by the mean of inputs and outputs; the default of weights.

    Args:
        uniform: whether the distribution is uniform; otherwise it is normal.
        fan_in: number of inputs; None: that of the weight.
        fan_out: number of outputs; both or neither is given.
        seed: must be 0; use `mx.random.seed`, or `random_seed` of the startup program.

    Raises:
        ArgumentError: an argument is not supported.
    """
    _check_seed("Xavier", seed)
    fans = [_fan("Xavier", "fan_in", fan_in), _fan("Xavier", "fan_out", fan_out)]
    if None not in fans:
        return _drawn(uniform, 2.0 / (fans[0] + fans[1]))
    if fans != [None, None]:
        raise ArgumentError("Xavier: only one of fan_in and fan_out is given; give both, or neither")
    return FluidGlorot("uniform", "avg", 3) if uniform else FluidGlorot("gaussian", "avg", 1)


def MSRA(uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> Initializer:
    """Return the MSRA initializer, scaled by the number of inputs, for layers before a rectifier.

    Args:
        uniform: whether the distribution is uniform; otherwise it is normal.
        fan_in: number of inputs; None: that of the weight.
        seed: must be 0; use `mx.random.seed`, or `random_seed` of the startup program.

    Raises:
        ArgumentError: an argument is not supported.
    """
    _check_seed("MSRA", seed)
    fan = _fan("MSRA", "fan_in", fan_in)
    if fan is not None:
        return _drawn(uniform, 2.0 / fan)
    return FluidGlorot("uniform", "in", 6) if uniform else FluidGlorot("gaussian", "in", 2)


def _drawn(uniform: bool, variance: float) -> Initializer:
    limit = math.sqrt(3 * variance)
    return FluidUniform(-limit, limit) if uniform else FluidNormal(0.0, math.sqrt(variance))


def _fan(kind: str, name: str, fan: Any) -> Any:
    if fan is not None and (isinstance(fan, bool) or not isinstance(fan, Real) or not float(fan) > 0):
        raise ArgumentError(f"{kind}: {name} is {fan!r}, expected a number above 0 or None")
    return fan


@register
class FluidGlorot(XavierByShape):
    """Xavier's initializer, which takes the length of a vector as its numbers of inputs and outputs."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if arr.ndim != 1:
            super()._init_weight(name, arr)
            return
        scale, generator = math.sqrt(self.magnitude / arr.size), generators.generator(arr.context)
        if self.rnd_type == "uniform":
            arr.raw.uniform_(-scale, scale, generator=generator)
        else:
            arr.raw.normal_(0.0, scale, generator=generator)


def _check_seed(kind: str, seed: Any) -> None:
    if seed:
        raise ArgumentError(f"{kind}: seed is {seed!r}, expected 0; Program.random_seed seeds all parameters")


class _Seeded(Initializer):
    """Initializer by random numbers, with a generator of its own unless the seed is 0."""

    def __init__(self, seed: int, **numbers: float) -> None:
        super().__init__(**numbers, **({"seed": int(seed)} if seed else {}))
        self._seed = int(seed or 0)

    def _generator(self, arr: NDArray) -> torch.Generator:
        if not self._seed:
            found: torch.Generator = generators.generator(arr.context)
            return found
        return torch.Generator(arr.raw.device).manual_seed(self._seed)


@register
class FluidUniform(_Seeded):
    """Draw from a uniform distribution.

    Args:
        seed: seed of the values; 0: they are drawn from those of `mx.random.seed`.

    Raises:
        ArgumentError: `low` is above `high`.
    """

    def __init__(self, low: float = -1.0, high: float = 1.0, seed: int = 0) -> None:
        if not low <= high:
            raise ArgumentError(f"Uniform: low is {low!r} and high {high!r}, expected low <= high")
        super().__init__(seed, low=low, high=high)
        self.low, self.high = low, high

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.uniform_(self.low, self.high, generator=self._generator(arr))


def _check_scale(kind: str, scale: Any) -> None:
    if not scale >= 0:
        raise ArgumentError(f"{kind}: scale is {scale!r}, expected a number from 0")


@register
class FluidNormal(_Seeded):
    """Draw from a normal distribution.

    Args:
        loc: mean.
        scale: standard deviation.
        seed: as in `Uniform`.

    Raises:
        ArgumentError: `scale` is negative.
    """

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        _check_scale("Normal", scale)
        super().__init__(seed, loc=loc, scale=scale)
        self.loc, self.scale = loc, scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.normal_(self.loc, self.scale, generator=self._generator(arr))


@register
class FluidTruncatedNormal(_Seeded):
    """Draw from a normal distribution, within two standard deviations of the mean.

    Args:
        loc: mean.
        scale: standard deviation before truncation.
        seed: as in `Uniform`.

    Raises:
        ArgumentError: `scale` is negative.
    """

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        _check_scale("TruncatedNormal", scale)
        super().__init__(seed, loc=loc, scale=scale)
        self.loc, self.scale = loc, scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        end = math.erf(2**0.5)  # the share of the normal distribution
        drawn = arr.raw.uniform_(-end, end, generator=self._generator(arr)).erfinv_()
        drawn.mul_(2**0.5 * self.scale).add_(self.loc)


Uniform, Normal, TruncatedNormal = FluidUniform, FluidNormal, FluidTruncatedNormal
TruncatedNormalInitializer = TruncatedNormal
ConstantInitializer, UniformInitializer, NormalInitializer = Constant, Uniform, Normal
XavierInitializer, MSRAInitializer = Xavier, MSRA
