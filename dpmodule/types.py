"""Names for what arguments may be: shapes, element types, contexts, values, positions.

For annotations alone, so that nothing is imported when a program runs: take them under ``if TYPE_CHECKING``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias

from ._core import lazy

if TYPE_CHECKING:
    from types import EllipsisType

    import numpy as np
    import torch

    from .context import Context

__all__ = [
    "ArrayLike",
    "ContextLike",
    "DTypeLike",
    "GradReqLike",
    "HasArray",
    "HasDumps",
    "IndexLike",
    "InitLike",
    "Ints",
    "Number",
    "ShapeLike",
]

lazy.publish(__name__, __all__)


class HasArray(Protocol):
    """What gives its values to NumPy: an NDArray, a column of pandas."""

    def __array__(self) -> np.ndarray[Any, Any]:
        """Return the values."""


class HasDumps(Protocol):
    """What writes itself as text: an initializer."""

    def dumps(self) -> str:
        """Return the text."""


Number: TypeAlias = "int | float | np.number[Any] | np.bool_"
"""One number or truth value, Python's or NumPy's."""

Ints: TypeAlias = "int | Sequence[int]"
"""One whole number for all axes, or one for each; or the numbers of axes."""

ShapeLike: TypeAlias = "SupportsIndex | Sequence[SupportsIndex]"
"""Lengths of axes: one whole number, or a tuple, list or array of them."""

DTypeLike: TypeAlias = "str | type | np.dtype[Any] | torch.dtype | None"
"""An element type: its name, such as "float32", NumPy's or torch's; None for the default, mostly float32."""

ContextLike: TypeAlias = "Context | torch.device"
"""Where something is: ``mx.cpu()``, ``mx.gpu(1)``, or a device of torch."""

GradReqLike: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
"""What becomes of gradients: "write", "add" or "null" for all, or for each argument by position or name."""

InitLike: TypeAlias = "str | HasDumps"
"""What gives a variable its first values: an initializer, or its name."""

ArrayLike: TypeAlias = "Number | Sequence[Any] | np.ndarray[Any, Any] | torch.Tensor | HasArray"
"""Values that an array can be made of: a number, nested lists of numbers, an array of NumPy, torch or this package."""

IndexLike: TypeAlias = "slice | EllipsisType | ArrayLike | None"
"""A part of an array: a position, a slice, ``...``, None, several positions or a mask, or a tuple of these."""
