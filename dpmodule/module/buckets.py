"""`Buckets`: the modules of a bucketing module, made when they are first needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError
from ..name import NameManager
from ..symbol import Symbol
from .module import Module

if TYPE_CHECKING:
    from .types import BucketKey

SymGen = Callable[[Any], tuple[Symbol, Sequence[str], Sequence[str] | None]]
"""From a bucket key to symbol, names of inputs, and names of labels."""


class Buckets(OrderedDict[Any, Module]):
    """Modules by bucket key, the one used longest ago first; empty at the beginning.

    Args:
        options: arguments of every `Module` to come; may be changed later.
        max_buckets: how many to keep; None = all.
    """

    def __init__(self, sym_gen: SymGen, options: Mapping[str, Any], max_buckets: int | None) -> None:
        super().__init__()
        if max_buckets is not None and max_buckets < 1:
            raise ArgumentError(f"max_buckets is {max_buckets}, expected None or a number from 1")
        self._sym_gen = sym_gen
        self._options = options
        self.max_buckets = max_buckets

    def __reduce__(self) -> tuple[Any, ...]:
        return Buckets, (self._sym_gen, self._options, self.max_buckets), None, None, iter(self.items())

    def make(self, key: BucketKey) -> Module:
        """Make the module of a bucket and keep it."""
        try:
            with NameManager():  # layers without a name have the same parameters in every bucket
                found = self._sym_gen(key)
        except (KeyError, IndexError) as error:
            raise ArgumentError(f"bucket key {key!r}: sym_gen has no symbol for it ({error!r})") from error
        if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], Symbol)):
            raise ArgumentError(
                f"bucket key {key!r}: sym_gen returned {found!r}, expected (symbol, data_names, label_names)"
            )
        symbol, data_names, label_names = found
        module = self[key] = Module(symbol, data_names, label_names, **self._options)
        return module

    def drop_others(self, key: BucketKey) -> None:
        """Drop all buckets but one."""
        for other in [k for k in self if k != key]:
            del self[other]

    def evict(self, needed: Collection[Any]) -> None:
        """Drop the buckets used longest ago until there are no more than `max_buckets`."""
        if self.max_buckets is None:
            return
        for key in list(self):
            if len(self) <= self.max_buckets:
                return
            if key not in needed:
                del self[key]

    def contents(self) -> dict[Any, tuple[Symbol, list[str], list[str]]]:
        """Return symbol, names of inputs and names of labels by bucket key."""
        return {key: (m.symbol, m.data_names, m.label_names) for key, m in self.items()}


def with_symbols(sym_gen: SymGen, change: Callable[[Any, Symbol], Symbol]) -> SymGen:
    """Return a `sym_gen` that names the inputs of another one and changes its symbols.

    Args:
        change: ``(bucket_key, symbol) -> symbol``.
    """

    def generate(key: BucketKey) -> tuple[Symbol, Sequence[str], Sequence[str] | None]:
        symbol, data_names, label_names = sym_gen(key)
        return change(key, symbol), data_names, label_names

    return generate
