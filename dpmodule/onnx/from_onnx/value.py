"""What is known about one array of an ONNX graph while it is translated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import torch

from ...graph import Entry
from .tensors import CODES
from .worlds import Dims

if TYPE_CHECKING:
    from .build import GraphBuilder


class OnnxValue:
    """One array.

    Attributes:
        b: makes the nodes of its graph.
        shapes: its shape in every world. An array without axes, which MXNet lacks, has (1,) here.
        code: ONNX's number of the element type in the file if that is another one, else 0.
        is_scalar: whether it has no axes in ONNX.
        entry: what makes it in the graph; None for a constant that nothing has needed there yet.
        known: its values in every world, where they follow from the file and the sizes alone.
        recipe: operator, attributes and inputs from which `known` can be computed.
        turned: the value of which this one is the transpose of the last two axes.
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
        "turned",
    )

    def __init__(
        self, b: GraphBuilder, shapes: tuple[Dims, ...], dtype: str, entry: Entry | None = None
    ) -> None:
        self.b, self.shapes, self.dtype, self.entry = b, shapes, dtype, entry
        self.code = 0
        self.is_scalar = False
        self.known: tuple[torch.Tensor, ...] | None = None
        self.trains = False
        self.recipe: tuple[Any, Any, tuple[OnnxValue, ...]] | None = None
        self.scope: Any = None
        self.name = ""
        self.turned: OnnxValue | None = None

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
        """Shapes in ONNX, of every world."""
        return ((),) * len(self.shapes) if self.is_scalar else self.shapes

    def axis(self, number: int) -> tuple[int, ...]:
        """Return the size of an axis in every world."""
        return tuple(shape[number] for shape in self.shapes)

    def size(self, number: int) -> int | None:
        """Return the size of an axis if it is the same in every world, else None."""
        sizes = set(self.axis(number))
        return sizes.pop() if len(sizes) == 1 else None

    def again(self) -> OnnxValue:
        """Return a copy, of which something is to be changed."""
        return copy(self)

    def as_scalar(self, is_scalar: bool) -> OnnxValue:
        """Say whether this has no axes in ONNX."""
        if self.is_scalar == is_scalar:
            return self
        made = self.again()
        made.is_scalar = is_scalar
        return made

    # operators

    def apply(self, name: str, **attrs: Any) -> OnnxValue:
        """Apply an operator that keeps the shape."""
        return self.b(name, self, **attrs).as_scalar(self.is_scalar)

    def cast(self, dtype: str) -> OnnxValue:
        """Convert the element type."""
        return self if self.dtype == dtype else self.apply("Cast", dtype=dtype)

    def reduce(self, name: str, axes: Sequence[int], keep: bool) -> OnnxValue:
        """Apply a reduction along axes."""
        if self.is_scalar or not axes:
            return self
        made = self.b(name, self, axis=tuple(axes), keepdims=keep)
        return made.as_scalar(len(axes) == self.rank and not keep)

    def arith(self, word: str, other: OnnxValue | float) -> OnnxValue:
        """Apply an operator of two arrays that broadcast, or of an array and a number.

        Args:
            word: what the scalar form is called: "plus" of ``_plus_scalar``.
        """
        if not isinstance(other, OnnxValue):
            return self.apply(f"_{word}_scalar", scalar=other)
        x, y = same_type(self, other)
        right, left = y._number(), x._number()
        is_plain = x.dtype != "bool"
        if right is not None and is_plain and y.rank <= x.rank and not (x.known and not x.trains):
            return x.arith(word, right)
        if left is not None and is_plain and x.rank <= y.rank and not (y.known and not y.trains):
            return y.arith(_REVERSED.get(word, word), left)
        made = self.b(_BROADCAST.get(word, f"broadcast_{word}"), x, y)
        return made.as_scalar(x.is_scalar and y.is_scalar)

    def _number(self) -> float | None:
        """Return the number that this holds everywhere if it is such a constant."""
        if self.trains or self.known is None or math.prod(self.shapes[0]) != 1:
            return None
        tensor = self.b.fixed(self)
        if tensor is None:
            return None
        found = tensor.reshape(()).item()
        return float(found) if abs(found) < 2**53 or math.isinf(found) or math.isnan(found) else None

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

    # comparisons give 0 and 1 in the type of the elements, as our operators do

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


def same_type(*values: OnnxValue) -> list[OnnxValue]:
    """Convert values to the widest of their types."""
    widest = max((v.dtype for v in values), key=_ORDER.index)
    return [v.cast(widest) for v in values]
