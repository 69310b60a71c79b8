"""`DataDesc`: description of one input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base import ArgumentError, dtype_name, np_dtype


class DataDesc(NamedTuple("DataDesc", [("name", str), ("shape", tuple[int, ...])])):
    """Description of an input: its name, shape, element type and the meaning of its axes.

    It unpacks and compares as the pair ``(name, shape)``; `dtype`, `layout` and `stype` are extra attributes.

    Args:
        name: name of the input, such as "data".
        shape: shape, including the batch axis.
        dtype: element type: a NumPy type, a torch dtype or a name.
        layout: one letter per axis; "N" marks the batch axis.
        stype: "ragged" for rows of different lengths, whose shape is (N,) and the trailing axes of their elements;
            "default" otherwise, even if the variable of the symbol declares a storage type.

    Raises:
        DTypeError: `dtype` is not a type.
        ArgumentError: `stype` is neither "default" nor "ragged".

    Example:
        >>> mx.io.DataDesc("data", (32, 784))
        DataDesc[data,(32, 784),<class 'numpy.float32'>,NCHW]

    Source: MXNet 1.9.1 `io.DataDesc`.
    """

    dtype: Any = np.float32
    layout: str | None = "NCHW"
    stype: str = "default"

    def __new__(
        cls,
        name: str,
        shape: Iterable[int],
        dtype: Any = np.float32,
        layout: str | None = "NCHW",
        stype: str = "default",
    ) -> DataDesc:
        """Create the pair; `shape` may be any sequence of numbers."""
        if stype not in ("default", "ragged"):
            raise ArgumentError(f"DataDesc {name}: stype is {stype!r}, expected 'default' or 'ragged'")
        desc = super().__new__(cls, name, tuple(shape))
        desc.dtype = dtype if dtype is np.float32 else np_dtype(dtype_name(dtype))
        desc.layout, desc.stype = layout, stype
        return desc

    def __repr__(self) -> str:
        suffix = "" if self.stype == "default" else f",{self.stype}"
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}{suffix}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.shape, self.dtype, self.layout, self.stype)

    def _replace(self, **changes: Any) -> DataDesc:
        return type(self)(**{"name": self.name, "shape": self.shape, **vars(self), **changes})

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Return the position of the batch axis: 0 without a layout, -1 for a layout without "N".

        Args:
            layout: one letter per axis, such as ``"NCHW"``.
        """
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(
        shapes: Iterable[tuple[str, Sequence[int]]], types: Iterable[tuple[str, Any]] | None = None
    ) -> list[DataDesc]:
        """Make descriptions from (name, shape) pairs and (name, dtype) pairs.

        Args:
            shapes: pairs of name and shape.
            types: pairs of name and element type; None makes everything float32.

        Raises:
            ArgumentError: `types` lacks a name of `shapes`.
        """
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        shapes, by_name = list(shapes), dict(types)
        missing = [name for name, _ in shapes if name not in by_name]
        if missing:
            raise ArgumentError(f"get_list: types has no entry for {missing}, only for {sorted(by_name)}")
        return [DataDesc(name, shape, by_name[name]) for name, shape in shapes]
