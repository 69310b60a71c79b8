"""Sums, means and positions along axes; softmax."""

from __future__ import annotations

from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import normal, reshape
from .problems import Refused
from .value import OnnxValue

_PLAIN = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
}


def _axes(c: NodeCall) -> list[int] | None:
    """Return the axes to reduce, None if nothing is to be reduced."""
    given = c.fixed_ints("axes", 1)
    if not given:
        return None if c.attrs.get("noop_with_empty_axes") else list(range(c.x.rank))
    return sorted({normal(a, c.x.rank) for a in given})


def _reduce(c: NodeCall) -> OnnxValue:
    axes, keep, x, b = _axes(c), bool(c.attrs["keepdims"]), c.x, c.b
    if c.kind in ("ReduceL1", "ReduceL2", "ReduceSumSquare"):
        x = x.apply("abs" if c.kind == "ReduceL1" else "square")
    if c.kind == "ReduceLogSumExp" and axes is not None:
        return _log_sum_exp(b, x, axes, keep)
    found = x if axes is None else _summable(x).reduce(_PLAIN.get(c.kind, "sum"), axes, keep)
    if c.kind == "ReduceL2":
        return found.apply("sqrt")
    return found.apply("log") if c.kind == "ReduceLogSum" else found.cast(x.dtype)


def _summable(x: OnnxValue) -> OnnxValue:
    return x.cast("int64") if x.dtype == "bool" else x


def _log_sum_exp(b: GraphBuilder, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    highest = b("stop_gradient", x.reduce("max", axes, True))
    total = (x - highest).apply("exp").reduce("sum", axes, True)
    found = total.apply("log") + highest
    if keep or x.is_scalar:
        return found
    shapes = tuple(tuple(d for i, d in enumerate(s) if i not in axes) for s in found.shapes)
    return reshape(found, shapes)


def _arg(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    axis, keep = normal(c.attrs["axis"], x.rank), bool(c.attrs["keepdims"])
    name = "argmax" if c.kind == "ArgMax" else "argmin"
    source = b("reverse", x, axis=axis) if c.attrs.get("select_last_index") else x
    if x.dtype in ("float16", "bfloat16", "int8", "uint8", "bool"):
        source = source.cast("float32")  # positions come in the data's type, which may be too small for them
    found = b(name, source, axis=axis, keepdims=keep).cast("int64").as_scalar(x.rank == 1 and not keep)
    if c.attrs.get("select_last_index"):
        size = x.size(axis)
        if size is None:
            raise Refused("select_last_index along an axis whose length is open")
        found = float(size - 1) - found
    return found


def _softmax(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    name = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": ""}[c.kind]
    axis = normal(c.attrs["axis"], x.rank)
    if c.since >= 13 or axis == x.rank - 1:
        return _soft(b, name, x, axis)
    flat = reshape(x, tuple((*s[:axis], _product(s[axis:])) for s in x.shapes))
    found = _soft(b, name, flat, axis)
    return b("reshape_like", found, x)


def _product(dims: tuple[int, ...]) -> int:
    total = 1
    for d in dims:
        total *= d
    return total


def _soft(b: GraphBuilder, name: str, x: OnnxValue, axis: int) -> OnnxValue:
    if name:
        return x.apply(name, axis=axis)
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
