"""Drawing from distributions, and their densities.

Every function takes memory of the wanted shape and type whose content is free, the generator, and the
parameters, which broadcast against it.
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
    """Draw one number from the gamma distribution of scale 1 for each shape parameter.

    Args:
        alpha: shape parameters, floating-point numbers; 0 gives 0, what is negative or not finite gives NaN.
        generator: where the numbers come from.
    Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. torch's own sampler
    takes a generator under a private name only.
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
    """Fill with numbers of [low, high)."""
    return out.uniform_(generator=gen).mul_(high - low).add_(low)


def normal(out: torch.Tensor, gen: Any, loc: Any, scale: Any) -> torch.Tensor:
    """Fill with normal numbers of mean `loc` and standard deviation `scale`."""
    return out.normal_(generator=gen).mul_(scale).add_(loc)


def exponential(out: torch.Tensor, gen: Any, lam: Any) -> torch.Tensor:
    """Fill with exponential numbers of rate `lam`."""
    return out.exponential_(generator=gen).div_(lam)


def gamma(out: torch.Tensor, gen: Any, alpha: Any, beta: Any) -> torch.Tensor:
    """Return gamma numbers of shape `alpha` and scale `beta`."""
    drawn: torch.Tensor = standard_gamma(out.zero_() + alpha, gen) * beta
    return drawn


def poisson(out: torch.Tensor, gen: Any, lam: Any) -> torch.Tensor:
    """Return Poisson numbers of mean `lam`."""
    return torch.poisson(out.zero_() + lam, generator=gen)


def negative_binomial(out: torch.Tensor, gen: Any, k: Any, p: Any) -> torch.Tensor:
    """Return the number of successes before the k-th failure, a failure having chance `p`."""
    return torch.poisson(standard_gamma(out.zero_() + k, gen) * ((1 - p) / p), generator=gen)


def generalized_negative_binomial(out: torch.Tensor, gen: Any, mu: Any, alpha: Any) -> torch.Tensor:
    """Return counts of mean `mu` and variance ``mu + alpha * mu ** 2``; alpha 0 is Poisson."""
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
    """A row of the table.

    Attributes:
        log: ``(sample, *parameters) -> logarithm of the density``.
        parameters: their names.
        of: what the sample is distributed as, for the docstring.
        discrete: the sample has no gradient.
        vector: the last axis of sample and parameters is one draw.
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
    ways = (x + limit).lgamma() - (x + 1).lgamma() - limit.lgamma()
    return ways + limit * chance.log() + x * torch.log1p(-chance)


def _generalized(x: T, mean: T, dispersion: T) -> T:
    return _negative_binomial(x, 1 / dispersion, 1 / (mean * dispersion + 1))


def _dirichlet(x: T, alpha: T) -> T:
    normalizer = alpha.sum(-1).lgamma() - alpha.lgamma().sum(-1)
    return ((alpha - 1) * x.log()).sum(-1) + normalizer


_TABLE = {
    "uniform": _Density(
        _uniform, ("low", "high"), "uniform over [low, high); that it lies there is not checked", True
    ),
    "normal": _Density(_normal, ("mu", "sigma"), "normal with mean mu and standard deviation sigma"),
    "gamma": _Density(_gamma, ("alpha", "beta"), "gamma with shape alpha and rate beta"),
    "exponential": _Density(_exponential, ("lam",), "exponential with rate lam"),
    "poisson": _Density(_poisson, ("lam",), "Poisson with mean lam", True),
    "negative_binomial": _Density(
        _negative_binomial, ("k", "p"), "negative binomial: successes before k failures of chance p", True
    ),
    "generalized_negative_binomial": _Density(
        _generalized, ("mu", "alpha"), "negative binomial of mean mu and variance mu + alpha * mu ** 2", True
    ),
    "dirichlet": _Density(_dirichlet, ("alpha",), "Dirichlet with concentrations alpha", vector=True),
}
"""Short name of the operator: its density."""


def _infer(name: str, one: _Density) -> Callable[..., Shapes]:
    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        common: Shape = None
        for shape in ins[1:]:
            common = unify(common, shape, f"parameters of {name}")
        sample = ins[0]
        if not one.vector:
            sample = unify(sample, outs[0], f"sample and the result of {name}")
        if sample is not None and common is not None:
            _check(name, one, sample, common)
        out = sample[:-1] if one.vector and sample is not None else sample
        return [sample, *[common] * (len(ins) - 1)], [output_shape(outs[0], out)]

    return infer


def _check(name: str, one: _Density, sample: tuple[int, ...], parameter: tuple[int, ...]) -> None:
    """Refuse parameters whose axes are not the first ones of the sample."""
    first, kept = sample, parameter
    ends = True
    if one.vector:
        ends = sample[-1] == parameter[-1] or 0 in (sample[-1], parameter[-1])
        first, kept = sample[:-1], parameter[:-1]
    if not ends or len(first) < len(kept) or any(x != y and x and y for x, y in zip(first, kept)):
        raise ShapeError(
            f"{name}: sample has shape {sample} and the parameters {parameter}, expected the parameters' axes first"
        )


def _expand_parameter(one: _Density, sample: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Give a parameter an axis of one for each of the sample's that it lacks."""
    more = sample.dim() - parameter.dim()
    at = parameter.dim() - one.vector
    return parameter.reshape(*parameter.shape[:at], *[1] * more, *parameter.shape[at:])


def _declare(short: str, one: _Density) -> None:
    name = f"_random_pdf_{short}"

    def run(a: Any, env: Env, sample: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        for each in parameters:
            _check(name, one, tuple(sample.shape), tuple(each.shape))
        drawn = sample.detach() if one.discrete else sample
        found = one.log(drawn, *(_expand_parameter(one, drawn, each) for each in parameters))
        return found if a.is_log else found.exp()

    axes = "(parameters..., drawn..., K)" if one.vector else "(parameters..., drawn...)"
    listed = ", ".join(one.parameters)
    run.__doc__ = (
        f"Return the probability density of samples: {one.of}.\n\n"
        f"Shape:\n    sample: {axes}{'; no gradient' if one.discrete else ''}.\n"
        f"    {listed}: the first axes of `sample`{', and its last' if one.vector else ''}.\n"
        f"    returns: {'(parameters..., drawn...)' if one.vector else 'as `sample`'}.\n\n"
        f"Source: MXNet 1.9.1 `{name}`.\n"
    )
    op(
        name,
        [arg("sample"), *(arg(p) for p in one.parameters)],
        {"is_log": Attr(boolean, "return the logarithm of the density", False)},
        aliases=(f"random_pdf_{short}",),
        infer=_infer(name, one),
        onnx=Onnx(builder="density"),
    )(run)


for _short, _one in _TABLE.items():
    _declare(_short, _one)
