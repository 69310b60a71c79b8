"""Type aliases of arguments: shapes, element types, contexts, values, positions.

Import them under ``if TYPE_CHECKING``: they are for annotations only.
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
    """An object that NumPy can read, such as an NDArray or a pandas column."""

    def __array__(self) -> np.ndarray[Any, Any]:
        """Return the values."""


class HasDumps(Protocol):
    """An object with a text form, such as an initializer."""

    def dumps(self) -> str:
        """Return the text."""


Number: TypeAlias = "int | float | np.number[Any] | np.bool_"
"""A number or bool of Python or NumPy."""

Ints: TypeAlias = "int | Sequence[int]"
"""One integer for all axes, or one for each; or numbers of axes."""

ShapeLike: TypeAlias = "SupportsIndex | Sequence[SupportsIndex]"
"""Lengths of axes: one integer, or a tuple, list or array of integers."""

DTypeLike: TypeAlias = "str | type | np.dtype[Any] | torch.dtype | None"
"""An element type: its name, such as "float32", NumPy's or torch's; None for the default, mostly float32."""

ContextLike: TypeAlias = "Context | torch.device"
"""A device: ``mx.cpu()``, ``mx.gpu(1)``, or a torch device."""

GradReqLike: TypeAlias = "str | Sequence[str] | Mapping[str, str]"
"""Gradient requests: "write", "add" or "null" for all arguments, or for each by position or name."""

InitLike: TypeAlias = "str | HasDumps"
"""An initializer or its name."""

ArrayLike: TypeAlias = "Number | Sequence[Any] | np.ndarray[Any, Any] | torch.Tensor | HasArray"
"""Values of an array: a number, nested lists of numbers, or an array of NumPy, torch or this package."""

IndexLike: TypeAlias = "slice | EllipsisType | ArrayLike | None"
"""A part of an array: a position, a slice, ``...``, None, several positions or a mask, or a tuple of these."""
