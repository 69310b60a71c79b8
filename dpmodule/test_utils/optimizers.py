"""Two optimizers that are meant to do the same."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError
from ..context import current_context
from ..ndarray import NDArray
from ..optimizer import Optimizer
from ..random import uniform
from .compare import assert_almost_equal, compare_ndarray_tuple
from .sparse import rand_ndarray


def _pair(what: str, shape: Sequence[int], stype: str, dtype: Any, density: float | None) -> tuple[Any, Any]:
    """Return the same random values twice: dense, and stored as `stype`."""
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
    """Update one tensor after the other with `opt1`, all in one call with `opt2`."""
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
    """Check that two optimizers make the same of one weight and gradient.

    Args:
        opt2: gets arrays stored as `w_stype` and `g_stype` say.
        shape: shape of the weight; or a list of `ntensors` shapes, which `opt2` updates in one call.
        dtype: element type of weight and gradient.
        compare_states: compare the optimizers' states as well.
        ntensors: how many tensors a list of shapes stands for.

    Raises:
        AssertionError: weights or states differ after the step.
        ArgumentError: `shape` and `ntensors` do not fit, or an unknown storage type.
    """
    if isinstance(shape, list):
        if len(shape) != ntensors:
            raise ArgumentError(f"ntensors is {ntensors}, but {len(shape)} shapes are given")
        _compare_list(opt1, opt2, shape, dtype, (rtol, atol), compare_states)
        return
    if ntensors != 1:
        raise ArgumentError(f"ntensors is {ntensors}, expected 1 for a single shape; give a list of shapes")
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
