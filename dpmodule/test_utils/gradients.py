"""Gradients by finite differences, and a symbol's gradients checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import symbol
from ..base import ArgumentError
from ..context import Context, current_context
from ..executor import Executor
from ..ndarray import NDArray, array, cast_storage, zeros
from ..symbol import Symbol
from .arguments import Values, check_dtype, named_arguments, named_states
from .symbols import check_requested
from .tolerance import Tolerance, default_numeric_eps, get_tolerance

Array = np.ndarray[Any, Any]
_PROJECTION = "__random_proj"


def _write(target: NDArray, values: Array, dtype: Any) -> None:
    dense = array(values, ctx=target.context, dtype=dtype)
    target[:] = dense if target.stype == "default" else cast_storage(dense, target.stype)


def _total(executor: Executor, states: Mapping[str, Any], is_train: bool, dtype: Any) -> float:
    """Return the sum of the first output, starting from the given states."""
    for name, value in states.items():
        _write(executor.aux_dict[name], np.asarray(value), dtype)
    executor.forward(is_train=is_train)
    return float(executor.outputs[0].asnumpy().sum(dtype=np.float64))


def numeric_grad(
    executor: Executor,
    location: Mapping[str, Any],
    aux_states: Mapping[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, Array]:
    """Return the gradients of the sum of an executor's first output by central differences.

    Args:
        executor: computes the output; its arguments are left at `location`.
        location: the arguments' values by name, as NumPy arrays.
        aux_states: the auxiliary states to start each run from, by name.
        eps: distance between the two points of a difference.

    Returns:
        Arrays of `dtype` by name; zeros for arguments that are not of a floating-point type.
    """
    check_dtype(dtype, keep=False)
    values = {name: np.array(value, order="C") for name, value in location.items()}
    states = aux_states or {}
    for name, value in values.items():
        _write(executor.arg_dict[name], value, dtype)
    grads = {name: np.zeros(value.shape, dtype=dtype) for name, value in values.items()}
    for name, value in values.items():
        if value.dtype.kind != "f":
            continue
        flat, grad = value.reshape(-1), grads[name].reshape(-1)
        for i in range(flat.size):
            kept = flat[i]
            totals = []
            for step in (eps / 2, -eps / 2):
                flat[i] = kept + step
                _write(executor.arg_dict[name], value, dtype)
                totals.append(_total(executor, states, use_forward_train, dtype))
            flat[i] = kept
            grad[i] = (totals[0] - totals[1]) / eps
        _write(executor.arg_dict[name], value, dtype)
    return grads


def _requests(sym: Symbol, grad_nodes: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    if isinstance(grad_nodes, Mapping):
        return dict(grad_nodes)
    if grad_nodes is None or isinstance(grad_nodes, (list, tuple)):
        return dict.fromkeys(sym.list_arguments() if grad_nodes is None else grad_nodes, "write")
    raise ArgumentError(
        f"grad_nodes is {type(grad_nodes).__name__}, expected a list or dict of argument names"
    )


def _gradients(
    starts: Mapping[str, Array], stypes: Mapping[str, str] | None, ctx: Context, dtype: Any
) -> dict[str, NDArray]:
    """Return arrays to receive the gradients; sparse ones start empty, dense ones from random values."""
    grads = {name: array(start, ctx=ctx, dtype=dtype) for name, start in starts.items()}
    for name, stype in (stypes or {}).items():
        if name in grads and stype in ("row_sparse", "csr"):
            grads[name] = zeros(grads[name].shape, ctx=ctx, dtype=grads[name].dtype, stype=stype)
    return grads


def check_numeric_gradient(
    sym: Symbol,
    location: Values,
    aux_states: Values | None = None,
    numeric_eps: Tolerance = None,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    grad_nodes: Sequence[str] | Mapping[str, str] | None = None,
    use_forward_train: bool = True,
    ctx: Context | None = None,
    grad_stype_dict: Mapping[str, str] | None = None,
    dtype: Any = np.float32,
) -> None:
    """Check a symbol's gradients against finite differences.

    The output is multiplied by random weights in [0.1, 1.1) and summed, so that all its elements count.

    Args:
        sym: a symbol with one output.
        location: the arguments' values, in order or by name.
        aux_states: the auxiliary states' values, in order or by name.
        numeric_eps: distance between the two points of a difference, see `default_numeric_eps`.
        rtol: relative tolerance, see `assert_almost_equal`.
        grad_nodes: names of the arguments to check, or "write", "add" or "null" by name; all by default.
        use_forward_train: take the differences with runs as in training.
        ctx: where to run.
        grad_stype_dict: storage types of gradients by name.

    Raises:
        AssertionError: a gradient differs.
        ArgumentError: the step is too small for `dtype`, or an argument does not fit.

    Example:
        >>> check_numeric_gradient(mx.sym.sin(mx.sym.Variable("x")), [np.array([0.5, 1.5])])
    """
    check_dtype(dtype, keep=False)
    where = ctx or current_context()
    values = named_arguments(sym, location, where, dtype)
    states = named_states(sym, aux_states, where, dtype)
    points = {name: value.asnumpy() for name, value in values.items()}
    state_points = None if states is None else {name: value.asnumpy() for name, value in states.items()}
    requests = _requests(sym, grad_nodes)

    _, shapes, _ = sym.infer_shape(**{name: value.shape for name, value in values.items()})
    weights = np.random.rand(*shapes[0]) + 0.1  # small weights would lose the output's digits
    loss = symbol.make_loss(sym * symbol.Variable(_PROJECTION))
    values[_PROJECTION] = array(weights, ctx=where, dtype=dtype)
    starts = {name: np.random.normal(0, 0.01, size=values[name].shape) for name in [*requests, _PROJECTION]}
    grads = _gradients(starts, grad_stype_dict, where, dtype)
    executor = loss.bind(where, args=values, args_grad=grads, grad_req=requests, aux_states=states)
    executor.forward(is_train=True)
    eps = get_tolerance(executor.outputs[0], numeric_eps, default_numeric_eps())
    if eps < 1e-5 and dtype != np.float64:
        raise ArgumentError(f"numeric_eps is {eps}, too small for {np.dtype(dtype).name}; use at least 1e-5")
    executor.backward()
    kept = {name: grads[name].copy() for name in requests}
    numeric = numeric_grad(executor, points, state_points, eps, use_forward_train, dtype)
    for name, request in requests.items():
        check_requested(name, request, numeric[name], kept[name], starts[name], rtol, atol, label="NUMERICAL")
