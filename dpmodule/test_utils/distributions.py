"""Statistical tests of random number generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError

Generator = Callable[[int], Any]


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Return `nbuckets` ranges of equal probability, and those probabilities.

    Args:
        ppf: the quantile function: value below which a given share (0 to 1) of the distribution lies.
        nbuckets: how many ranges.

    Raises:
        ArgumentError: `nbuckets` is not positive.
    """
    if nbuckets <= 0:
        raise ArgumentError(f"nbuckets is {nbuckets}, expected at least 1")
    edges = [ppf(i / nbuckets) for i in range(nbuckets + 1)]
    return list(zip(edges[:-1], edges[1:])), [1.0 / nbuckets] * nbuckets


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Say whether the mean of samples lies within three standard errors of `mu`.

    Args:
        generator: gives as many independent samples as it is asked for.
        nsamples: how many samples to draw.
    """
    mean = np.mean(np.array(generator(nsamples)))
    return bool(abs(mean - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """Say whether the variance of normal samples lies within three standard errors of ``sigma ** 2``.

    Args:
        generator: draws as many numbers as it is told.
        sigma: the standard deviation that is right.
        nsamples: how many numbers are drawn.
    """
    variance = np.var(np.array(generator(nsamples)), ddof=1)
    return bool(abs(variance - sigma**2) < 3 * np.sqrt(2 * sigma**4 / (nsamples - 1)))


def _host(samples: Any) -> Any:
    return samples.asnumpy() if hasattr(samples, "asnumpy") else np.asarray(samples)


def _counts(samples: Any, buckets: Sequence[Any]) -> Any:
    """Count the samples in each range [low, high), or equal to each value."""
    if not isinstance(buckets[0], (list, tuple)):
        return np.array([np.count_nonzero(samples == value) for value in buckets])
    edges = np.array(buckets, dtype=np.float64).reshape(-1)
    if np.any(np.diff(edges) < 0):
        raise ArgumentError("buckets overlap or are not in ascending order")
    places = np.searchsorted(edges, samples.reshape(-1), side="right")
    return np.bincount(places[places % 2 == 1] // 2, minlength=len(buckets))[: len(buckets)]


def chi_square_check(
    generator: Generator, buckets: list[Any], probs: Sequence[float], nsamples: int = 1000000
) -> tuple[float, Any, Any]:
    """Compare how often samples fall into buckets with how often they should (Pearson's test).

    Args:
        generator: gives as many independent samples as it is asked for, as an array or list.
        buckets: ascending ranges (low, high) that cover a continuous distribution, or the values of a
            discrete one.
        probs: the probability of each bucket, above 0.
        nsamples: how many samples to draw.

    Returns:
        The p value (a right generator gives one below 0.05 in one of twenty cases), how often each bucket
        was hit, and how often it was expected.

    Raises:
        ArgumentError: `buckets` and `probs` do not fit.
    """
    if not isinstance(buckets, list) or not buckets or len(buckets) != len(probs):
        raise ArgumentError(f"buckets must be a list with an entry for each of the {len(probs)} probs")
    observed = _counts(_host(generator(nsamples)), buckets)
    expected = nsamples * np.asarray(probs, dtype=np.float64)
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    half = torch.tensor([(len(buckets) - 1) / 2, statistic / 2], dtype=torch.float64)
    p = float(torch.special.gammaincc(half[0], half[1])) if len(buckets) > 1 else 1.0
    return p, observed, expected


def verify_generator(
    generator: Generator,
    buckets: list[Any],
    probs: Sequence[float],
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> list[float]:
    """Check a generator by repeated `chi_square_check`.

    Args:
        generator: gives as many independent samples as it is asked for.
        buckets: see `chi_square_check`.
        probs: the probability of each bucket.
        nsamples: samples for each test.
        success_rate: share of the tests that have to succeed.
        alpha: a test succeeds if its p value is above this.

    Returns:
        The p values.

    Raises:
        AssertionError: too few tests succeeded.
    """
    results = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    values = [result[0] for result in results]
    if sum(p > alpha for p in values) < nrepeat * success_rate:
        _, observed, expected = results[-1]
        raise AssertionError(
            f"the samples do not follow the distribution: p values {values}; "
            f"in the last test the buckets {buckets} hold {observed.tolist()}, expected {expected.tolist()}"
        )
    return values
