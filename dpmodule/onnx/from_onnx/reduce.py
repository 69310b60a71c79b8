"""Sums, means and positions along axes; softmax."""

from __future__ import annotations

from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import arith, as_scalar, cast, normal, reshape, unary
from .problems import Refused
from .value import OnnxValue

_PLAIN = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


def reduced(b: GraphBuilder, name: str, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    """Apply a reduction along axes."""
    if x.is_scalar or not axes:
        return x
    is_whole = len(axes) == x.rank and not keep
    made = b(name, x, axis=tuple(axes), keepdims=keep)
    return as_scalar(made, is_whole)


def _axes(c: NodeCall) -> list[int] | None:
    """Return the axes to reduce, None if nothing is to be reduced."""
    given = c.fixed_ints("axes", 1)
    if not given:
        return None if c.attrs.get("noop_with_empty_axes") else list(range(c.x.rank))
    return sorted({normal(a, c.x.rank) for a in given})


def _reduce(c: NodeCall) -> OnnxValue:
    axes, keep, x, b = _axes(c), bool(c.attrs["keepdims"]), c.x, c.b
    if c.kind in ("ReduceL1", "ReduceL2", "ReduceSumSquare"):
        x = unary(b, "abs" if c.kind == "ReduceL1" else "square", x)
    if c.kind == "ReduceLogSumExp" and axes is not None:
        return _log_sum_exp(b, x, axes, keep)
    found = x if axes is None else reduced(b, _PLAIN.get(c.kind, "sum"), _summable(b, x), axes, keep)
    if c.kind == "ReduceL2":
        return unary(b, "sqrt", found)
    return unary(b, "log", found) if c.kind == "ReduceLogSum" else cast(b, found, x.dtype)


def _summable(b: GraphBuilder, x: OnnxValue) -> OnnxValue:
    return cast(b, x, "int64") if x.dtype == "bool" else x


def _log_sum_exp(b: GraphBuilder, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    highest = b("stop_gradient", reduced(b, "max", x, axes, True))
    total = reduced(b, "sum", unary(b, "exp", arith(b, "minus", x, highest)), axes, True)
    found = arith(b, "plus", unary(b, "log", total), highest)
    if keep or x.is_scalar:
        return found
    shapes = tuple(tuple(d for i, d in enumerate(s) if i not in axes) for s in found.shapes)
    return reshape(b, found, shapes)


def _arg(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    axis, keep = normal(c.attrs["axis"], x.rank), bool(c.attrs["keepdims"])
    name = "argmax" if c.kind == "ArgMax" else "argmin"
    source = b("reverse", x, axis=axis) if c.attrs.get("select_last_index") else x
    if x.dtype in ("float16", "bfloat16", "int8", "uint8", "bool"):
        source = cast(
            b, source, "float32"
        )  # positions come in the data's type, which may be too small for them
    found = as_scalar(cast(b, b(name, source, axis=axis, keepdims=keep), "int64"), x.rank == 1 and not keep)
    if c.attrs.get("select_last_index"):
        size = x.size(axis)
        if size is None:
            raise Refused("select_last_index along an axis whose length is open")
        found = arith(b, "rminus", found, float(size - 1))
    return found


def _softmax(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    name = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": ""}[c.kind]
    axis = normal(c.attrs["axis"], x.rank)
    if c.since >= 13 or axis == x.rank - 1:
        return _soft(b, name, x, axis)
    flat = reshape(b, x, tuple((*s[:axis], _product(s[axis:])) for s in x.shapes))
    found = _soft(b, name, flat, axis)
    return b("reshape_like", found, x)


def _product(dims: tuple[int, ...]) -> int:
    total = 1
    for d in dims:
        total *= d
    return total


def _soft(b: GraphBuilder, name: str, x: OnnxValue, axis: int) -> OnnxValue:
    if name:
        return unary(b, name, x, axis=axis)
    size = x.size(axis)
    if size is None:
        raise Refused("Hardmax along an axis whose length is open")
    hot: OnnxValue = b("one_hot", b("argmax", x, axis=axis), depth=size, dtype=x.dtype)
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return b("transpose", hot, axes=tuple(order)) if x.rank > 1 else hot


TABLE: dict[str, Translator] = {
    **dict.fromkeys(_PLAIN, _reduce),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
}
