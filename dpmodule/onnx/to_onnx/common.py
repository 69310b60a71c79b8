"""What builders share: types in which runtimes compute, shapes, formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np
import onnx

from .call import CODES, Dims, OperatorCall

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


Builder = Callable[[OperatorCall], str | Sequence[str]]

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
        def build(c: OperatorCall) -> str | Sequence[str]:
            types = {t for t in (*c.dtypes, *c.out_dtypes) if t in _FLOATS}
            dtype = _computed_in(types, half, double)
            if types <= {dtype}:
                return builder(c)
            found = builder(_converted(c, dtype))
            outputs = [found] if isinstance(found, str) else found
            return [
                c.cast(value, wanted) if wanted in types - {dtype} else value
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
    inputs = [c.cast(x, dtype) if t in _FLOATS - {dtype} else x for x, t in zip(c.inputs, c.dtypes)]
    return c.on(inputs, [dtype if t in _FLOATS else t for t in (*c.dtypes, *c.out_dtypes)])


# operators in the form of the chosen opset


def unsqueeze(c: OperatorCall, value: str, *axes: int) -> str:
    """Insert axes of length 1."""
    return c.emit("Unsqueeze", value, c.ints(*axes))


def squeeze(c: OperatorCall, value: str, *axes: int) -> str:
    """Leave out axes of length 1."""
    return c.emit("Squeeze", value, c.ints(*axes))


def reduce(c: OperatorCall, operator: str, value: str, axes: Sequence[int], keepdims: bool) -> str:
    """Reduce axes by an operator such as "ReduceMax", whose axes are an attribute before version 18."""
    if operator == "ReduceSum" or c.opset >= 18:
        found: str = c.emit(operator, value, c.ints(*axes), keepdims=int(keepdims))
    else:
        found = c.emit(operator, value, axes=list(axes), keepdims=int(keepdims))
    return found


def shape_value(c: OperatorCall, dims: Dims, sources: Sequence[tuple[str, Dims]] = ()) -> str:
    """Return a shape as an int64 value; dynamic lengths are read from `sources`, values and their shapes.

    By default these are the inputs of the call.
    """
    if all(isinstance(dim, int) for dim in dims):
        return c.ints(*(dim for dim in dims if isinstance(dim, int)))
    known = sources or list(zip(c.inputs, c.shapes))
    parts = [c.ints(dim) if isinstance(dim, int) else _length(c, dim, known) for dim in dims]
    return parts[0] if len(parts) == 1 else c.emit("Concat", *parts, axis=0)


def _length(c: OperatorCall, dim: str, sources: Sequence[tuple[str, Dims]]) -> str:
    for value, shape in sources:
        if dim in shape:
            return c.emit("Gather", c.emit("Shape", value), c.ints(shape.index(dim)))
    return c.length_value(dim)


def in_type(c: OperatorCall, value: str, found: str, wanted: str) -> str:
    """Convert as our operators do: what has a fraction loses it, and what is too great for integers wraps."""
    if found == wanted:
        return value
    if "float" in found and wanted in ("bool", "int8", "uint8", "int16", "uint16", "int32"):
        value = c.cast(value, "int64")
    return c.cast(value, wanted)


def reshape(c: OperatorCall, value: str, dims: Dims, found: Dims | None = None) -> str:
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


def move_axis(c: OperatorCall, value: str, rank: int, source: int, target: int) -> str:
    """Move an axis of a value to another place."""
    source, target = source % rank, target % rank
    if source == target:
        return value
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return c.emit("Transpose", value, perm=order)


def length_of(c: OperatorCall, value: str, dims: Dims, axis: int) -> str:
    """Return the length of an axis of a value, as an int64 value without axes."""
    dim = dims[axis]
    if isinstance(dim, int):
        return c.const(dim, "int64")
    return c.emit("Gather", c.emit("Shape", value), c.const(axis, "int64"))


def positions(c: OperatorCall, value: str, dims: Dims, axis: int) -> str:
    """Return the numbers 0, 1, ... along an axis of a value, as an int64 value of as many axes."""
    dim = dims[axis]
    if isinstance(dim, int):
        count = c.const(np.arange(dim), "int64")
    else:
        end = length_of(c, value, dims, axis)
        count = c.emit("Range", c.const(0, "int64"), end, c.const(1, "int64"))
    after = len(dims) - 1 - axis % len(dims)
    return unsqueeze(c, count, *range(1, after + 1)) if after else count


# formulas


class Term:
    """A value in a formula, by its ONNX name and dtype name. Numbers beside it become constants of its type."""

    def __init__(self, c: OperatorCall, value: str, dtype: str) -> None:
        self.c = c
        self.value = value
        self.dtype = dtype

    def then(self, operator: str, *others: Any, **attributes: Any) -> Term:
        """Apply an ONNX operator to this, and to more terms or numbers."""
        names = [self._name(other) for other in others]
        return Term(self.c, self.c.emit(operator, self.value, *names, **attributes), self.dtype)

    def _name(self, other: Any) -> str:
        return other.value if isinstance(other, Term) else self.c.const(other, self.dtype)

    def _reversed(self, operator: str, other: Any) -> Term:
        return Term(self.c, self.c.emit(operator, self._name(other), self.value), self.dtype)

    def __add__(self, other: Any) -> Term:
        return self.then("Add", other)

    def __radd__(self, other: Any) -> Term:
        return self.then("Add", other)

    def __sub__(self, other: Any) -> Term:
        return self.then("Sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self._reversed("Sub", other)

    def __mul__(self, other: Any) -> Term:
        return self.then("Mul", other)

    def __rmul__(self, other: Any) -> Term:
        return self.then("Mul", other)

    def __truediv__(self, other: Any) -> Term:
        return self.then("Div", other)

    def __rtruediv__(self, other: Any) -> Term:
        return self._reversed("Div", other)

    def __pow__(self, other: Any) -> Term:
        return self.then("Pow", other)

    def __neg__(self) -> Term:
        return self.then("Neg")

    def __abs__(self) -> Term:
        return self.then("Abs")

    def __lt__(self, other: Any) -> Term:
        return self.test("Less", other)

    def __le__(self, other: Any) -> Term:
        return self.test("LessOrEqual", other)

    def __gt__(self, other: Any) -> Term:
        return self.test("Greater", other)

    def __ge__(self, other: Any) -> Term:
        return self.test("GreaterOrEqual", other)

    def test(self, operator: str, other: Any) -> Term:
        """Apply a comparison, whose result are truth values."""
        return Term(self.c, self.c.emit(operator, self.value, self._name(other)), "bool")

    def equals(self, other: Any) -> Term:
        """Return where both are equal, as truth values."""
        return self.test("Equal", other)

    def choose(self, yes: Any, no: Any) -> Term:
        """Return one of two terms, of which one may be a number, where these truth values say so."""
        one = yes if isinstance(yes, Term) else no
        return Term(self.c, self.c.emit("Where", self.value, one._name(yes), one._name(no)), one.dtype)

    def cast(self, dtype: str) -> Term:
        """Return the elements in another type."""
        return self if dtype == self.dtype else Term(self.c, self.c.cast(self.value, dtype), dtype)

    def converted(self, dtype: str) -> Term:
        """Return the elements in a type of ours; see `in_type`."""
        return Term(self.c, in_type(self.c, self.value, self.dtype, dtype), dtype)

    def reduce(self, operator: str, *axes: int, keepdims: bool = False) -> Term:
        """Reduce axes, counted from the front or from the end."""
        return Term(self.c, reduce(self.c, operator, self.value, axes, keepdims), self.dtype)

    def unsqueeze(self, *axes: int) -> Term:
        """Insert axes of length 1."""
        return Term(self.c, unsqueeze(self.c, self.value, *axes), self.dtype) if axes else self

    def squeeze(self, *axes: int) -> Term:
        """Leave out axes of length 1."""
        return Term(self.c, squeeze(self.c, self.value, *axes), self.dtype)

    def transpose(self, *order: int) -> Term:
        """Put the axes into another order."""
        return self if list(order) == sorted(order) else self.then("Transpose", perm=list(order))

    def gather(self, index: Any, axis: int) -> Term:
        """Pick positions along an axis; a single number leaves the axis out."""
        return Term(
            self.c, self.c.emit("Gather", self.value, self.c.const(index, "int64"), axis=axis), self.dtype
        )

    def slice(self, axis: int, begin: int, end: int) -> Term:
        """Cut out positions along an axis."""
        names = [self.c.ints(begin), self.c.ints(end), self.c.ints(axis)]
        return Term(self.c, self.c.emit("Slice", self.value, *names), self.dtype)

    def concat(self, others: Sequence[Term], axis: int) -> Term:
        """Join this and others."""
        return self.then("Concat", *others, axis=axis) if others else self


def term(c: OperatorCall, i: int, dtype: str | None = None) -> Term:
    """Return input `i` in a type; default: the one in which formulas are computed."""
    return Term(c, c.inputs[i], c.dtypes[i]).cast(dtype or working_type(c.dtypes[i]))


def result(found: Term, i: int = 0) -> str:
    """Return a term in the type of the operator's output `i`."""
    return found.converted(found.c.out_dtypes[i]).value


# elements of matrices


def elements(x: Term, dims: tuple[int | str, ...], places: np.ndarray) -> str:
    """Pick elements of matrices of shape `dims` by their numbers, row by row."""
    c = x.c
    flat = reshape(c, x.value, (*dims[:-2], int(dims[-2]) * int(dims[-1])), dims)
    return Term(c, flat, x.dtype).gather(places, len(dims) - 2).value


def matrices(c: OperatorCall, places: np.ndarray) -> str:
    """Lay the last axis out as matrices: the number of an element, counted from 1, at each place, 0 for zero."""
    rank = len(c.shapes[0])
    kind = computed_in("Pad", c.opset, c.dtypes[0])
    x = Term(c, c.inputs[0], c.dtypes[0]).cast(kind)
    widths = [0] * (2 * rank)
    widths[rank - 1] = 1
    padded = Term(c, c.emit("Pad", x.value, c.ints(*widths)), kind)
    return result(padded.gather(places, rank - 1))


# the gamma function, from logarithms and a sine: ONNX has none

_SHIFT = 7
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
"""Coefficients for a shift of 7 and nine terms, good to 15 digits.

Source: Lanczos, "A precision approximation of the gamma function", 1964, as tabled by Godfrey.
"""


def log_gamma(x: Term) -> Term:
    """Return the logarithm of the gamma function's magnitude; x is of double precision."""
    left = x < 0.5
    z = left.choose(1 - x, x) - 1
    total = _LANCZOS[1] / (z + 1) + _LANCZOS[0]
    for i, each in enumerate(_LANCZOS[2:], start=2):
        total = total + each / (z + i)
    middle = z + (_SHIFT + 0.5)
    # so that an infinite argument gives no difference of infinities
    right_of = (
        (z + 0.5) * (middle.then("Log") - 1) + (0.5 * math.log(2 * math.pi) - _SHIFT) + total.then("Log")
    )
    # reflection; at whole numbers the sine is exactly 0, as there are poles
    sine = ((x - x.then("Floor")) * math.pi).then("Sin")
    return left.choose((math.pi / sine).then("Log") - right_of, right_of)


def gamma_of(x: Term) -> Term:
    """Return the gamma function, NaN at negative whole numbers; x is of double precision."""
    floor = x.then("Floor")
    odd = floor.then("Mod", 2, fmod=1)
    sign = 1 - 2 * abs(odd)
    sign = x.equals(floor).choose(math.nan, sign)
    return log_gamma(x).then("Exp") * (x < 0).choose(sign, 1)
