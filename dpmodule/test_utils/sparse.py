"""Random arrays of every storage type, and comparison of optimizers on them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.random as rnd

from ..base import ArgumentError
from ..context import Context, current_context
from ..ndarray import NDArray, array
from ..ndarray.sparse import CSRNDArray, RowSparseNDArray, csr_matrix, row_sparse_array, zeros
from ..optimizer import Optimizer
from ..random import uniform
from .compare import assert_almost_equal, compare_ndarray_tuple, default_dtype
from .samples import assign_each, random_arrays

Modifier = Callable[[Any], Any]


def shuffle_csr_column_indices(csr: Any) -> None:
    """Shuffle the column numbers within each row of a CSR matrix in place.

    Args:
        csr: object with NumPy arrays `indptr` and `indices`, such as a scipy matrix.
    """
    for start, end in zip(csr.indptr[:-1], csr.indptr[1:]):
        rnd.shuffle(csr.indices[start:end])


def _check_csr(shape: Sequence[int], density: float) -> None:
    if len(shape) != 2 or min(shape) <= 0:
        raise ArgumentError(
            f"shape is {tuple(shape)}, expected two axes with at least one element each for csr"
        )
    if not 0 <= density <= 1:
        raise ArgumentError(f"density is {density}, expected 0 to 1")


def _uniform_csr(
    shape: Sequence[int], density: float, dtype: Any, data_init: float | None, shuffled: bool, ctx: Context
) -> CSRNDArray:
    """Return a matrix with a fraction `density` of its elements, selected and drawn uniformly in [0, 1)."""
    rows, columns = shape
    count = int(round(rows * columns * density))
    flat = np.sort(rnd.choice(rows * columns, size=count, replace=False))
    values = (rnd.rand(count) if data_init is None else np.full(count, data_init)).astype(dtype)
    indptr = np.searchsorted(flat, np.arange(rows + 1) * columns)
    indices = flat % columns
    if shuffled:
        for start, end in zip(indptr[:-1], indptr[1:]):
            rnd.shuffle(indices[start:end])
    return csr_matrix((values, indices, indptr), shape=(rows, columns), ctx=ctx, dtype=dtype)


def _powerlaw_rows(rows: int, columns: int, count: int) -> list[int]:
    """Return the number of elements of each row: one each first, then up to twice as many from row to row."""
    lengths = [1 if row < count else 0 for row in range(rows)]
    left = count - sum(lengths)
    width = 2
    for row in range(rows):
        more = max(0, min(min(width, columns) - 1, left))
        lengths[row] += more
        left -= more
        width *= 2
    if left > 0:
        raise ArgumentError(f"{count} elements do not fit a power law over shape ({rows}, {columns})")
    return lengths


def _powerlaw_csr(shape: Sequence[int], density: float, dtype: Any, ctx: Context) -> CSRNDArray:
    """Return a matrix whose number of elements doubles from row to row."""
    rows, columns = shape
    count = int(rows * columns * density)
    if count < 2 * rows:
        raise ArgumentError(
            f"density {density} gives {count} elements for shape ({rows}, {columns}); "
            f'distribution="powerlaw" needs at least two for each row'
        )
    lengths = _powerlaw_rows(rows, columns, count)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([np.arange(length) for length in lengths])
    values = 1 + rnd.uniform(0.001, 2, size=count)
    return csr_matrix((values.astype(dtype), indices, indptr), shape=(rows, columns), ctx=ctx, dtype=dtype)


def _row_sparse(
    shape: Sequence[int],
    density: float,
    dtype: Any,
    data_init: float | None,
    rsp_indices: Any,
    modifier_func: Modifier | None,
    ctx: Context,
) -> tuple[RowSparseNDArray, tuple[Any, Any]]:
    """Return an array with random rows at the given or random positions, and these values and positions."""
    positions = (
        np.flatnonzero(rnd.rand(shape[0]) < density) if rsp_indices is None else np.asarray(rsp_indices)
    )
    if len(positions) > shape[0]:
        raise ArgumentError(f"rsp_indices names {len(positions)} rows, the array has {shape[0]}")
    if len(positions) == 0:
        empty = zeros("row_sparse", tuple(shape), ctx=ctx, dtype=dtype)
        if not isinstance(empty, RowSparseNDArray):
            raise TypeError(f"zeros made {type(empty).__name__}, expected RowSparseNDArray")
        return empty, (np.array([], dtype=dtype), np.array([]))
    values = rnd.rand(len(positions), *shape[1:]).astype(dtype)
    if data_init is not None:
        values.fill(data_init)
    if modifier_func is not None:
        values = assign_each(values, modifier_func)
    made = row_sparse_array((values, positions), shape=tuple(shape), ctx=ctx, dtype=dtype)
    return made, (values, positions)


def rand_sparse_ndarray(
    shape: Sequence[int],
    stype: str,
    density: float | None = None,
    dtype: Any = None,
    distribution: str | None = None,
    data_init: float | None = None,
    rsp_indices: Any = None,
    modifier_func: Modifier | None = None,
    shuffle_csr_indices: bool = False,
    ctx: Context | None = None,
) -> tuple[Any, tuple[Any, ...]]:
    """Return a random sparse array and its parts.

    Args:
        shape: shape of the array; two axes for "csr".
        stype: "row_sparse" or "csr".
        density: fraction of rows or elements that are stored, 0 to 1; random by default.
        dtype: element type, float32 by default.
        distribution: "uniform", or for "csr" also "powerlaw": each row has twice as many elements as the one before.
        data_init: value of every stored element, instead of random ones in [0, 1).
        rsp_indices: the stored rows, for "row_sparse".
        modifier_func: called on each value of a "row_sparse" array.
        shuffle_csr_indices: True to shuffle the columns within a row.
        ctx: context of the array.

    Returns:
        The array with (values, row numbers) as NumPy arrays for "row_sparse", with its own
        (indptr, indices, data) for "csr".

    Raises:
        ArgumentError: the storage type or distribution is unknown, or the density does not match.
    """
    where = ctx or current_context()
    share = float(rnd.rand()) if density is None else density
    element_type = default_dtype() if dtype is None else dtype
    spread = distribution or "uniform"
    if stype == "row_sparse" and spread == "uniform":
        return _row_sparse(shape, share, element_type, data_init, rsp_indices, modifier_func, where)
    if stype == "csr" and spread in ("uniform", "powerlaw"):
        _check_csr(shape, share)
        if spread == "uniform":
            csr = _uniform_csr(shape, share, element_type, data_init, shuffle_csr_indices, where)
        else:
            csr = _powerlaw_csr(shape, share, element_type, where)
        return csr, (csr.indptr, csr.indices, csr.data)
    raise ArgumentError(
        f"stype {stype!r} with distribution {spread!r}: expected row_sparse or csr with uniform, or csr with powerlaw"
    )


def rand_ndarray(
    shape: Sequence[int],
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    modifier_func: Modifier | None = None,
    shuffle_csr_indices: bool = False,
    distribution: str | None = None,
    ctx: Context | None = None,
) -> NDArray:
    """Return a random array: standard normal if dense, else as `rand_sparse_ndarray`.

    Args:
        shape: shape of the array; two axes for "csr".
        stype: "default", "row_sparse" or "csr".
        density: fraction of rows or elements that are stored, 0 to 1; random by default.
        dtype: element type, float32 by default.
        modifier_func: called on each value of a "row_sparse" array.
        shuffle_csr_indices: True to shuffle the columns within a row.
        distribution: "uniform", or for "csr" also "powerlaw": each row has twice as many elements as the one before.
        ctx: context of the array.
    """
    if stype == "default":
        return array(random_arrays(tuple(shape)), ctx=ctx or current_context(), dtype=dtype)
    sparse_array: NDArray = rand_sparse_ndarray(
        shape,
        stype,
        density=density,
        dtype=dtype,
        distribution=distribution,
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
        ctx=ctx,
    )[0]
    return sparse_array


def create_sparse_array(
    shape: Sequence[int],
    stype: str,
    data_init: float | None = None,
    rsp_indices: Any = None,
    dtype: Any = None,
    modifier_func: Modifier | None = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> Any:
    """Return a random sparse array like `rand_sparse_ndarray`, with sorted row numbers.

    Args:
        shape: shape of the array; two axes for "csr".
        stype: "row_sparse" or "csr".
        data_init: value of every stored element, instead of random ones in [0, 1).
        rsp_indices: the stored rows, for "row_sparse".
        dtype: element type, float32 by default.
        modifier_func: called on each value of a "row_sparse" array.
        density: fraction of rows or elements that are stored, 0 to 1.
        shuffle_csr_indices: True to shuffle the columns within a row.
    """
    rows = np.sort(np.asarray(rsp_indices)) if stype == "row_sparse" and rsp_indices is not None else None
    return rand_sparse_ndarray(
        shape,
        stype,
        density=density,
        dtype=dtype,
        data_init=data_init,
        rsp_indices=rows,
        modifier_func=modifier_func,
        shuffle_csr_indices=shuffle_csr_indices,
    )[0]


def create_sparse_array_zd(
    shape: Sequence[int],
    stype: str,
    density: float,
    data_init: float | None = None,
    rsp_indices: Any = None,
    dtype: Any = None,
    modifier_func: Modifier | None = None,
    shuffle_csr_indices: bool = False,
) -> Any:
    """Return a random sparse array; a "row_sparse" one has only the rows of `rsp_indices`.

    Args:
        shape: shape of the array; two axes for "csr".
        stype: "row_sparse" or "csr".
        density: fraction of rows or elements that are stored, 0 to 1.
        data_init: value of every stored element, instead of random ones in [0, 1).
        rsp_indices: the stored rows, for "row_sparse".
        dtype: element type, float32 by default.
        modifier_func: called on each value of a "row_sparse" array.
        shuffle_csr_indices: True to shuffle the columns within a row.
    """
    return create_sparse_array(
        shape,
        stype,
        data_init=data_init,
        rsp_indices=rsp_indices,
        dtype=dtype,
        modifier_func=modifier_func,
        density=0.0 if stype == "row_sparse" else density,
        shuffle_csr_indices=shuffle_csr_indices,
    )


def _pair(what: str, shape: Sequence[int], stype: str, dtype: Any, density: float | None) -> tuple[Any, Any]:
    """Return the same random values twice: dense, and with storage type `stype`."""
    if stype == "default":
        second: NDArray = uniform(shape=shape, ctx=current_context(), dtype=dtype)
        return second.copy(), second
    if stype not in ("row_sparse", "csr"):
        raise ArgumentError(f"{what} is {stype!r}, expected default, row_sparse or csr")
    second = rand_ndarray(shape, stype, density=density, dtype=dtype)
    return second.copy().tostype("default"), second


def _compare_list(
    opt1: Optimizer,
    opt2: Optimizer,
    shapes: Sequence[Any],
    dtype: Any,
    tolerance: tuple[float, float],
    states: bool,
) -> None:
    """Update the tensors one by one with `opt1`, and in one call with `opt2`."""
    ctx = current_context()
    weights1 = [uniform(shape=shape, ctx=ctx, dtype=dtype) for shape in shapes]
    grads1 = [uniform(shape=shape, ctx=ctx, dtype=dtype) for shape in shapes]
    weights2, grads2 = copy.deepcopy(weights1), copy.deepcopy(grads1)
    states2 = [opt2.create_state_multi_precision(0, weight) for weight in weights2]
    lists: tuple[Any, ...] = (list(range(len(shapes))), weights2, grads2, states2)
    opt2.update_multi_precision(*lists)
    for i, weight in enumerate(weights1):
        state1 = opt1.create_state_multi_precision(i, weight)
        opt1.update_multi_precision(i, weight, grads1[i], state1)
        if states:
            compare_ndarray_tuple(state1, states2[i], *tolerance)
        compare_ndarray_tuple(weight, weights2[i], *tolerance)


def compare_optimizer(
    opt1: Optimizer,
    opt2: Optimizer,
    shape: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """Check that two optimizers compute the same update.

    Args:
        opt2: runs on arrays of the storage types `w_stype` and `g_stype`.
        shape: shape of the weight; or a list of `ntensors` shapes, which `opt2` updates in one call.
        dtype: element type of weight and gradient.
        compare_states: True to also compare the optimizers' states.
        ntensors: number of tensors that a list of shapes describes.

    Raises:
        AssertionError: weights or states differ after the step.
        ArgumentError: `shape` and `ntensors` do not match, or the storage type is unknown.
    """
    if isinstance(shape, list):
        if len(shape) != ntensors:
            raise ArgumentError(f"ntensors is {ntensors}, but {len(shape)} shapes were passed")
        _compare_list(opt1, opt2, shape, dtype, (rtol, atol), compare_states)
        return
    if ntensors != 1:
        raise ArgumentError(f"ntensors is {ntensors}, expected 1 for a single shape; pass a list of shapes")
    weight1, weight2 = _pair("w_stype", shape, w_stype, dtype, 1)
    grad1, grad2 = _pair("g_stype", shape, g_stype, dtype, None)
    state1 = opt1.create_state_multi_precision(0, weight1)
    state2 = opt2.create_state_multi_precision(0, weight2)
    if compare_states:
        compare_ndarray_tuple(state1, state2)
    opt1.update_multi_precision(0, weight1, grad1, state1)
    opt2.update_multi_precision(0, weight2, grad2, state2)
    if compare_states:
        compare_ndarray_tuple(state1, state2, rtol=rtol, atol=atol)
    assert_almost_equal(weight1, weight2, rtol=rtol, atol=atol)
