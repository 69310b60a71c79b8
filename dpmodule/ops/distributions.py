"""Drawing from a distribution with a generator, for numbers or tensors as parameters.

Every function takes memory of the wanted shape and type whose content is free, the generator, and the
parameters, which broadcast against it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
