"""Sampling from distributions, and their densities.

Every sampling function takes an uninitialized output tensor, the generator, and the parameters, which are broadcast to
the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..base import Shape, ShapeError
from .attrs import boolean
from .registry import op
from .shapes import output_shape, unify
from .spec import Attr, Env, Onnx, Shapes, arg

Draw = Callable[..., torch.Tensor]


def standard_gamma(alpha: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Draw one number from the gamma distribution with scale 1 for each shape parameter.

    Args:
        alpha: shape parameters, floating-point numbers; 0 gives 0, a negative or infinite one NaN.
        generator: source of random numbers.
    Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. torch's own sampler
    takes a generator only in a private function.
    """
    small = alpha < 1
    d = torch.where(small, alpha + 1, alpha) - 1 / 3
    c = (9 * d).rsqrt()
    result = torch.full_like(d, float("nan")).masked_fill_(alpha == 0, 0.0)
    left = (alpha > 0) & alpha.isfinite()
    while left.any():
        x = torch.empty_like(d).normal_(generator=generator)
        u = torch.empty_like(d).uniform_(generator=generator)
        v = (1 + c * x) ** 3
        fits = (v > 0) & (u.log() < 0.5 * x * x + d - d * v + d * v.clamp(min=1e-30).log())
        result = torch.where(left & fits, d * v, result)
        left = left & ~fits
    boost = torch.empty_like(d).uniform_(generator=generator) ** (1 / alpha)
    return torch.where(small, result * boost, result)


def uniform(out: torch.Tensor, gen: Any, low: Any, high: Any) -> torch.Tensor:
    """Fill with uniform numbers from [low, high)."""
    return out.uniform_(generator=gen).mul_(high - low).add_(low)


def normal(out: torch.Tensor, gen: Any, loc: Any, scale: Any) -> torch.Tensor:
    """Fill with normal numbers with mean `loc` and standard deviation `scale`."""
    return out.normal_(generator=gen).mul_(scale).add_(loc)


def exponential(out: torch.Tensor, gen: Any, lam: Any) -> torch.Tensor:
    """Fill with exponential numbers with rate `lam`."""
    return out.exponential_(generator=gen).div_(lam)


def gamma(out: torch.Tensor, gen: Any, alpha: Any, beta: Any) -> torch.Tensor:
    """Return gamma numbers with shape `alpha` and scale `beta`."""
    drawn: torch.Tensor = standard_gamma(out.zero_() + alpha, gen) * beta
    return drawn


def poisson(out: torch.Tensor, gen: Any, lam: Any) -> torch.Tensor:
    """Return Poisson numbers with mean `lam`."""
    return torch.poisson(out.zero_() + lam, generator=gen)


def negative_binomial(out: torch.Tensor, gen: Any, k: Any, p: Any) -> torch.Tensor:
    """Return the number of successes before the k-th failure, where `p` is the probability of failure."""
    return torch.poisson(standard_gamma(out.zero_() + k, gen) * ((1 - p) / p), generator=gen)


def generalized_negative_binomial(out: torch.Tensor, gen: Any, mu: Any, alpha: Any) -> torch.Tensor:
    """Return counts with mean `mu` and variance ``mu + alpha * mu ** 2``; alpha 0 is Poisson."""
    spread, mean = out.zero_() + alpha, torch.zeros_like(out) + mu
    fixed = spread == 0
    shape = 1 / spread.masked_fill(fixed, 1.0)
    rate = torch.where(fixed, mean, standard_gamma(shape, gen) * spread * mean)
    return torch.poisson(rate, generator=gen)


Tensors = Callable[..., torch.Tensor]
T = torch.Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, slots=True)
class _Density:
    """Density of a distribution.

    Attributes:
        log: ``(sample, *parameters) -> log density``.
        parameters: names of the parameters.
        of: name of the distribution for the docstring.
        discrete: the sample has no gradient.
        vector: the last axis of sample and parameters is one vector.
    """

    log: Tensors
    parameters: tuple[str, ...]
    of: str
    discrete: bool = False
    vector: bool = False


def _uniform(x: T, low: T, high: T) -> T:
    return -torch.log(high - low).expand_as(x)


def _normal(x: T, mean: T, deviation: T) -> T:
    return -0.5 * ((x - mean) / deviation).square() - deviation.log() - _LOG_SQRT_2PI


def _gamma(x: T, alpha: T, beta: T) -> T:
    return alpha * beta.log() + (alpha - 1) * x.log() - beta * x - alpha.lgamma()


def _exponential(x: T, rate: T) -> T:
    return rate.log() - rate * x


def _poisson(x: T, mean: T) -> T:
    return x * mean.log() - (x + 1).lgamma() - mean


def _negative_binomial(x: T, limit: T, chance: T) -> T:
    combinations = (x + limit).lgamma() - (x + 1).lgamma() - limit.lgamma()
    return combinations + limit * chance.log() + x * torch.log1p(-chance)


def _generalized(x: T, mean: T, dispersion: T) -> T:
    return _negative_binomial(x, 1 / dispersion, 1 / (mean * dispersion + 1))


def _dirichlet(x: T, alpha: T) -> T:
    normalizer = alpha.sum(-1).lgamma() - alpha.lgamma().sum(-1)
    return ((alpha - 1) * x.log()).sum(-1) + normalizer


_TABLE = {
    "uniform": _Density(_uniform, ("low", "high"), "uniform over [low, high); samples are not checked", True),
    "normal": _Density(_normal, ("mu", "sigma"), "normal with mean mu and standard deviation sigma"),
    "gamma": _Density(_gamma, ("alpha", "beta"), "gamma with shape alpha and rate beta"),
    "exponential": _Density(_exponential, ("lam",), "exponential with rate lam"),
    "poisson": _Density(_poisson, ("lam",), "Poisson with mean lam", True),
    "negative_binomial": _Density(
        _negative_binomial,
        ("k", "p"),
        "negative binomial: successes before k failures with probability p",
        True,
    ),
    "generalized_negative_binomial": _Density(
        _generalized,
        ("mu", "alpha"),
        "negative binomial with mean mu and variance mu + alpha * mu ** 2",
        True,
    ),
    "dirichlet": _Density(_dirichlet, ("alpha",), "Dirichlet with concentrations alpha", vector=True),
}
"""Densities by short operator name."""


def _infer(name: str, density: _Density) -> Callable[..., Shapes]:
    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        common: Shape = None
        for shape in ins[1:]:
            common = unify(common, shape, f"parameters of {name}")
        sample = ins[0]
        if not density.vector:
            sample = unify(sample, outs[0], f"sample and the result of {name}")
        if sample is not None and common is not None:
            _check(name, density, sample, common)
        out = sample[:-1] if density.vector and sample is not None else sample
        return [sample, *[common] * (len(ins) - 1)], [output_shape(outs[0], out)]

    return infer


def _check(name: str, density: _Density, sample: tuple[int, ...], parameter: tuple[int, ...]) -> None:
    """Raise an error if the axes of the parameters are not the first axes of the sample."""
    first, leading = sample, parameter
    vectors_match = True
    if density.vector:
        vectors_match = sample[-1] == parameter[-1] or 0 in (sample[-1], parameter[-1])
        first, leading = sample[:-1], parameter[:-1]
    if (
        not vectors_match
        or len(first) < len(leading)
        or any(x != y and x and y for x, y in zip(first, leading))
    ):
        raise ShapeError(
            f"{name}: sample has shape {sample} and the parameters {parameter}, expected the parameters' axes first"
        )


def _expand_parameter(density: _Density, sample: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a parameter with an axis of size 1 for each missing axis of the sample."""
    missing = sample.dim() - parameter.dim()
    vector_start = parameter.dim() - density.vector
    return parameter.reshape(*parameter.shape[:vector_start], *[1] * missing, *parameter.shape[vector_start:])


def _declare(short: str, density: _Density) -> None:
    name = f"_random_pdf_{short}"

    def run(a: Any, env: Env, sample: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        for parameter in parameters:
            _check(name, density, tuple(sample.shape), tuple(parameter.shape))
        drawn = sample.detach() if density.discrete else sample
        log_density = density.log(
            drawn, *(_expand_parameter(density, drawn, parameter) for parameter in parameters)
        )
        return log_density if a.is_log else log_density.exp()

    axes = "(parameters..., drawn..., K)" if density.vector else "(parameters..., drawn...)"
    listed = ", ".join(density.parameters)
    run.__doc__ = (
        f"Return the probability density of samples: {density.of}.\n\n"
        f"Shape:\n    sample: {axes}{'; no gradient' if density.discrete else ''}.\n"
        f"    {listed}: the first axes of `sample`{', and its last' if density.vector else ''}.\n"
        f"    returns: {'(parameters..., drawn...)' if density.vector else 'as `sample`'}.\n\n"
        f"Source: MXNet 1.9.1 `{name}`.\n"
    )
    op(
        name,
        [arg("sample"), *(arg(p) for p in density.parameters)],
        {"is_log": Attr(boolean, "return the logarithm of the density", False)},
        aliases=(f"random_pdf_{short}",),
        infer=_infer(name, density),
        onnx=Onnx(builder="density"),
    )(run)


for _short, _one in _TABLE.items():
    _declare(_short, _one)
