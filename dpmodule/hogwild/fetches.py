"""What a run averages: fetches, found among the outputs of a symbol, inside it, or among its inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import ArgumentError, ShapeError, did_you_mean
from ..symbol import BlockGrad as block_gradient
from ..symbol import Group, Symbol
from .slot_feed import SlotFeed


@dataclass(frozen=True, slots=True)
class Fetch:
    """One value that is averaged.

    Args:
        output: its position among the heads; None for an input, which is read from the batch.
    """

    name: str
    output: int | None


@dataclass(frozen=True, slots=True)
class Fetches:
    """What a run averages, and the symbol that has it all among its outputs.

    Args:
        items: in the caller's order.
        heads: the program's outputs, and those behind them that are only fetched.
    """

    items: tuple[Fetch, ...]
    heads: Symbol

    @classmethod
    def find(cls, symbol: Symbol, fetch: Any, slots: Collection[str]) -> Fetches:
        """Find what is to be fetched.

        Args:
            fetch: names or symbols, or one alone; None: nothing.
        """
        given: Sequence[Any] = (
            fetch if isinstance(fetch, (list, tuple)) else () if fetch is None else (fetch,)
        )
        outputs = symbol.list_outputs()
        extras: list[Symbol] = []
        items = []
        for each in given:
            name, found = _named(symbol, each, slots)
            if found is None:
                items.append(Fetch(name, None))
            elif found.list_outputs()[0] in outputs:
                items.append(Fetch(name, outputs.index(found.list_outputs()[0])))
            else:
                items.append(Fetch(name, len(outputs) + len(extras)))
                extras.append(block_gradient(found, name=f"fetch{len(extras)}_{found.name}"))
        return cls(tuple(items), Group([symbol, *extras]) if extras else symbol)

    @property
    def names(self) -> list[str]:
        """What the caller calls them."""
        return [each.name for each in self.items]

    def check_shapes(self, feed: SlotFeed) -> None:
        """Refuse what is no one number a line."""
        inputs: Mapping[str, tuple[int, ...]] = {each.name: each.shape for each in (*feed.data, *feed.labels)}
        shapes = self.heads.infer_shape_partial(**inputs)[1]
        for each in self.items:
            shape = inputs[each.name] if each.output is None else tuple(shapes[each.output])
            lines = feed.desc.batch_size
            if len(shape) and shape[-1] != 1 and shape != (lines,):
                raise ShapeError(
                    f"fetch: {each.name!r} has the shape {shape}; what can be averaged has one number a line, of shape "
                    f"({lines},), ({lines}, 1) or ragged, or is one number"
                )


def _named(symbol: Symbol, given: Any, slots: Collection[str]) -> tuple[str, Symbol | None]:
    """Return what a fetch is called, and its symbol; None for an input."""
    if isinstance(given, Symbol):
        return _of_symbol(symbol, given, slots)
    if not isinstance(given, str):
        raise ArgumentError(
            f"fetch: {given!r} is of type {type(given).__name__}, expected a name or a Symbol"
        )
    if given in slots:
        return given, None
    internals = symbol.get_internals()
    names = internals.list_outputs()
    known = [*symbol.list_outputs(), *names]
    for name in (given, f"{given}_output"):
        if name in symbol.list_outputs():
            return given, symbol[name]
        if name in names:
            return given, internals[name]
    raise ArgumentError(
        f"fetch: {given!r} is no output or slot of the program; its outputs are {', '.join(symbol.list_outputs())}"
        f"{did_you_mean(given, known)}"
    )


def _of_symbol(symbol: Symbol, given: Symbol, slots: Collection[str]) -> tuple[str, Symbol | None]:
    if len(given.entries) != 1:
        raise ArgumentError(
            f"fetch: {given!r} has {len(given.entries)} outputs; give those that are meant one by one"
        )
    name = given.list_outputs()[0]
    if given.entries[0][0].op is None and name in slots:
        return name, None
    unknown = [each for each in given.list_inputs() if each not in symbol.list_inputs()]
    if unknown:
        raise ArgumentError(
            f"fetch: {name!r} depends on {', '.join(unknown)}, which the program does not have: is it of another one?"
        )
    return name, given
