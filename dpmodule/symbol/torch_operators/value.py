"""Values of torch's graph: symbols, or tensors that are known already."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from ...ops.dtypes import name_of
from ..symbol import Symbol
from .sizes import Dims, Size


class NoCounterpart(Exception):
    """Something that has no counterpart; the text is half a sentence that says what."""


def type_name(dtype: torch.dtype) -> str:
    """Return the element type that symbols have for one of torch's; truth values are 0 and 1 in float32."""
    return "float32" if dtype is torch.bool else name_of(dtype)


class TorchValue:
    """One tensor of torch's graph.

    Attributes:
        dims: its shape in torch; where that is (), the symbol's is (1,).
        symbol: what stands for it; None until somebody needs one.
        tensor: its elements where they depend on neither inputs nor parameters, else None.
        name: what a variable that holds these elements is to be called, "" for a name made of the reader's.
    """

    __slots__ = ("dims", "dtype", "name", "symbol", "tensor")

    def __init__(
        self,
        dims: Dims,
        dtype: torch.dtype,
        symbol: Symbol | None = None,
        tensor: torch.Tensor | None = None,
        name: str = "",
    ) -> None:
        self.dims, self.dtype, self.symbol, self.tensor = dims, dtype, symbol, tensor
        self.name = name

    @property
    def rank(self) -> int:
        """Number of axes in torch."""
        return len(self.dims)

    @property
    def type(self) -> str:
        """Element type of the symbol."""
        return type_name(self.dtype)

    @property
    def is_bool(self) -> bool:
        """Whether torch has truth values here."""
        return self.dtype is torch.bool

    @property
    def is_float(self) -> bool:
        """Whether torch has floating-point numbers here."""
        return self.dtype.is_floating_point

    @property
    def number(self) -> Any:
        """The only element, if it is known and stands alone or is the same everywhere; None otherwise."""
        if self.tensor is None or not self.tensor.numel():
            return None
        first = self.tensor.reshape(-1)[0]
        uniform = self.tensor.numel() == 1 or bool((self.tensor == first).all())
        return first.item() if uniform else None

    def axis(self, axis: int) -> int:
        """Return the number of an axis counted from the front."""
        return axis % max(self.rank, 1)


Operand: TypeAlias = "TorchValue | Size | float"
"""A value, a number, or a size that is known by name only."""
