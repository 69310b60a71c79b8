"""Initial values of tables whose rows may be spread over processes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .._devices import generators
from ..base import dtype_name
from ..context import cpu
from ..initializer import InitDesc, MSRAPrelu, Normal, One, Uniform, Xavier, Zero
from ..kvstore.row_exchange import parts
from ..ndarray import NDArray
from ..ops.dtypes import torch_dtype


class InitialRows:
    """Initial values of a table, which are made in parts.

    They depend on the seed, the name and the part, and not on which process makes them.

    Args:
        like: an array of the table's shape and type.
    """

    def __init__(self, initializer: Any, desc: InitDesc, like: NDArray) -> None:
        self._initializer, self._desc = initializer, desc
        self.shape, self.dtype = like.shape, dtype_name(like.dtype)
        self._seed: int | None = None

    @classmethod
    def of(
        cls, initializer: Any, name: str, attributes: Mapping[str, str] | None, like: NDArray
    ) -> InitialRows | None:
        """Return the values of a parameter; None if its initializer cannot fill a part of an array."""
        kinds = Uniform, Normal, Xavier, MSRAPrelu, Zero, One
        can_fill = type(initializer) in kinds and "__init__" not in (attributes or {})
        return cls(initializer, InitDesc(name, attributes), like) if can_fill else None

    def fill(self, array: NDArray) -> None:
        """Fill an array with all rows."""
        if self._seed is None:
            self._seed = generators.drawn_seed()
        for begin, end in parts(self.shape[0]):
            array.raw[begin:end].copy_(self.part(self._seed, begin, end))

    def part(self, seed: int, begin: int, end: int) -> torch.Tensor:
        """Return the rows from `begin` to `end` - 1; only the bounds of `parts` give the same rows."""
        rows = torch.zeros((end - begin, *self.shape[1:]), dtype=torch_dtype(self.dtype))
        found = _Part(rows, self.shape)
        generator = generators.generator(cpu())
        state = generator.get_state()
        numbers = np.random.SeedSequence([seed, zlib.crc32(self._desc.encode()), begin]).generate_state(1)
        generator.manual_seed(int(numbers[0]))
        try:
            self._initializer(self._desc, found)
        finally:
            generator.set_state(state)
        return found.raw


class _Part(NDArray):
    """Some rows of a table, with the shape of the table, which initializers use for the scale."""

    __slots__ = ("whole",)

    def __init__(self, rows: torch.Tensor, whole: tuple[int, ...]) -> None:
        super().__init__(rows, cpu())
        self.whole = whole

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole
