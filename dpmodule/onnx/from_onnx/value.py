"""What is known about one array of an ONNX graph while it is translated."""

from __future__ import annotations

from typing import Any

import torch

from ...graph import Entry
from .tensors import CODES
from .worlds import Dims


class OnnxValue:
    """One array.

    Attributes:
        shapes: its shape in every world. An array without axes, which MXNet lacks, has (1,) here.
        code: ONNX's number of the element type in the file if that is another one, else 0.
        is_scalar: whether it has no axes in ONNX.
        entry: what makes it in the graph; None for a constant that nothing has needed there yet.
        known: its values in every world, where they follow from the file and the sizes alone.
        recipe: operator, attributes and inputs from which `known` can be computed.
        turned: the value of which this one is the transpose of the last two axes.
    """

    __slots__ = (
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

    def __init__(self, shapes: tuple[Dims, ...], dtype: str, entry: Entry | None = None) -> None:
        self.shapes, self.dtype, self.entry = shapes, dtype, entry
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
        made = OnnxValue(self.shapes, self.dtype, self.entry)
        for each in ("code", "is_scalar", "known", "trains", "recipe", "scope", "name", "turned"):
            setattr(made, each, getattr(self, each))
        return made
