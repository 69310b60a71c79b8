"""Helpers of builders: types in which runtimes compute, shapes, formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np
import onnx

from .call import Dims, OperatorCall, Value
from .writer import CODES

_IN_SCHEMAS = {"float32": "float", "float64": "double"}

_ONLY_SINGLE = """
Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cosh Det Elu Erf Gelu GlobalAveragePool
HardSigmoid HardSwish InstanceNormalization LRN LeakyRelu Mean Mish Multinomial PRelu RNN Resize RoiAlign
Selu Sinh Softplus Softsign Tan ThresholdedRelu
"""
"""Operators that ONNX Runtime computes in single precision only."""

_ONLY_WIDE = """
CumSum Einsum Pow Range ReduceL1 ReduceL2 ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare
"""
"""Operators that ONNX Runtime computes for signed integers from int32 on only."""

_NO_UNSIGNED = frozenset({"ArgMax", "ArgMin", "Pad", "ReduceMax", "ReduceMin", "TopK", "Where"})
"""Operators that ONNX Runtime lacks for int16, unsigned integers above uint8, and bool."""

_NARROW = {"bool", "int8", "uint8", "int16", "uint16"}
_UNSIGNED = {"uint16", "uint32", "uint64"}


@cache
def allowed_types(operator: str, opset: int) -> frozenset[str]:
    """Return the dtype names of an ONNX operator's first input that ONNX Runtime supports.

    Half precision counts as supported: ONNX Runtime converts it automatically.
    """
    schema = onnx.defs.get_schema(operator, opset, "")
    if not schema.inputs:
        return frozenset(CODES)
    types = schema.inputs[operator == "Where"].types  # the first input of Where is the condition
    types_allowed = {name for name in CODES if f"tensor({_IN_SCHEMAS.get(name, name)})" in types}
    if operator in _ONLY_SINGLE.split():
        types_allowed &= {"float16", "bfloat16", "float32"}
    if operator in _ONLY_WIDE.split():
        types_allowed -= _NARROW | _UNSIGNED
    if operator in _NO_UNSIGNED:
        types_allowed -= _UNSIGNED | {"bool", "int16"}
    if operator in ("Sum", "Relu"):
        types_allowed -= _NARROW | _UNSIGNED | {"int64"}
    return frozenset(types_allowed)


def computed_in(operator: str, opset: int, dtype: str) -> str:
    """Return the dtype name in which to compute an operator on elements of type `dtype`: that, or a wider one."""
    allowed = allowed_types(operator, opset)
    if dtype in allowed:
        return dtype
    wider: tuple[str, ...] = ("float32",) if "float" in dtype else ("int32", "int64", "float64", "float32")
    if dtype in ("int32", "int64", "uint32", "uint64"):
        wider = wider[1:]
    return next((each for each in wider if each in allowed), "float32")


def working_type(dtype: str) -> str:
    """Return the dtype name for formulas of several operators: single or double precision."""
    return "float32" if dtype in ("float16", "bfloat16", "float32") else "float64"


@cache
def max_inputs(operator: str, opset: int) -> int:
    """Return the maximal number of inputs of an ONNX operator."""
    return int(onnx.defs.get_schema(operator, opset, "").max_input)


Builder = Callable[[OperatorCall], Value | Sequence[Value]]

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def in_floats(half: bool = True, double: bool = False) -> Callable[[Builder], Builder]:
    """Make a builder compute in one floating type that ONNX Runtime supports.

    Inputs of other floating types are cast, and outputs are cast to the expected types. If all are float32, nothing is
    cast.

    Args:
        half: True to keep float16 if all values have that type.
        double: True to keep float64.
    """

    def declare(builder: Builder) -> Builder:
        @wraps(builder)
        def build(c: OperatorCall) -> Value | Sequence[Value]:
            types = {t for t in (*c.dtypes, *c.out_dtypes) if t in _FLOATS}
            dtype = _computed_in(types, half, double)
            if types <= {dtype}:
                return builder(c)
            results = builder(_converted(c, dtype))
            outputs = [results] if isinstance(results, Value) else results
            return [
                value.cast(wanted) if wanted in types - {dtype} else value
                for value, wanted in zip(outputs, c.out_dtypes)
            ]

        return build

    return declare


def _computed_in(types: set[str], half: bool, double: bool) -> str:
    if double and "float64" in types:
        return "float64"
    return "float16" if half and types == {"float16"} else "float32"


def _converted(c: OperatorCall, dtype: str) -> OperatorCall:
    """Return a call with its floating inputs cast."""
    inputs = [x.cast(dtype) if x.dtype in _FLOATS else x for x in c.inputs]
    return c.on(inputs, [dtype if t in _FLOATS else t for t in c.out_dtypes])


# operators in the form of the chosen opset


def shape_value(c: OperatorCall, dims: Dims, sources: Sequence[tuple[Value, Dims]] = ()) -> Value:
    """Return a shape as an int64 value; dynamic lengths are read from `sources`, by default the inputs of the call."""
    if all(isinstance(dim, int) for dim in dims):
        return c.ints(*(dim for dim in dims if isinstance(dim, int)))
    known = sources or list(zip(c.inputs, c.shapes))
    parts = [c.ints(dim) if isinstance(dim, int) else _length(c, dim, known) for dim in dims]
    return parts[0] if len(parts) == 1 else c.emit("Concat", *parts, axis=0)


def _length(c: OperatorCall, dim: str, sources: Sequence[tuple[Value, Dims]]) -> Value:
    for value, shape in sources:
        if dim in shape:
            return c.emit("Gather", c.emit("Shape", value), c.ints(shape.index(dim)))
    return c.length_value(dim)


def reshape(c: OperatorCall, value: Value, dims: Dims, found: Dims | None = None) -> Value:
    """Reshape a value; a shape with one dynamic length needs no other value.

    `found` is the current shape, if it may have equal dynamic lengths at the same positions.
    """
    same = [found is not None and i < len(found) and dim == found[i] for i, dim in enumerate(dims)]
    open_ones = [i for i, dim in enumerate(dims) if isinstance(dim, str) and not same[i]]
    if len(open_ones) <= 1:
        numbers = [dim if isinstance(dim, int) else 0 if same[i] else -1 for i, dim in enumerate(dims)]
        shape = c.ints(*numbers)
    else:
        shape = shape_value(c, dims)
    return c.emit("Reshape", value, shape)


def move_axis(c: OperatorCall, value: Value, rank: int, source: int, target: int) -> Value:
    """Move an axis of a value to another position."""
    source, target = source % rank, target % rank
    if source == target:
        return value
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return c.emit("Transpose", value, perm=order)


def length_of(c: OperatorCall, value: Value, dims: Dims, axis: int) -> Value:
    """Return the length of an axis of a value, as an int64 scalar."""
    dim = dims[axis]
    if isinstance(dim, int):
        return c.const(dim, "int64")
    return c.emit("Gather", c.emit("Shape", value), c.const(axis, "int64"))


def positions(c: OperatorCall, value: Value, dims: Dims, axis: int) -> Value:
    """Return the numbers 0, 1, ... along an axis of a value, as int64, to broadcast with the value."""
    dim = dims[axis]
    if isinstance(dim, int):
        count = c.const(np.arange(dim), "int64")
    else:
        end = length_of(c, value, dims, axis)
        count = c.emit("Range", c.const(0, "int64"), end, c.const(1, "int64"))
    after = len(dims) - 1 - axis % len(dims)
    return count.unsqueeze(*range(1, after + 1)) if after else count


def windows(c: OperatorCall) -> dict[str, Any]:
    """Return ONNX's attributes for the windows of a convolution."""
    a, rank = c.a, len(c.a.kernel)
    return {
        "kernel_shape": a.kernel,
        "strides": a.stride or (1,) * rank,
        "dilations": a.dilate or (1,) * rank,
        "pads": (a.pad or (0,) * rank) * 2,
    }


# formulas


def term(c: OperatorCall, i: int, dtype: str | None = None) -> Value:
    """Return input `i` in a type, by default the type of formulas."""
    return c.inputs[i].cast(dtype or working_type(c.dtypes[i]))


def result(found: Value, i: int = 0) -> Value:
    """Return a value in the type of the operator's output `i`."""
    return found.converted(found.c.out_dtypes[i])


# elements of matrices


def elements(x: Value, dims: tuple[int | str, ...], places: np.ndarray) -> Value:
    """Select elements of matrices of shape `dims` by their row-major indices."""
    c = x.c
    flat = reshape(c, x, (*dims[:-2], int(dims[-2]) * int(dims[-1])), dims)
    return flat.gather(places, len(dims) - 2)


def matrices(c: OperatorCall, places: np.ndarray) -> Value:
    """Arrange the last axis as matrices: `places` has the index of each element from 1, or 0 for zero."""
    rank = len(c.shapes[0])
    dtype = computed_in("Pad", c.opset, c.dtypes[0])
    x = c.inputs[0].cast(dtype)
    widths = [0] * (2 * rank)
    widths[rank - 1] = 1
    padded = c.emit("Pad", x, c.ints(*widths))
    return result(padded.gather(places, rank - 1))


# the gamma function, which ONNX lacks, from logarithms and a sine

_SHIFT = 7
_LANCZOS = """
0.99999999999980993 676.5203681218851 -1259.1392167224028 771.32342877765313 -176.61502916214059
12.507343278686905 -0.13857109526572012 9.9843695780195716e-6 1.5056327351493116e-7
"""
"""Coefficients for a shift of 7 and nine terms, accurate to 15 digits.

Source: Lanczos, "A precision approximation of the gamma function", 1964, as tabled by Godfrey.
"""


def log_gamma(x: Value) -> Value:
    """Return the logarithm of the gamma function's magnitude; x has double precision."""
    left = x < 0.5
    z = left.choose(1 - x, x) - 1
    start, *others = map(float, _LANCZOS.split())
    total = others[0] / (z + 1) + start
    for i, each in enumerate(others[1:], start=2):
        total = total + each / (z + i)
    middle = z + (_SHIFT + 0.5)
    # avoids a difference of infinities for an infinite argument
    right_of = (
        (z + 0.5) * (middle.then("Log") - 1) + (0.5 * math.log(2 * math.pi) - _SHIFT) + total.then("Log")
    )
    # reflection; at integers, which are poles, the sine is exactly 0
    sine = ((x - x.then("Floor")) * math.pi).then("Sin")
    return left.choose((math.pi / sine).then("Log") - right_of, right_of)


def gamma_of(x: Value) -> Value:
    """Return the gamma function, NaN at negative integers; x has double precision."""
    floor = x.then("Floor")
    odd = floor.then("Mod", 2, fmod=1)
    sign = 1 - 2 * abs(odd)
    sign = x.equals(floor).choose(math.nan, sign)
    return log_gamma(x).then("Exp") * (x < 0).choose(sign, 1)
