"""Reductions, sorting, running sums."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.shapes import normal_axes, normal_axis
from .call import OperatorCall
from .common import Term, computed_in, reshape, result, shape_value, term, working_type


def _axes(c: OperatorCall, given: Sequence[int] | None, exclude: bool = False) -> tuple[int, ...]:
    """Return the axes to reduce, ascending."""
    rank = len(c.shapes[0])
    if not given:
        return tuple(range(rank))
    axes = normal_axes(given, rank)
    return tuple(i for i in range(rank) if i not in axes) if exclude else axes


def _over(x: Term, operator: str, axes: Sequence[int], keepdims: bool) -> Term:
    """Reduce; a single number becomes an array of one element."""
    single = not keepdims and len(axes) == len(x.c.shapes[0])
    found = x.reduce(operator, *axes, keepdims=keepdims)
    return found.unsqueeze(0) if single else found


def _reduced(c: OperatorCall, operator: str, dtype: str) -> str:
    axes = _axes(c, c.a.axis, c.a.exclude)
    return result(_over(term(c, 0, dtype), operator, axes, c.a.keepdims)) if axes else c.inputs[0]


def reduce_sum(c: OperatorCall) -> str:
    """ReduceSum."""
    return _reduced(c, "ReduceSum", computed_in("ReduceSum", c.opset, c.dtypes[0]))


def reduce_prod(c: OperatorCall) -> str:
    """ReduceProd."""
    return _reduced(c, "ReduceProd", computed_in("ReduceProd", c.opset, c.dtypes[0]))


def reduce_mean(c: OperatorCall) -> str:
    """ReduceMean; that of integers is cut."""
    return _reduced(c, "ReduceMean", working_type(c.dtypes[0]))


def reduce_max(c: OperatorCall) -> str:
    """ReduceMax."""
    return _reduced(c, "ReduceMax", computed_in("ReduceMax", c.opset, c.dtypes[0]))


def reduce_min(c: OperatorCall) -> str:
    """ReduceMin."""
    return _reduced(c, "ReduceMin", computed_in("ReduceMin", c.opset, c.dtypes[0]))


def _without_nan(c: OperatorCall, operator: str, number: float) -> str:
    if "float" not in c.dtypes[0]:
        return _reduced(c, operator, computed_in(operator, c.opset, c.dtypes[0]))
    axes = _axes(c, c.a.axis, c.a.exclude)
    x = term(c, 0)
    full = Term(c, c.emit("IsNaN", x.value), "bool").choose(number, x)
    return result(_over(full, operator, axes, c.a.keepdims)) if axes else c.inputs[0]


def nansum(c: OperatorCall) -> str:
    """ReduceSum with NaN counted as 0."""
    return _without_nan(c, "ReduceSum", 0)


def nanprod(c: OperatorCall) -> str:
    """ReduceProd with NaN counted as 1."""
    return _without_nan(c, "ReduceProd", 1)


def norm(c: OperatorCall) -> str:
    """ReduceL1 or ReduceL2."""
    operator = "ReduceL1" if c.a.ord == 1 else "ReduceL2"
    return result(_over(term(c, 0), operator, _axes(c, c.a.axis), c.a.keepdims))


def square_sum(c: OperatorCall) -> str:
    """ReduceSumSquare."""
    axes = _axes(c, c.a.axis, c.a.exclude)
    x = term(c, 0, computed_in("ReduceSumSquare", c.opset, c.dtypes[0]))
    return result(_over(x, "ReduceSumSquare", axes, c.a.keepdims) if axes else x * x)


def moments(c: OperatorCall) -> tuple[str, str]:
    """Mean and variance."""
    axes, x = _axes(c, c.a.axes), term(c, 0)
    mean = x.reduce("ReduceMean", *axes, keepdims=True)
    apart = x - mean
    found = _over(x, "ReduceMean", axes, c.a.keepdims), _over(apart * apart, "ReduceMean", axes, c.a.keepdims)
    return result(found[0]), result(found[1], 1)


def _place(c: OperatorCall, operator: str) -> str:
    """ArgMax or ArgMin along an axis, or of all elements."""
    x = term(c, 0, computed_in(operator, c.opset, c.dtypes[0]))
    if c.a.axis is None:
        flat = Term(c, c.emit("Reshape", x.value, c.ints(-1)), x.dtype)
        found = Term(c, flat.then(operator, axis=0, keepdims=0).value, "int64")
        return reshape(c, result(found), c.out_shapes[0])
    rank = len(c.shapes[0])
    kept = int(c.a.keepdims or rank == 1)
    found = x.then(operator, axis=normal_axis(c.a.axis, rank), keepdims=kept)
    return result(Term(c, found.value, "int64"))


def argmax(c: OperatorCall) -> str:
    """The position of the greatest element, in the type of the elements."""
    return _place(c, "ArgMax")


def argmin(c: OperatorCall) -> str:
    """The position of the smallest element, in the type of the elements."""
    return _place(c, "ArgMin")


def argmax_channel(c: OperatorCall) -> str:
    """The position of the greatest element along axis 1."""
    x = term(c, 0, computed_in("ArgMax", c.opset, c.dtypes[0]))
    return result(Term(c, x.then("ArgMax", axis=1, keepdims=0).value, "int64"))


# sorting, the greatest few, running sums


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
