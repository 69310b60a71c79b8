"""`OnnxValue`: an array of an ONNX graph during translation, and trial sizes for open dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch

from ...graph import Entry
from .read import CODES


class OnnxValue:
    """An array of an ONNX graph.

    Attributes:
        b: builder of its graph.
        shapes: its shape in every trial. A scalar, which MXNet lacks, has shape (1,).
        code: ONNX's code of the element type in the file if it differs from `dtype`, else 0.
        is_scalar: True if it has no axes in ONNX.
        entry: its entry in the graph; None for a constant that is not used there yet.
        known: its values in every trial, if they follow from the file and the sizes alone.
        recipe: operator, attributes and inputs from which `known` can be computed.
        transposed_from: the value whose last two axes are swapped in this one.
    """

    __slots__ = (
        "b",
        "code",
        "dtype",
        "entry",
        "is_scalar",
        "known",
        "name",
        "recipe",
        "scope",
        "shapes",
        "trains",
        "transposed_from",
    )

    def __init__(self, b: Any, shapes: tuple[Dims, ...], dtype: str, entry: Entry | None = None) -> None:
        self.b, self.shapes, self.dtype, self.entry = b, shapes, dtype, entry
        self.code = 0
        self.is_scalar = False
        self.known: tuple[torch.Tensor, ...] | None = None
        self.trains = False
        self.recipe: tuple[Any, Any, tuple[OnnxValue, ...]] | None = None
        self.scope: Any = None
        self.name = ""
        self.transposed_from: OnnxValue | None = None

    @property
    def type(self) -> int:
        """ONNX's number of the element type in the file."""
        return self.code or CODES[self.dtype]

    @property
    def rank(self) -> int:
        """Number of axes in ONNX."""
        return 0 if self.is_scalar else len(self.shapes[0])

    @property
    def dims(self) -> tuple[Dims, ...]:
        """Shapes in ONNX, of every trial."""
        return ((),) * len(self.shapes) if self.is_scalar else self.shapes

    def axis(self, number: int) -> tuple[int, ...]:
        """Return the size of an axis in every trial."""
        return tuple(shape[number] for shape in self.shapes)

    def size(self, number: int) -> int | None:
        """Return the size of an axis if it is the same in every trial, else None."""
        sizes = set(self.axis(number))
        return sizes.pop() if len(sizes) == 1 else None

    def again(self) -> OnnxValue:
        """Return a copy to be modified."""
        return copy(self)

    def as_scalar(self, is_scalar: bool) -> OnnxValue:
        """Return the value marked as having no axes in ONNX, or as having one."""
        if self.is_scalar == is_scalar:
            return self
        result = self.again()
        result.is_scalar = is_scalar
        return result

    # operators

    def then(self, name: str, *others: OnnxValue, **attrs: Any) -> OnnxValue:
        """Apply an operator of one output to this and others."""
        result: OnnxValue = self.b(name, self, *others, **attrs)
        return result

    def apply(self, name: str, **attrs: Any) -> OnnxValue:
        """Apply an operator that keeps the shape."""
        return self.then(name, **attrs).as_scalar(self.is_scalar)

    def cast(self, dtype: str) -> OnnxValue:
        """Convert the element type."""
        return self if self.dtype == dtype else self.apply("Cast", dtype=dtype)

    def reduce(self, name: str, axes: Sequence[int], keep: bool) -> OnnxValue:
        """Apply a reduction along axes."""
        if self.is_scalar or not axes:
            return self
        result = self.then(name, axis=tuple(axes), keepdims=keep)
        return result.as_scalar(len(axes) == self.rank and not keep)

    def arith(self, word: str, other: OnnxValue | float) -> OnnxValue:
        """Apply an operator of two arrays that broadcast, or of an array and a number.

        Args:
            word: name of the scalar form: "plus" for ``_plus_scalar``.
        """
        if not isinstance(other, OnnxValue):
            return self.apply(f"_{word}_scalar", scalar=other)
        x, y = same_type(self, other)
        right, left = _number(y), _number(x)
        is_plain = x.dtype != "bool"
        if right is not None and is_plain and y.rank <= x.rank and not (x.known and not x.trains):
            return x.arith(word, right)
        if left is not None and is_plain and x.rank <= y.rank and not (y.known and not y.trains):
            return y.arith(_REVERSED.get(word, word), left)
        result = x.then(_BROADCAST.get(word, f"broadcast_{word}"), y)
        return result.as_scalar(x.is_scalar and y.is_scalar)

    def __add__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("plus", other)

    def __sub__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("minus", other)

    def __rsub__(self, other: float) -> OnnxValue:
        return self.arith("rminus", other)

    def __mul__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("mul", other)

    def __truediv__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("div", other)

    def __mod__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("mod", other)

    def __pow__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("power", other)

    # comparisons give 0 and 1 in the type of the elements, like MXNet's operators

    def __gt__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("greater", other)

    def __ge__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("greater_equal", other)

    def __lt__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("lesser", other)

    def __le__(self, other: OnnxValue | float) -> OnnxValue:
        return self.arith("lesser_equal", other)


_REVERSED = {
    "minus": "rminus",
    "div": "rdiv",
    "mod": "rmod",
    "power": "rpower",
    "lesser": "greater",
    "greater": "lesser",
    "lesser_equal": "greater_equal",
    "greater_equal": "lesser_equal",
}
_BROADCAST = {"plus": "broadcast_add", "minus": "broadcast_sub"}
_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64")


def _number(x: OnnxValue) -> float | None:
    """Return the number of a constant with one element; None for other values."""
    if x.trains or x.known is None or math.prod(x.shapes[0]) != 1:
        return None
    tensor = x.b.constant_value(x)
    if tensor is None:
        return None
    number = tensor.reshape(()).item()
    return float(number) if abs(number) < 2**53 or math.isinf(number) or math.isnan(number) else None


def same_type(*values: OnnxValue) -> list[OnnxValue]:
    """Convert values to the widest of their types."""
    widest = max((v.dtype for v in values), key=_ORDER.index)
    return [v.cast(widest) for v in values]


# Trial sizes for graphs with open dimensions.
#
# A graph with open dimensions is evaluated for a few sets of sizes together, called trials. A size that is equal in all
# trials is constant; a size that equals an input's dimension in all trials is that dimension. In this way, operators
# that compute a shape are simply evaluated, and their meaning follows from the results.

Dims = tuple[int, ...]
Sizes = tuple[int, ...]
"""One dimension's size in every trial."""

# no row is a linear function of another, so that a multiple of one cannot be mistaken for another
_LEADING: tuple[Sizes, ...] = (
    (2, 3, 5),
    (3, 7, 4),
    (5, 4, 9),
    (7, 11, 6),
    (4, 13, 14),
    (11, 6, 15),
    (6, 17, 22),
)
_LENGTHS: tuple[Sizes, ...] = ((12, 20, 17), (16, 10, 23), (18, 25, 14), (21, 15, 32), (10, 27, 19))
_SIDES: tuple[Sizes, ...] = ((224, 288, 416), (256, 320, 192), (192, 256, 480), (320, 224, 288))
_SMALL: tuple[Sizes, ...] = ((32, 64, 160), (64, 96, 32), (96, 32, 128), (128, 160, 64))
_LONG: tuple[Sizes, ...] = ((16000, 24000, 20000), (24000, 16000, 30000), (20000, 32000, 24000))
_EQUAL: tuple[Sizes, ...] = ((224, 224, 224),)
ATTEMPTS: tuple[tuple[tuple[Sizes, ...], tuple[Sizes, ...]], ...] = (
    (_LENGTHS, _SIDES),
    (_SMALL, _SMALL),
    (_LONG, _SMALL),
    (_EQUAL, _EQUAL),
)
"""Sizes of sequence axes and image axes, tried in turn, since few networks accept every size."""


def _kind(shape: Sequence[object], axis: int) -> int:
    """Return 0 for a leading axis, 1 for a sequence axis, 2 for an image axis."""
    return 0 if axis == 0 else 2 if len(shape) >= 4 and axis >= 2 else 1


def sizes_of(
    shapes: Mapping[str, Sequence[int | str]], attempt: int
) -> tuple[int, dict[str, tuple[Dims, ...]]]:
    """Choose the sizes of open dimensions.

    Args:
        shapes: shape of each input, with names for open dimensions.

    Returns:
        The number of trials, and the shapes of each input in all of them.
    """
    kinds: dict[str, int] = {}
    for shape in shapes.values():
        for axis, d in enumerate(shape):
            if isinstance(d, str):
                kinds[d] = min(_kind(shape, axis), kinds.get(d, 2))
    lists = (_LEADING, *ATTEMPTS[attempt])
    used = [0, 0, 0]
    chosen: dict[str, Sizes] = {}
    for name, kind in kinds.items():
        row, number = lists[kind], used[kind]
        # more open dimensions than rows: reuse the rows, scaled and shifted
        turn, position = divmod(number, len(row))
        chosen[name] = tuple(n * (turn + 1) + turn * (i % 2) for i, n in enumerate(row[position]))
        used[kind] += 1
    trials = 1 + min(len(chosen), 2)
    return trials, {
        name: tuple(tuple(chosen[d][w] if isinstance(d, str) else d for d in shape) for w in range(trials))
        for name, shape in shapes.items()
    }
