"""Builders of arithmetic, comparison, elementwise functions, reductions and sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...ops.math import pointwise
from ...ops.shapes import normal_axes, normal_axis
from .call import OperatorCall, Value
from .common import (
    Builder,
    computed_in,
    gamma_of,
    log_gamma,
    reshape,
    result,
    shape_value,
    term,
    working_type,
)


def _common_type(c: OperatorCall) -> str:
    """Return the common type of both operands: that of the first, or of the result if different."""
    return c.out_dtypes[0]


def _operands(c: OperatorCall, dtype: str) -> tuple[Value, Value]:
    """Return both operands in a type; one may be the attribute ``scalar``."""
    met = _common_type(c)
    outputs = [term(c, i, met).cast(dtype) for i in range(len(c.inputs))]
    if len(outputs) == 1:
        number = c.const(_number(c, met), dtype)
        reverse = c.node.op is not None and c.node.op.onnx is not None and c.node.op.onnx.scalar == "first"
        outputs = [number, *outputs] if reverse else [*outputs, number]
    return outputs[0], outputs[1]


def _number(c: OperatorCall, dtype: str) -> float:
    return c.a.scalar if "float" in dtype else pointwise.to_integer(c.a.scalar)


def divide(c: OperatorCall) -> Value:
    """Div; integers are truncated, and give 0 if the divisor is 0."""
    if "float" in _common_type(c):
        left, right = _operands(c, _common_type(c))
        return result(left / right)
    left, right = _operands(c, computed_in("Where", c.opset, computed_in("Div", c.opset, _common_type(c))))
    zero = right.equals(0)
    return result(zero.choose(0, left / zero.choose(1, right)))


def mod(c: OperatorCall) -> Value:
    """Remainder with the sign of the divisor; 0 if the divisor is 0."""
    if "float" in _common_type(c):
        left, right = _operands(c, working_type(_common_type(c)))
        rest = left.then("Mod", right, fmod=1)
        apart = (rest * right.then("Sign")) < 0
        return result(right.equals(0).choose(0, apart.choose(rest + right, rest)))
    left, right = _operands(c, computed_in("Where", c.opset, _common_type(c)))
    zero = right.equals(0)
    return result(zero.choose(0, left.then("Mod", zero.choose(1, right))))


def onnx_mod(c: OperatorCall) -> Value:
    """Mod; ONNX Runtime supports the sign of the divisor only for integers."""
    if "float" not in _common_type(c):
        left, right = _operands(c, computed_in("Where", c.opset, _common_type(c)))
        zero = right.equals(0)
        return result(zero.choose(0, left.then("Mod", zero.choose(1, right), fmod=int(c.a.fmod))))
    left, right = _operands(c, working_type(_common_type(c)))
    rest = left.then("Mod", right, fmod=1)
    if c.a.fmod:
        return result(rest)
    apart = (rest * right.then("Sign")) < 0
    return result(apart.choose(rest + right, rest))


def onnx_bitwise(c: OperatorCall) -> Value:
    """Bitwise operator, available from opset 18 on."""
    if "shift" in c.a.kind:
        c.refuse("ONNX shifts only unsigned integers")
    if c.opset < 18:
        c.refuse(f"ONNX has bitwise operators from opset 18 on; the requested opset is {c.opset}")
    return c.emit(f"Bitwise{c.a.kind.capitalize()}", *c.inputs)


_FEW_BITS = {"float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20}


def onnx_round(c: OperatorCall) -> Value:
    """Round, or Cast to a type of few bits and back."""
    if c.a.to == "integer":
        dtype = working_type(c.dtypes[0])
        return result(term(c, 0).cast(dtype).then("Round").cast(c.dtypes[0]))
    code = _FEW_BITS.get(c.a.to)
    if code is None or c.opset < 19:
        first = 23 if code is None else 19
        c.refuse(f"ONNX casts to {c.a.to} from opset {first} on; the requested opset is {c.opset}")
    rounded = c.emit("Cast", c.inputs[0], to=code, saturate=int(c.a.saturate))
    return c.cast(rounded, c.dtypes[0])


def power(c: OperatorCall) -> Value:
    """Pow; integers are computed in double precision, so that negative exponents give 0."""
    met = _common_type(c)
    left, right = _operands(c, met if "float" in met else "float64")
    return result(left**right)


def hypot(c: OperatorCall) -> Value:
    """Square root of the sum of squares, without overflow."""
    left, right = (abs(operand) for operand in _operands(c, working_type(_common_type(c))))
    more, less = left.then("Max", right), left.then("Min", right)
    ratio = more.equals(less).choose(1, less / more)
    return result(more * (ratio * ratio + 1).then("Sqrt"))


def compare(c: OperatorCall) -> Value:
    """Comparison with results 0 and 1 in the type of the operands."""
    left, right = _operands(c, computed_in(c.type, c.opset, _common_type(c)))
    return result(left.then(c.type, right))


def not_equal(c: OperatorCall) -> Value:
    """Negation of Equal."""
    left, right = _operands(c, computed_in("Equal", c.opset, _common_type(c)))
    return result(left.equals(right).then("Not"))


def logic(c: OperatorCall) -> Value:
    """And, Or or Xor of elements that are not 0."""
    left, right = (operand.cast("bool") for operand in _operands(c, _common_type(c)))
    return result(left.then(c.type, right))


def add_n(c: OperatorCall) -> Value:
    """Sum, or repeated Add of integers."""
    if len(c.inputs) == 1:
        return c.inputs[0]
    if "float" in c.dtypes[0]:
        return c.emit("Sum", *c.inputs)
    total, *rest = (term(c, i, computed_in("Add", c.opset, c.dtypes[0])) for i in range(len(c.inputs)))
    for each in rest:
        total = total + each
    return result(total)


def square(c: OperatorCall) -> Value:
    """Product of a value with itself."""
    x = term(c, 0, computed_in("Mul", c.opset, c.dtypes[0]))
    return result(x * x)


def size(c: OperatorCall) -> Value:
    """Size, as an array of one element."""
    return c.emit("Size", c.inputs[0]).reshape(1)


def filled_like(c: OperatorCall) -> Value:
    """Zeros or ones of the shape and type of an array."""
    number = int(c.node.op is not None and c.node.op.name == "ones_like")
    return c.emit("Expand", c.const(number), shape_value(c, c.out_shapes[0]))


# rounding


def whole(c: OperatorCall) -> Value:
    """Ceil or Floor; integers are unchanged."""
    return c.emit(c.type, c.inputs[0]) if "float" in c.dtypes[0] else c.inputs[0]


def sign(c: OperatorCall) -> Value:
    """Sign, with 0 for NaN."""
    x = term(c, 0, computed_in("Where", c.opset, c.dtypes[0]))
    output = x.then("Sign")
    return result(x.equals(x).choose(output, 0) if "float" in x.dtype else output)


def trunc(c: OperatorCall) -> Value:
    """Truncate the fraction."""
    if "float" not in c.dtypes[0]:
        return c.inputs[0]
    x = term(c, 0)
    return result(x.then("Sign") * abs(x).then("Floor"))


def round_away(c: OperatorCall) -> Value:
    """Round to the nearest integer, halves away from 0."""
    if "float" not in c.dtypes[0]:
        return c.inputs[0]
    x = term(c, 0)
    size = abs(x)
    cut = size.then("Floor")
    return result(x.then("Sign") * (cut + ((size - cut) >= 0.5).cast(x.dtype)))


def rint(c: OperatorCall) -> Value:
    """Round to the nearest integer, halves down."""
    if "float" not in c.dtypes[0]:
        return c.inputs[0]
    x = term(c, 0)
    cut = x.then("Floor")
    return result(cut + ((x - cut) > 0.5).cast(x.dtype))


def clip(c: OperatorCall) -> Value:
    """Clip; limits of integers are restricted to their type."""
    low, high = c.a.a_min, c.a.a_max
    if "float" in c.dtypes[0]:
        x = term(c, 0)
        return result(x.then("Max", low).then("Min", high))
    x = term(c, 0, computed_in("Max", c.opset, c.dtypes[0]))
    least, greatest = _limits(c.dtypes[0])
    first, last = max(pointwise.to_integer(low), least), min(pointwise.to_integer(high), greatest)
    return result(x.then("Max", first).then("Min", last))


def _limits(dtype: str) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


# functions


def _scaled(c: OperatorCall, operator: str, factor: float) -> Value:
    x = term(c, 0)
    return result((x.then(operator) if operator else x) * factor)


def degrees(c: OperatorCall) -> Value:
    """Convert radians to degrees."""
    return _scaled(c, "", 180 / math.pi)


def radians(c: OperatorCall) -> Value:
    """Convert degrees to radians."""
    return _scaled(c, "", math.pi / 180)


def _cube_root(x: Value) -> Value:
    return x.then("Sign") * abs(x) ** (1 / 3)


def expm1(c: OperatorCall) -> Value:
    """exp(x) - 1; near 0 by the hyperbolic tangent, which is accurate there."""
    x = term(c, 0)
    tangent = (x * 0.5).then("Tanh")
    near = 2 * tangent / (1 - tangent)
    return result((abs(x) < 0.5).choose(near, x.then("Exp") - 1))


def log1p(c: OperatorCall) -> Value:
    """log(1 + x); near 0 corrected for the rounding error of 1 + x.

    Source: Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991, theorem 4.
    """
    x = term(c, 0)
    more = x + 1
    log = more.then("Log")
    near = more.equals(1).choose(x, log * x / (more - 1))
    return result((abs(x) < 0.5).choose(near, log))


def smooth_l1(c: OperatorCall) -> Value:
    """Quadratic near 0, linear beyond."""
    squared = (1.0 if c.a.scalar is None else c.a.scalar) ** 2
    if "float" not in c.dtypes[0]:
        squared = int(squared)
    size = abs(term(c, 0))
    if not squared:
        return result(size * 0)
    return result((size < 1 / squared).choose(size * size * (0.5 * squared), size - 0.5 / squared))


def gamma(c: OperatorCall) -> Value:
    """Gamma function; integers give integers."""
    output = gamma_of(term(c, 0, "float64"))
    return result(output if "float" in c.dtypes[0] else output.then("Round"))


_CENTRE = """
2.81022636e-08 3.43273939e-07 -3.5233877e-06 -4.39150654e-06 0.00021858087
-0.00125372503 -0.00417768164 0.246640727 1.50140941
"""
_TAIL = """
-0.000200214257 0.000100950558 0.00134934322 -0.00367342844 0.00573950773
-0.0076224613 0.00943887047 1.00167406 2.83297682
"""


def _polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total


def erfinv(c: OperatorCall) -> Value:
    """Inverse error function, to five digits.

    Source: Giles, "Approximating the erfinv function", GPU Computing Gems, 2011.
    """
    x = term(c, 0, "float64")
    w = -((1 - x) * (1 + x)).then("Log")
    near, far = (tuple(map(float, text.split())) for text in (_CENTRE, _TAIL))
    output = (w < 5).choose(_polynomial(w - 2.5, near), _polynomial(w.then("Sqrt") - 3, far))
    if c.dtypes[0] == "float64":
        output = (w < 16).choose(output, _erfinv_tail(1 - abs(x), w))
    return result(abs(x).equals(1).choose(x * math.inf, output * x))


def _erfinv_tail(rest: Value, w: Value) -> Value:
    """Return the inverse of erfc at `rest`, which is too small for single precision.

    Computed by repeated substitution into the asymptotic series of erfc.
    """
    output = w.then("Sqrt")
    for _ in range(4):
        part = 1 / (output * output)
        series = _polynomial(part, (-1.875, 0.75, -0.5, 1.0))
        output = (series / (rest * output) * math.pi**-0.5).then("Log").then("Sqrt")
    return output


# reductions


def _axes(c: OperatorCall, given: Sequence[int] | None, exclude: bool = False) -> tuple[int, ...]:
    """Return the axes to reduce, ascending."""
    rank = len(c.shapes[0])
    if not given:
        return tuple(range(rank))
    axes = normal_axes(given, rank)
    return tuple(i for i in range(rank) if i not in axes) if exclude else axes


def _reduce(x: Value, operator: str, axes: Sequence[int], keepdims: bool) -> Value:
    """Reduce; a scalar becomes an array of one element."""
    single = not keepdims and len(axes) == len(x.c.shapes[0])
    output = x.reduce(operator, *axes, keepdims=keepdims)
    return output.unsqueeze(0) if single else output


def _reduced(c: OperatorCall, operator: str, dtype: str) -> Value:
    axes = _axes(c, c.a.axis, c.a.exclude)
    return result(_reduce(term(c, 0, dtype), operator, axes, c.a.keepdims)) if axes else c.inputs[0]


def _without_nan(c: OperatorCall, operator: str, number: float) -> Value:
    if "float" not in c.dtypes[0]:
        return _reduced(c, operator, computed_in(operator, c.opset, c.dtypes[0]))
    axes = _axes(c, c.a.axis, c.a.exclude)
    x = term(c, 0)
    full = c.emit("IsNaN", x).choose(number, x)
    return result(_reduce(full, operator, axes, c.a.keepdims)) if axes else c.inputs[0]


def norm(c: OperatorCall) -> Value:
    """ReduceL1 or ReduceL2."""
    operator = "ReduceL1" if c.a.ord == 1 else "ReduceL2"
    return result(_reduce(term(c, 0), operator, _axes(c, c.a.axis), c.a.keepdims))


def square_sum(c: OperatorCall) -> Value:
    """ReduceSumSquare."""
    axes = _axes(c, c.a.axis, c.a.exclude)
    x = term(c, 0, computed_in("ReduceSumSquare", c.opset, c.dtypes[0]))
    return result(_reduce(x, "ReduceSumSquare", axes, c.a.keepdims) if axes else x * x)


def moments(c: OperatorCall) -> tuple[Value, Value]:
    """Mean and variance."""
    axes, x = _axes(c, c.a.axes), term(c, 0)
    mean = x.reduce("ReduceMean", *axes, keepdims=True)
    apart = x - mean
    outputs = (
        _reduce(x, "ReduceMean", axes, c.a.keepdims),
        _reduce(apart * apart, "ReduceMean", axes, c.a.keepdims),
    )
    return result(outputs[0]), result(outputs[1], 1)


def _arg_reduce(c: OperatorCall, operator: str) -> Value:
    """ArgMax or ArgMin along an axis, or of all elements."""
    x = term(c, 0, computed_in(operator, c.opset, c.dtypes[0]))
    if c.a.axis is None:
        flat = x.reshape(-1)
        output = flat.then(operator, axis=0, keepdims=0)
        return reshape(c, result(output), c.out_shapes[0])
    rank = len(c.shapes[0])
    kept = int(c.a.keepdims or rank == 1)
    output = x.then(operator, axis=normal_axis(c.a.axis, rank), keepdims=kept)
    return result(output)


def argmax_channel(c: OperatorCall) -> Value:
    """Index of the greatest element along axis 1."""
    x = term(c, 0, computed_in("ArgMax", c.opset, c.dtypes[0]))
    return result(x.then("ArgMax", axis=1, keepdims=0))


# sorting, top-k, cumulative sums


def _sort_operand(c: OperatorCall, x: Value) -> tuple[Value, int]:
    """Return the array and the axis to sort: the array itself, or its flattened elements."""
    if c.a.axis is None:
        return x.reshape(-1), 0
    return x, normal_axis(c.a.axis, len(c.shapes[0]))


def _top_values(c: OperatorCall, count: int, ascending: bool) -> tuple[Value, Value, int]:
    """Return the first values in order and their indices; a count below 1 means all."""
    x, axis = _sort_operand(c, term(c, 0, computed_in("TopK", c.opset, c.dtypes[0])))
    if count > 0:
        many = c.ints(count)
    elif c.a.axis is None:
        many = c.emit("Shape", x)
    else:
        many = shape_value(c, (c.shapes[0][axis],))
    values, indices = c.emit("TopK", x, many, axis=axis, largest=int(not ascending), sorted=1, outputs=2)
    return values, indices, axis


def topk(c: OperatorCall) -> Value | tuple[Value, Value]:
    """First values in order, their indices, both, or a mask."""
    values, indices, axis = _top_values(c, c.a.k, c.a.is_ascend)
    if c.a.ret_typ == "mask":
        return _mask(c, indices, axis)
    if c.a.ret_typ == "indices":
        return result(indices)
    return (result(values), result(indices, 1)) if c.a.ret_typ == "both" else result(values)


def _mask(c: OperatorCall, places: Value, axis: int) -> Value:
    """Return 1 at positions along an axis, and 0 elsewhere."""
    shape = shape_value(c, c.shapes[0])
    flat = c.a.axis is None
    size = c.emit("ReduceProd", shape, keepdims=1) if flat else shape
    zeros = c.emit("Expand", c.const(0), size)
    ones = c.emit("Expand", c.const(1), c.emit("Shape", places))
    output = c.emit("ScatterElements", zeros, places, ones, axis=axis)
    return reshape(c, output, c.out_shapes[0]) if flat else output


def cumsum(c: OperatorCall) -> Value:
    """CumSum in the type of the result."""
    dtype = c.out_dtypes[0]
    x, axis = _sort_operand(c, term(c, 0, dtype))
    x = x.cast(computed_in("CumSum", c.opset, dtype))
    return result(c.emit("CumSum", x, c.const(axis, "int64")))


TABLE: dict[str, Builder] = {
    "logical_not": lambda c: result(term(c, 0, computed_in("Equal", c.opset, c.dtypes[0])).equals(0)),
    "log10": lambda c: _scaled(c, "Log", 1 / math.log(10)),
    "log2": lambda c: _scaled(c, "Log", 1 / math.log(2)),
    "rsqrt": lambda c: result(1 / term(c, 0).then("Sqrt")),
    "cbrt": lambda c: result(_cube_root(term(c, 0))),
    "rcbrt": lambda c: result(1 / _cube_root(term(c, 0))),
    "gammaln": lambda c: result(log_gamma(term(c, 0, "float64"))),
    "reduce_sum": lambda c: _reduced(c, "ReduceSum", computed_in("ReduceSum", c.opset, c.dtypes[0])),
    "reduce_prod": lambda c: _reduced(c, "ReduceProd", computed_in("ReduceProd", c.opset, c.dtypes[0])),
    # ReduceMean, truncated for integers
    "reduce_mean": lambda c: _reduced(c, "ReduceMean", working_type(c.dtypes[0])),
    "reduce_max": lambda c: _reduced(c, "ReduceMax", computed_in("ReduceMax", c.opset, c.dtypes[0])),
    "reduce_min": lambda c: _reduced(c, "ReduceMin", computed_in("ReduceMin", c.opset, c.dtypes[0])),
    "nansum": lambda c: _without_nan(c, "ReduceSum", 0),
    "nanprod": lambda c: _without_nan(c, "ReduceProd", 1),
    # index of the greatest element, in the type of the elements
    "argmax": lambda c: _arg_reduce(c, "ArgMax"),
    # index of the smallest element, in the type of the elements
    "argmin": lambda c: _arg_reduce(c, "ArgMin"),
    "sort": lambda c: result(_top_values(c, 0, c.a.is_ascend)[0]),
    "argsort": lambda c: result(_top_values(c, 0, c.a.is_ascend)[1]),
}
