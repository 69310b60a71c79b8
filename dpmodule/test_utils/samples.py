"""Random shapes, arrays and matrices from NumPy's global generator, and statistical checks of generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.random as rnd
import torch

from ..base import ArgumentError
from ..ndarray import NDArray, arange, array, eye
from .compare import default_dtype

Array = np.ndarray[Any, Any]


def random_arrays(*shapes: tuple[int, ...]) -> Any:
    """Return a standard normal float32 array of each shape: the array itself for one shape, else a list.

    Args:
        *shapes: shape of each array.
    """
    arrays = [np.asarray(rnd.randn(*shape), dtype=default_dtype()) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(
    *shapes: tuple[int, ...], low: float = 0.0, high: float = 1.0, dtype: Any = np.float32
) -> list[Array]:
    """Return a list of arrays of the given shapes, uniform in [low, high).

    Args:
        *shapes: shape of each array.
        high: the upper bound.
    """
    return [rnd.uniform(low, high, size=shape).astype(dtype) for shape in shapes]


def random_sample(population: Sequence[Any], k: int) -> Any:
    """Return `k` different members of a list, in random order.

    Args:
        population: a list, which is not modified.
        k: number of members.

    Raises:
        ArgumentError: `k` exceeds the size of the list.
    """
    if not 0 <= k <= len(population):
        raise ArgumentError(f"k is {k}, expected 0 to {len(population)}, the size of the population")
    copy: Any = population[:]
    rnd.shuffle(copy)
    return copy[:k]


def rand_shape_nd(num_dim: int, dim: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a shape of `num_dim` axes of 1 to `dim` elements each (from 0 with `allow_zero_size`).

    Args:
        num_dim: number of axes.
        dim: maximum length of each.
        allow_zero_size: True to allow lengths of 0.
    """
    return tuple(rnd.randint(0 if allow_zero_size else 1, dim + 1, size=num_dim).tolist())


def _rand_shape(dims: Sequence[int], allow_zero_size: bool) -> tuple[int, ...]:
    return tuple(int(rnd.randint(0 if allow_zero_size else 1, dim + 1)) for dim in dims)


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> tuple[int, ...]:
    """Return a shape of two axes with at most `dim0` and `dim1` elements.

    Args:
        dim0: maximum length of the first axis.
        dim1: maximum length of the second axis.
        allow_zero_size: True to allow lengths of 0.
    """
    return _rand_shape((dim0, dim1), allow_zero_size)


def rand_shape_3d(
    dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False
) -> tuple[int, ...]:
    """Return a shape of three axes with at most `dim0`, `dim1` and `dim2` elements.

    Args:
        dim0: maximum length of the first axis.
        dim1: maximum length of the second axis.
        dim2: maximum length of the third axis.
        allow_zero_size: True to allow lengths of 0.
    """
    return _rand_shape((dim0, dim1, dim2), allow_zero_size)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[Any, Any]:
    """Return random integers x in [x_low, x_high) and y in [y_low, y_high), as int64.

    Args:
        x_high: exclusive upper bound of x.
        y_high: exclusive upper bound of y.
    """
    return rnd.randint(x_low, x_high, dtype=np.int64), rnd.randint(y_low, y_high, dtype=np.int64)


def np_reduce(dat: Array, axis: Any, keepdims: bool, numpy_reduce_func: Callable[..., Any]) -> Any:
    """Reduce over several axes with a function of one axis, such as ``np.sum`` or ``np.argmax``.

    Args:
        dat: array to reduce, of any shape.
        axis: an axis, several, or None for all.
        keepdims: True to keep the reduced axes with length 1.
        numpy_reduce_func: called as ``f(array, axis=i)``, the last axis first.
    """
    axes = [axis] if isinstance(axis, int) else list(range(dat.ndim) if axis is None else axis)
    reduced: Any = dat
    for one_axis in sorted(axes, reverse=True):
        reduced = numpy_reduce_func(reduced, axis=one_axis)
    if not keepdims:
        return reduced
    shape = list(dat.shape)
    for one_axis in axes:
        shape[one_axis] = 1
    return np.asarray(reduced).reshape(shape)


def collapse_sum_like(a: Array, shape: Sequence[int]) -> Array:
    """Sum `a` down to `shape`: the gradient of broadcasting from `shape` to ``a.shape``.

    Args:
        a: array to sum.
        shape: the shape of the result.

    Raises:
        ArgumentError: `shape` does not broadcast to ``a.shape``.
    """
    extra = a.ndim - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, a.shape[max(extra, 0) :])):
        raise ArgumentError(f"shape {tuple(shape)} does not broadcast to {a.shape}")
    if a.size == 0 or 0 in shape:
        return np.zeros(shape, dtype=a.dtype)
    axes = [*range(extra), *(extra + i for i, n in enumerate(shape) if n != a.shape[extra + i])]
    return np.asarray(np.sum(a, axis=tuple(axes))).reshape(shape)


def assign_each(the_input: Any, function: Callable[[Any], Any] | None) -> Array:
    """Return a float64 array of `function` of each element; a copy of the input if it is None.

    Args:
        the_input: numbers, of any shape.
        function: from a number to a number.
    """
    values = np.array(the_input)
    if function is None:
        return values
    return np.array([function(value) for value in values.flat], dtype=np.float64).reshape(values.shape)


def assign_each2(input1: Any, input2: Any, function: Callable[[Any, Any], Any] | None) -> Array:
    """Return a float64 array of `function` of each pair of elements; a copy of `input1` if it is None.

    Args:
        input1: numbers, of any shape.
        input2: numbers, of the same shape.

    Raises:
        ArgumentError: the shapes differ.
    """
    left, right = np.array(input1), np.array(input2)
    if function is None:
        return left
    if left.shape != right.shape:
        raise ArgumentError(f"input1 has shape {left.shape}, input2 {right.shape}; expected the same")
    pairs = [function(one, other) for one, other in zip(left.flat, right.flat)]
    return np.array(pairs, dtype=np.float64).reshape(left.shape)


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """Return the NDArray 0, 1, ... size - 1.

    Args:
        size: length of the result.
    """
    return arange(0, size, dtype=dtype)


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """Return an NDArray whose row i is filled with i.

    Args:
        rows: number of rows.
        columns: number of columns.
    """
    column = arange(0, rows, dtype=dtype).reshape((rows, 1))
    return column.broadcast_to((rows, columns))


def get_identity_mat(size: int) -> NDArray:
    """Return the identity matrix as a float32 NDArray."""
    return eye(size)


def get_identity_mat_batch(size: int) -> NDArray:
    """Return two identity matrices in an NDArray of shape (2, size, size)."""
    return array(np.stack([np.eye(size, dtype=np.float32)] * 2))


def new_orthonormal_matrix_2d(n: int) -> Array:
    """Return a random (n, n) matrix with orthonormal columns."""
    return np.linalg.qr(rnd.randn(n, n))[0]


def new_matrix_with_real_eigvals_2d(n: int) -> Array:
    """Return a random (n, n) matrix with real eigenvalues in (-10, 10) and well-conditioned eigenvectors."""
    scaled = new_orthonormal_matrix_2d(n) * rnd.uniform(0.5, 1.0, n)  # condition number at most 2
    return np.linalg.inv(scaled) @ np.diag(rnd.uniform(-10.0, 10.0, n)) @ scaled


def new_sym_matrix_with_real_eigvals_2d(n: int) -> Array:
    """Return a random symmetric (n, n) matrix with eigenvalues in (-10, 10)."""
    vectors = new_orthonormal_matrix_2d(n)
    return np.asarray((vectors.T * rnd.uniform(-10.0, 10.0, n)) @ vectors)


def _batch(make: Callable[[int], Array], shape: Sequence[int]) -> Array:
    count = int(np.prod(shape[:-2]))
    return np.array([make(shape[-1]) for _ in range(count)]).reshape(shape)


def new_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> Array:
    """Return an array of `shape` (..., n, n) of matrices of `new_matrix_with_real_eigvals_2d`.

    Args:
        shape: the last two lengths are equal.
    """
    return _batch(new_matrix_with_real_eigvals_2d, shape)


def new_sym_matrix_with_real_eigvals_nd(shape: Sequence[int]) -> Array:
    """Return an array of `shape` (..., n, n) of matrices of `new_sym_matrix_with_real_eigvals_2d`.

    Args:
        shape: the last two lengths are equal.
    """
    return _batch(new_sym_matrix_with_real_eigvals_2d, shape)


Generator = Callable[[int], Any]


def gen_buckets_probs_with_ppf(
    ppf: Callable[[float], float], nbuckets: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Return `nbuckets` ranges of equal probability, and those probabilities.

    Args:
        ppf: quantile function (inverse of the cumulative distribution function).
        nbuckets: number of ranges.

    Raises:
        ArgumentError: `nbuckets` is not positive.
    """
    if nbuckets <= 0:
        raise ArgumentError(f"nbuckets is {nbuckets}, expected at least 1")
    edges = [ppf(i / nbuckets) for i in range(nbuckets + 1)]
    return list(zip(edges[:-1], edges[1:])), [1.0 / nbuckets] * nbuckets


def mean_check(generator: Generator, mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Return True if the mean of samples is within three standard errors of `mu`.

    Args:
        generator: returns the requested number of independent samples.
        nsamples: number of samples to draw.
    """
    mean = np.mean(np.array(generator(nsamples)))
    return bool(abs(mean - mu) < 3 * sigma / np.sqrt(nsamples))


def var_check(generator: Generator, sigma: float, nsamples: int = 1000000) -> bool:
    """Return True if the variance of normal samples is within three standard errors of ``sigma ** 2``.

    Args:
        generator: returns the requested number of samples.
        sigma: the expected standard deviation.
        nsamples: number of samples to draw.
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
    """Compare the counts of samples in buckets with the expected counts (Pearson's test).

    Args:
        generator: returns the requested number of independent samples, as an array or list.
        buckets: ascending ranges (low, high) that cover a continuous distribution, or the values of a
            discrete one.
        probs: the probability of each bucket, above 0.
        nsamples: number of samples to draw.

    Returns:
        The p value (below 0.05 in one of twenty cases for a correct generator), the counts of the buckets, and the
        expected counts.

    Raises:
        ArgumentError: `buckets` and `probs` do not match.
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
        generator: returns the requested number of independent samples.
        buckets: see `chi_square_check`.
        probs: the probability of each bucket.
        nsamples: number of samples of each test.
        success_rate: fraction of the tests that must succeed.
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
