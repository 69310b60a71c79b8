"""Outputs, gradients and speed of a symbol on given values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import ArgumentError
from ..context import Context, current_context
from ..ndarray import NDArray, array, empty, waitall
from ..symbol import Symbol
from .compare import Tolerance, assert_almost_equal
from .sparse import create_sparse_array

Values = Mapping[str, Any] | Sequence[Any]


def check_dtype(dtype: Any, *, keep: bool = True) -> None:
    """Raise unless `dtype` is float16, float32, float64 or, with `keep`, "asnumpy"."""
    if (
        dtype in (np.float16, np.float32, np.float64)
        or keep
        and isinstance(dtype, str)
        and dtype == "asnumpy"
    ):
        return
    raise ArgumentError(
        f"dtype is {dtype!r}, expected numpy.float16, float32 or float64, or 'asnumpy' to keep it"
    )


def as_array(value: Any, ctx: Context | None, dtype: Any) -> NDArray:
    """Return `value` as an NDArray, with its own dtype if `dtype` is "asnumpy"."""
    kept = isinstance(dtype, str) and dtype == "asnumpy"
    return array(value, ctx=ctx, dtype=value.dtype if kept else dtype)


def _by_name(what: str, names: Sequence[str], given: Values) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return dict(zip(names, given))
    if set(given) != set(names):
        raise ArgumentError(f"{what} are {sorted(given)}, expected those of the symbol: {sorted(names)}")
    return dict(given)


def named_arguments(sym: Symbol, location: Values, ctx: Context | None, dtype: Any) -> dict[str, NDArray]:
    """Return the arguments' values by name, in the order of the names, as NDArrays."""
    given = _by_name("arguments", sym.list_arguments(), location)
    return {
        name: as_array(value, ctx, dtype) if isinstance(value, np.ndarray) else value
        for name, value in sorted(given.items())
    }


def named_states(
    sym: Symbol, aux_states: Values | None, ctx: Context | None, dtype: Any
) -> dict[str, NDArray] | None:
    """Return copies of the auxiliary states by name, or None."""
    if aux_states is None:
        return None
    given = _by_name("aux_states", sym.list_auxiliary_states(), aux_states)
    return {name: as_array(value, ctx, dtype) for name, value in given.items()}


def named_requests(sym: Symbol, grad_req: Any) -> dict[str, str]:
    """Return "write", "add" or "null" for each argument, from one request, a list or a dict."""
    if isinstance(grad_req, str):
        return dict.fromkeys(sym.list_arguments(), grad_req)
    if isinstance(grad_req, Mapping):
        return dict(grad_req)
    return dict(zip(sym.list_arguments(), grad_req))


def simple_forward(sym: Symbol, ctx: Context | None = None, is_train: bool = False, **inputs: Any) -> Any:
    """Run a symbol on NumPy arrays by name and return NumPy arrays: one, or a list of several.

    Args:
        sym: symbol to run.
        ctx: context of the run; None means the current context.
        is_train: True to run in training mode.
        **inputs: an array for each argument.

    Example:
        >>> simple_forward(mx.sym.Variable("x") * 2, x=np.array([1.0, 2.0]))
        array([2., 4.], dtype=float32)
    """
    where = ctx or current_context()
    executor = sym.bind(where, args={name: array(value, ctx=where) for name, value in inputs.items()})
    outputs = [output.asnumpy() for output in executor.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(
    sym: Symbol,
    location: Values,
    expected: Values,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Values | None = None,
    ctx: Context | None = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """Check a symbol's outputs.

    Args:
        sym: symbol to run.
        location: the arguments' values, in order or by name.
        expected: the outputs, in order or by name.
        rtol: relative tolerance, see `assert_almost_equal`.
        aux_states: the auxiliary states' values, in order or by name.
        ctx: context of the run.
        equal_nan: True to treat NaN as equal to NaN.
        dtype: element type of the arguments; "asnumpy" keeps that of the values.

    Returns:
        The outputs.

    Raises:
        AssertionError: an output is not as expected.

    Example:
        >>> product = mx.sym.Variable("a") * mx.sym.Variable("b")
        >>> found = check_symbolic_forward(product, [np.full((2,), 3.0), np.full((2,), 4.0)], [np.full((2,), 12.0)])
    """
    check_dtype(dtype)
    where = ctx or current_context()
    values = named_arguments(sym, location, where, dtype)
    states = named_states(sym, aux_states, where, dtype)
    wanted = [expected[name] for name in sym.list_outputs()] if isinstance(expected, Mapping) else expected
    grads = {name: empty(value.shape, ctx=where, dtype=value.dtype) for name, value in values.items()}
    executor = sym.bind(ctx=where, args=values, args_grad=grads, aux_states=states)
    executor.forward(is_train=False)
    for name, right, found in zip(sym.list_outputs(), wanted, executor.outputs):
        names = (f"EXPECTED_{name}", f"FORWARD_{name}")
        assert_almost_equal(right, found, rtol, atol, names, equal_nan=equal_nan)
    outputs: list[NDArray] = executor.outputs
    return outputs


def _gradient(
    name: str, start: Any, like: Any, ctx: Context, stypes: Mapping[str, str] | None, dtype: Any
) -> NDArray:
    """Return the array of a gradient, filled with `start` so that a missing write is detected."""
    stype = (stypes or {}).get(name)
    if stype not in (None, "default"):
        sparse: NDArray = create_sparse_array(start.shape, str(stype), density=0.0)
        return sparse
    kept = isinstance(dtype, str)
    return array(start, ctx=ctx, dtype=like.dtype if kept else dtype)


def _head_gradients(out_grads: Any, ctx: Context, dtype: Any) -> Any:
    def convert(value: Any) -> Any:
        return as_array(value, ctx, dtype) if isinstance(value, np.ndarray) else value

    if isinstance(out_grads, Mapping):
        return {name: convert(value) for name, value in out_grads.items()}
    if isinstance(out_grads, (list, tuple)):
        return [convert(value) for value in out_grads]
    if out_grads is None:
        return None
    raise ArgumentError(f"out_grads is {type(out_grads).__name__}, expected a list, a dict or None")


def check_requested(
    name: str,
    request: str,
    right: Any,
    found: NDArray,
    start: Any,
    rtol: Tolerance,
    atol: Tolerance,
    *,
    label: str,
    equal_nan: bool = False,
) -> None:
    """Check a gradient: the value for "write", the difference from `start` for "add", `start` for "null"."""
    names = (f"{label}_{name}", f"BACKWARD_{name}")
    if request == "write":
        assert_almost_equal(right, found, rtol, atol, names, equal_nan=equal_nan)
    elif request == "add":
        assert_almost_equal(right, found.asnumpy() - start, rtol, atol, names, equal_nan=equal_nan)
    elif request == "null":
        assert_almost_equal(start, found, rtol, atol, names, equal_nan=equal_nan)
    else:
        raise ArgumentError(f"grad_req of {name!r} is {request!r}, expected write, add or null")


def check_symbolic_backward(
    sym: Symbol,
    location: Values,
    out_grads: Any,
    expected: Values,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    aux_states: Values | None = None,
    grad_req: Any = "write",
    ctx: Context | None = None,
    grad_stypes: Mapping[str, str] | Sequence[str] | None = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> dict[str, NDArray]:
    """Check the gradients of a symbol's arguments.

    Args:
        sym: symbol to run.
        location: the arguments' values, in order or by name.
        out_grads: the gradients of the outputs, in order or by name; None for losses.
        expected: the gradients of the arguments, in order or by name; missing ones are not checked.
        rtol: relative tolerance, see `assert_almost_equal`.
        aux_states: the auxiliary states' values, in order or by name.
        grad_req: "write", "add" or "null", one for all, in order or by name. The gradients start with random
            values: for "add" the difference is checked, for "null" that they are unchanged.
        ctx: context of the run.
        grad_stypes: storage types of gradients, in order or by name.
        equal_nan: True to treat NaN as equal to NaN.
        dtype: element type of the arguments; "asnumpy" keeps that of the values.

    Returns:
        The gradients by name.

    Raises:
        AssertionError: a gradient is not as expected.
    """
    check_dtype(dtype)
    where = ctx or current_context()
    values = named_arguments(sym, location, where, dtype)
    states = named_states(sym, aux_states, where, dtype)
    named = expected if isinstance(expected, Mapping) else dict(zip(sym.list_arguments(), expected))
    wanted = {name: right if hasattr(right, "shape") else np.asarray(right) for name, right in named.items()}
    if isinstance(grad_stypes, Mapping):
        stypes = dict(grad_stypes)
    else:
        stypes = dict(zip(sym.list_arguments(), grad_stypes or ()))
    starts = {name: np.random.normal(size=right.shape) for name, right in sorted(wanted.items())}
    grads = {
        name: _gradient(name, start, wanted[name], where, stypes, dtype) for name, start in starts.items()
    }
    requests = named_requests(sym, grad_req)
    executor = sym.bind(ctx=where, args=values, args_grad=grads, aux_states=states, grad_req=requests)
    executor.forward(is_train=True)
    executor.backward(_head_gradients(out_grads, where, dtype))
    for name, right in wanted.items():
        check_requested(
            name,
            requests[name],
            right,
            grads[name],
            starts[name],
            rtol,
            atol,
            label="EXPECTED",
            equal_nan=equal_nan,
        )
    return grads


def check_speed(
    sym: Symbol,
    location: Mapping[str, Any] | None = None,
    ctx: Context | None = None,
    N: int = 20,
    grad_req: Any = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """Return the mean time of a run in seconds, after one warm-up run.

    Args:
        sym: symbol to run.
        location: the arguments' values by name; random by default, with the shapes in `kwargs`.
        ctx: context of the run.
        grad_req: gradients to compute, as in `simple_bind`; "write" by default.
        typ: "whole" for forward and backward, "forward" for forward only.
        **kwargs: shapes for `simple_bind` if `location` is None.

    Raises:
        ArgumentError: `typ` is neither.
    """
    if typ not in ("whole", "forward"):
        raise ArgumentError(f'typ is {typ!r}, expected "whole" or "forward"')
    shapes = kwargs if location is None else {name: value.shape for name, value in location.items()}
    executor = sym.simple_bind(grad_req=grad_req or "write", ctx=ctx or current_context(), **shapes)
    if location is None:
        location = {name: np.random.normal(size=a.shape) for name, a in executor.arg_dict.items()}
    for name, value in location.items():
        executor.arg_dict[name][:] = value.astype(executor.arg_dict[name].dtype)

    def once() -> None:
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(out_grads=executor.outputs)

    once()
    waitall()
    start = time.perf_counter()
    for _ in range(N):
        once()
    waitall()
    return (time.perf_counter() - start) / N
