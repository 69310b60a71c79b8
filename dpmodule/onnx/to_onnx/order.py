"""Sorting, the greatest few, running sums."""

from __future__ import annotations

from ...ops.axes import normal_axis
from .call import OperatorCall
from .common import reshape, shape_value
from .formula import Term, result, term
from .types import computed_in

__all__ = ["argsort", "cumsum", "sort", "topk"]


def _along(c: OperatorCall, x: Term) -> tuple[Term, int]:
    """Return what is sorted and the axis: the array, or all its elements in one axis."""
    if c.a.axis is None:
        return Term(c, c.emit("Reshape", x.value, c.ints(-1)), x.dtype), 0
    return x, normal_axis(c.a.axis, len(c.shapes[0]))


def _ordered(c: OperatorCall, count: int, ascending: bool) -> tuple[Term, Term, int]:
    """Return the first values in order and their positions; below 1 means all of them."""
    x, axis = _along(c, term(c, 0, computed_in("TopK", c.opset, c.dtypes[0])))
    if count > 0:
        many = c.ints(count)
    elif c.a.axis is None:
        many = c.emit("Shape", x.value)
    else:
        many = shape_value(c, (c.shapes[0][axis],))
    values, places = c.emit("TopK", x.value, many, axis=axis, largest=int(not ascending), sorted=1, outputs=2)
    return Term(c, values, x.dtype), Term(c, places, "int64"), axis


def sort(c: OperatorCall) -> str:
    """All values in order."""
    return result(_ordered(c, 0, c.a.is_ascend)[0])


def argsort(c: OperatorCall) -> str:
    """The positions of all values in order."""
    return result(_ordered(c, 0, c.a.is_ascend)[1])


def topk(c: OperatorCall) -> str | tuple[str, str]:
    """The first values in order, their positions, or both, or a mask of them."""
    values, places, axis = _ordered(c, c.a.k, c.a.is_ascend)
    if c.a.ret_typ == "mask":
        return _mask(c, places, axis)
    if c.a.ret_typ == "indices":
        return result(places)
    return (result(values), result(places, 1)) if c.a.ret_typ == "both" else result(values)


def _mask(c: OperatorCall, places: Term, axis: int) -> str:
    """Return 1 at positions along an axis, and 0 elsewhere."""
    shape = shape_value(c, c.shapes[0])
    flat = c.a.axis is None
    size = c.emit("ReduceProd", shape, keepdims=1) if flat else shape
    zeros = c.emit("Expand", c.const(0), size)
    ones = c.emit("Expand", c.const(1), c.emit("Shape", places.value))
    found = c.emit("ScatterElements", zeros, places.value, ones, axis=axis)
    return reshape(c, found, c.out_shapes[0]) if flat else found


def cumsum(c: OperatorCall) -> str:
    """CumSum in the type of the result."""
    kind = c.out_dtypes[0]
    x, axis = _along(c, term(c, 0, kind))
    x = x.cast(computed_in("CumSum", c.opset, kind))
    return result(Term(c, c.emit("CumSum", x.value, c.const(axis, "int64")), x.dtype))
