"""Random initializers: `Uniform`, `Normal`, `Xavier`, `MSRAPrelu`, `Orthogonal`.

They use the generator of the array's context, which `mx.random.seed` seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .._devices import generators
from ..base import ArgumentError, ShapeError
from ..ndarray import NDArray
from .base import Initializer, register

Draw = Callable[[torch.Tensor, torch.Generator], object]


def _fill(arr: NDArray, draw: Draw) -> None:
    """Draw into an array; integer arrays truncate the fractions."""
    target, generator = arr.raw, generators.generator(arr.context)
    if target.is_floating_point():
        draw(target, generator)
    else:
        drawn = torch.empty(target.shape, dtype=torch.float32, device=target.device)
        draw(drawn, generator)
        target.copy_(drawn)


def _uniform(arr: NDArray, scale: float) -> None:
    _fill(arr, lambda tensor, generator: tensor.uniform_(-scale, scale, generator=generator))


def _normal(arr: NDArray, sigma: float) -> None:
    _fill(arr, lambda tensor, generator: tensor.normal_(0.0, sigma, generator=generator))


def _check_spread(kind: str, name: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise ArgumentError(f"{kind}: {name} is {value}, expected a finite number from 0")


def _check_choice(kind: str, name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{kind}: {name} is {value!r}, expected one of {', '.join(choices)}")


@register
class Uniform(Initializer):
    """Draw weights from a uniform distribution over [-scale, scale].

    Raises:
        ArgumentError: `scale` is negative or not finite.
    """

    def __init__(self, scale: float = 0.07) -> None:
        _check_spread("Uniform", "scale", scale)
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _uniform(arr, self.scale)


@register
class Normal(Initializer):
    """Draw weights from a normal distribution around 0.

    Raises:
        ArgumentError: `sigma` is negative or not finite.
    """

    def __init__(self, sigma: float = 0.01) -> None:
        _check_spread("Normal", "sigma", sigma)
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _normal(arr, self.sigma)


@register
class Xavier(Initializer):
    """Draw weights that preserve the variance of signals from layer to layer.

    ``sqrt(magnitude / fan)``, where the fan is the number of inputs or outputs of a unit, is the bound of the uniform
    or the standard deviation of the normal distribution.

    Args:
        rnd_type: "uniform" or "gaussian".
        factor_type: the fan: "in", "out", or "avg" for their mean.
        magnitude: the numerator; 3 with "avg" and "uniform" is Glorot's choice.

    Raises:
        ArgumentError: an option is unknown, or `magnitude` is negative or not finite.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks",
    2010.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        _check_choice(type(self).__name__, "rnd_type", rnd_type, ("uniform", "gaussian"))
        _check_choice(type(self).__name__, "factor_type", factor_type, ("avg", "in", "out"))
        _check_spread(type(self).__name__, "magnitude", magnitude)
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if arr.ndim < 2:
            raise ShapeError(
                f"{type(self).__name__}: {name} has shape {arr.shape}, expected at least 2 axes "
                "(outputs, inputs, ...)"
            )
        if arr.size == 0:
            return
        window = math.prod(arr.shape[2:])
        fan_out, fan_in = arr.shape[0] * window, arr.shape[1] * window
        fan = {"avg": (fan_in + fan_out) / 2.0, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = math.sqrt(self.magnitude / fan)
        (_uniform if self.rnd_type == "uniform" else _normal)(arr, scale)


@register
class MSRAPrelu(Xavier):
    """Draw normally distributed weights for layers followed by a (leaky) ReLU.

    Args:
        factor_type: the fan: "in", "out", or "avg" for their mean.
        slope: slope of the ReLU below 0.

    Raises:
        ArgumentError: `factor_type` is unknown.

    Source: He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015.
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1.0 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Orthogonal(Initializer):
    """Draw an orthogonal matrix, whose rows (or columns, if fewer) have length `scale`.

    Axes after the first are flattened.

    Args:
        rand_type: distribution of the random matrix: "uniform" or "normal".

    Raises:
        ArgumentError: `rand_type` is unknown.

    Source: Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks", 2013. Uses a singular value decomposition, as MXNet does; QR is faster, but the result would depend on
    the distribution.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        _check_choice("Orthogonal", "rand_type", rand_type, ("uniform", "normal"))
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if arr.ndim < 2:
            raise ShapeError(f"Orthogonal: {name} has shape {arr.shape}, expected at least 2 axes")
        rows, columns = arr.shape[0], math.prod(arr.shape[1:])
        drawn = NDArray(torch.empty(rows, columns, dtype=torch.float32, device=arr.raw.device), arr.context)
        if self.rand_type == "uniform":
            _uniform(drawn, 1.0)
        else:
            _normal(drawn, 1.0)
        left, _, right = torch.linalg.svd(drawn.raw, full_matrices=False)
        matrix = right if rows <= columns else left
        arr.raw.copy_((self.scale * matrix).reshape(arr.shape))
