"""Initial values of tables whose rows may be spread over processes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from .._devices import generators
from ..base import ArgumentError, dtype_name
from ..context import cpu
from ..initializer import InitDesc, MSRAPrelu, Normal, One, Uniform, Xavier, Zero, create
from ..ndarray import NDArray
from ..ndarray.growing_table import normal_rows, uniform_rows
from ..ndarray.row_source import FetchedArray, parts
from ..ops.dtypes import torch_dtype


class InitialRows:
    """Initial values of a table, which are made or read in parts.

    They do not depend on which process makes them.

    Args:
        like: an array of the table's shape and type.
        rows: ``(seed, numbers) -> rows``, for some rows of one of the `parts`.
    """

    def __init__(self, like: NDArray, rows: Callable[[int, torch.Tensor], torch.Tensor]) -> None:
        self.shape, self.rows = like.shape, rows
        self._seed: int | None = None

    @property
    def seed(self) -> int:
        """The seed of this process."""
        if self._seed is None:
            self._seed = generators.drawn_seed()
        return self._seed

    @classmethod
    def of(
        cls, initializer: Any, name: str, attributes: Mapping[str, str] | None, like: NDArray
    ) -> InitialRows | None:
        """Return the values of a parameter; None if its initializer cannot fill a part of an array."""
        kinds = Uniform, Normal, Xavier, MSRAPrelu, Zero, One
        if type(initializer) not in kinds or "__init__" in (attributes or {}):
            return None
        desc = InitDesc(name, attributes)
        return cls(like, partial(_drawn, initializer, desc, like.shape, torch_dtype(dtype_name(like.dtype))))

    @classmethod
    def of_array(cls, array: FetchedArray) -> InitialRows:
        """Return the rows of an array, which are fetched part by part."""
        return cls(array, lambda seed, numbers: array.source.look_up(numbers))

    def fill(self, tensor: torch.Tensor) -> None:
        """Fill a tensor with all rows."""
        for begin, end in parts(self.shape[0]):
            tensor[begin:end].copy_(self.rows(self.seed, torch.arange(begin, end)))


def _drawn(
    initializer: Any,
    desc: InitDesc,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    seed: int,
    numbers: torch.Tensor,
) -> torch.Tensor:
    """Return rows of one part, whose numbers are drawn from a generator keyed by seed, name and part."""
    if not len(numbers):
        return torch.empty((0, *shape[1:]), dtype=dtype)
    begin, end = next((begin, end) for begin, end in parts(shape[0]) if numbers[0] < end)
    found = _Part(torch.zeros((end - begin, *shape[1:]), dtype=dtype), shape)
    generator = generators.generator(cpu())
    state = generator.get_state()
    key = np.random.SeedSequence([seed, zlib.crc32(desc.encode()), begin]).generate_state(1)
    generator.manual_seed(int(key[0]))
    try:
        initializer(desc, found)
    finally:
        generator.set_state(state)
    return found.raw[numbers - begin]


def rows_by_id(
    initializer: Any, name: str, attributes: Mapping[str, str] | None, width: int
) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Return a function of ids and a seed that returns initial rows.

    Raises:
        ArgumentError: the initializer cannot make a single row.
    """
    if text := (attributes or {}).get("__init__"):
        kind, options = json.loads(text)
        initializer = create(kind, **options)
    initializer = create(initializer) if isinstance(initializer, str) else initializer
    if type(initializer) is Uniform:
        return lambda ids, seed: (2 * uniform_rows(ids, width, seed) - 1) * initializer.scale
    if type(initializer) is Normal:
        return lambda ids, seed: normal_rows(ids, width, seed) * initializer.sigma
    constant = {Zero: 0.0, One: 1.0}.get(type(initializer), getattr(initializer, "value", None))
    if not isinstance(constant, (int, float)):
        raise ArgumentError(
            f"{name} with hash_rows=True: initializer is {initializer!r}, which needs the whole table; pass Uniform, "
            "Normal, Zero, One or Constant, or give the variable one: mx.sym.Variable(name, init=mx.init.Uniform(0.01))"
        )
    return lambda ids, seed: torch.full((len(ids), width), float(constant))


class _Part(NDArray):
    """Some rows of a table, with the shape of the table, which initializers use for the scale."""

    __slots__ = ("whole",)

    def __init__(self, rows: torch.Tensor, whole: tuple[int, ...]) -> None:
        super().__init__(rows, cpu())
        self.whole = whole

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole
