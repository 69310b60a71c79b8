"""What builders share: types in which runtimes compute, shapes, formulas."""

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
"""Operators that take integers there, but none smaller than int32, and no unsigned ones."""

_NO_UNSIGNED = frozenset({"ArgMax", "ArgMin", "Pad", "ReduceMax", "ReduceMin", "TopK", "Where"})
"""Operators that lack int16, unsigned integers above uint8, and bool there."""

_NARROW = {"bool", "int8", "uint8", "int16", "uint16"}
_UNSIGNED = {"uint16", "uint32", "uint64"}


@cache
def allowed_types(operator: str, opset: int) -> frozenset[str]:
    """Return the dtype names that an ONNX operator takes as its first input, and that ONNX Runtime computes it in.

    Half precision counts as computed: ONNX Runtime converts by itself where it has to.
    """
    schema = onnx.defs.get_schema(operator, opset, "")
    if not schema.inputs:
        return frozenset(CODES)
    types = schema.inputs[operator == "Where"].types  # the first input of Where is the condition
    found = {name for name in CODES if f"tensor({_IN_SCHEMAS.get(name, name)})" in types}
    if operator in _ONLY_SINGLE.split():
        found &= {"float16", "bfloat16", "float32"}
    if operator in _ONLY_WIDE.split():
        found -= _NARROW | _UNSIGNED
    if operator in _NO_UNSIGNED:
        found -= _UNSIGNED | {"bool", "int16"}
    if operator in ("Sum", "Relu"):
        found -= _NARROW | _UNSIGNED | {"int64"}
    return frozenset(found)


def computed_in(operator: str, opset: int, dtype: str) -> str:
    """Return the dtype name in which an operator on elements of type `dtype` is computed: that, or a wider one."""
    allowed = allowed_types(operator, opset)
    if dtype in allowed:
        return dtype
    wider: tuple[str, ...] = ("float32",) if "float" in dtype else ("int32", "int64", "float64", "float32")
    if dtype in ("int32", "int64", "uint32", "uint64"):
        wider = wider[1:]
    return next((each for each in wider if each in allowed), "float32")


def working_type(dtype: str) -> str:
    """Return the dtype name in which formulas of several operators are computed: single or double precision."""
    return "float32" if dtype in ("float16", "bfloat16", "float32") else "float64"


@cache
def most_inputs(operator: str, opset: int) -> int:
    """Return how many inputs an ONNX operator takes at most."""
    return int(onnx.defs.get_schema(operator, opset, "").max_input)


Builder = Callable[[OperatorCall], Value | Sequence[Value]]

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def in_floats(half: bool = True, double: bool = False) -> Callable[[Builder], Builder]:
    """Make a builder compute in one floating type that ONNX Runtime has its operators in.

    Values of other floating types are cast before, and what it returns is cast to the types that are wanted. Values
    that are all float32 stay as they are.

    Args:
        half: whether float16 stays, if everything has that type.
        double: whether float64 stays.
    """

    def declare(builder: Builder) -> Builder:
        @wraps(builder)
        def build(c: OperatorCall) -> Value | Sequence[Value]:
            types = {t for t in (*c.dtypes, *c.out_dtypes) if t in _FLOATS}
            dtype = _computed_in(types, half, double)
            if types <= {dtype}:
                return builder(c)
            found = builder(_converted(c, dtype))
            outputs = [found] if isinstance(found, Value) else found
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
    """Return a call whose floating inputs have been cast."""
    inputs = [x.cast(dtype) if x.dtype in _FLOATS else x for x in c.inputs]
    return c.on(inputs, [dtype if t in _FLOATS else t for t in c.out_dtypes])


# operators in the form of the chosen opset


def shape_value(c: OperatorCall, dims: Dims, sources: Sequence[tuple[Value, Dims]] = ()) -> Value:
    """Return a shape as an int64 value; dynamic lengths are read from `sources`, values and their shapes.

    By default these are the inputs of the call.
    """
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
    """Reshape a value: a shape with one dynamic length needs no other value.

    `found` is the shape of the value, if that may have equal dynamic lengths in the same places.
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
    """Move an axis of a value to another place."""
    source, target = source % rank, target % rank
    if source == target:
        return value
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return c.emit("Transpose", value, perm=order)


def length_of(c: OperatorCall, value: Value, dims: Dims, axis: int) -> Value:
    """Return the length of an axis of a value, as an int64 value without axes."""
    dim = dims[axis]
    if isinstance(dim, int):
        return c.const(dim, "int64")
    return c.emit("Gather", c.emit("Shape", value), c.const(axis, "int64"))


def positions(c: OperatorCall, value: Value, dims: Dims, axis: int) -> Value:
    """Return the numbers 0, 1, ... along an axis of a value, as an int64 value of as many axes."""
    dim = dims[axis]
    if isinstance(dim, int):
        count = c.const(np.arange(dim), "int64")
    else:
        end = length_of(c, value, dims, axis)
        count = c.emit("Range", c.const(0, "int64"), end, c.const(1, "int64"))
    after = len(dims) - 1 - axis % len(dims)
    return count.unsqueeze(*range(1, after + 1)) if after else count


def windows(c: OperatorCall) -> dict[str, Any]:
    """Return what ONNX calls the windows that a convolution's attributes describe."""
    a, rank = c.a, len(c.a.kernel)
    return {
        "kernel_shape": a.kernel,
        "strides": a.stride or (1,) * rank,
        "dilations": a.dilate or (1,) * rank,
        "pads": (a.pad or (0,) * rank) * 2,
    }


# formulas


def term(c: OperatorCall, i: int, dtype: str | None = None) -> Value:
    """Return input `i` in a type; default: the one in which formulas are computed."""
    return c.inputs[i].cast(dtype or working_type(c.dtypes[i]))


def result(found: Value, i: int = 0) -> Value:
    """Return a value in the type of the operator's output `i`."""
    return found.converted(found.c.out_dtypes[i])


# elements of matrices


def elements(x: Value, dims: tuple[int | str, ...], places: np.ndarray) -> Value:
    """Pick elements of matrices of shape `dims` by their numbers, row by row."""
    c = x.c
    flat = reshape(c, x, (*dims[:-2], int(dims[-2]) * int(dims[-1])), dims)
    return flat.gather(places, len(dims) - 2)


def matrices(c: OperatorCall, places: np.ndarray) -> Value:
    """Lay the last axis out as matrices: the number of an element, counted from 1, at each place, 0 for zero."""
    rank = len(c.shapes[0])
    kind = computed_in("Pad", c.opset, c.dtypes[0])
    x = c.inputs[0].cast(kind)
    widths = [0] * (2 * rank)
    widths[rank - 1] = 1
    padded = c.emit("Pad", x, c.ints(*widths))
    return result(padded.gather(places, rank - 1))


# the gamma function, from logarithms and a sine: ONNX has none

_SHIFT = 7
_LANCZOS = """
0.99999999999980993 676.5203681218851 -1259.1392167224028 771.32342877765313 -176.61502916214059
12.507343278686905 -0.13857109526572012 9.9843695780195716e-6 1.5056327351493116e-7
"""
"""Coefficients for a shift of 7 and nine terms, good to 15 digits.

Source: Lanczos, "A precision approximation of the gamma function", 1964, as tabled by Godfrey.
"""


def log_gamma(x: Value) -> Value:
    """Return the logarithm of the gamma function's magnitude; x is of double precision."""
    left = x < 0.5
    z = left.choose(1 - x, x) - 1
    start, *others = map(float, _LANCZOS.split())
    total = others[0] / (z + 1) + start
    for i, each in enumerate(others[1:], start=2):
        total = total + each / (z + i)
    middle = z + (_SHIFT + 0.5)
    # so that an infinite argument gives no difference of infinities
    right_of = (
        (z + 0.5) * (middle.then("Log") - 1) + (0.5 * math.log(2 * math.pi) - _SHIFT) + total.then("Log")
    )
    # reflection; at whole numbers the sine is exactly 0, as there are poles
    sine = ((x - x.then("Floor")) * math.pi).then("Sin")
    return left.choose((math.pi / sine).then("Log") - right_of, right_of)


def gamma_of(x: Value) -> Value:
    """Return the gamma function, NaN at negative whole numbers; x is of double precision."""
    floor = x.then("Floor")
    odd = floor.then("Mod", 2, fmod=1)
    sign = 1 - 2 * abs(odd)
    sign = x.equals(floor).choose(math.nan, sign)
    return log_gamma(x).then("Exp") * (x < 0).choose(sign, 1)
