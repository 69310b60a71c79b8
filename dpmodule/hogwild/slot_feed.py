"""`SlotFeed`: how the slots of a feed become the inputs of a symbol: their shapes, types, and batches of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from ..base import ArgumentError, BoundsError, DTypeError, FileFormatError, ShapeError, StateError, dtype_from_code
from ..context import cpu
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from ..symbol import Symbol
from .data_feed import FileBatches, Part

__all__ = ["SlotFeed", "feed_of"]

_FLOATING = ("float16", "float32", "float64", "bfloat16")
_LOOKUPS = ("Embedding",)


@dataclass(frozen=True, slots=True)
class SlotFeed:
    """The inputs of a symbol as a feed gives them.

    Args:
        desc: description of the feed, with the slots dense and used as the symbol wants them.
        data: descriptions of the inputs.
        labels: descriptions of the labels.
        tables: for a slot whose values are row numbers of tables the smallest of these, by name, and its rows.
    """

    desc: Any
    data: tuple[DataDesc, ...]
    labels: tuple[DataDesc, ...]
    tables: Mapping[str, tuple[str, int]]

    def batch(self, lines: Any) -> DataBatch:
        """Return a `FeedBatch` as the `DataBatch` of these descriptions, without a copy where types agree.

        Raises:
            FileFormatError: a dense slot has another number of values than was bound.
            BoundsError: a value is no row of the table that is looked up.
        """
        for name, (table, rows) in self.tables.items():
            _check_rows(lines, name, table, rows)
        return DataBatch([_array(d, lines) for d in self.data], [_array(d, lines) for d in self.labels])


def _array(desc: DataDesc, lines: Any) -> NDArray:
    """Return the values of one slot in the shape and type of a description."""
    values = lines.slots[desc.name].values
    dtype = getattr(torch, dtype_of(desc))
    if values.dtype is not dtype:
        values = values.to(dtype)
    width = 1 if len(desc.shape) == 1 else desc.shape[1]
    if values.shape[1] != width:
        raise FileFormatError(
            f"{lines.file}: slot {desc.name!r} has {values.shape[1]} values in the lines from line {lines.first_line} on, "
            f"expected {width}, as the program was bound"
        )
    return NDArray(values.view(-1) if len(desc.shape) == 1 else values, cpu())


def dtype_of(desc: DataDesc) -> str:
    """Return the name of a description's element type."""
    from ..base import dtype_name

    return dtype_name(desc.dtype)


def _check_rows(lines: Any, name: str, table: str, rows: int) -> None:
    values, offsets = lines.slots[name]
    if not values.numel():
        return
    low, high = (int(each) for each in values.aminmax())
    if low >= 0 and high < rows:
        return
    flat = values.reshape(-1)
    at = int(((flat < 0) | (flat >= rows)).nonzero()[0])
    row = int(torch.searchsorted(offsets, at, right=True)) - 1
    number = int(flat[at])
    shown = number if number >= 0 else number + 2**64
    raise BoundsError(
        f"slot {name!r} has the value {shown}, which is no row of the table {table!r}: it has {rows} rows; the value is "
        f"in row {row} of the batch that begins in line {lines.first_line} of {lines.file}"
    )


def feed_of(
    symbol: Symbol,
    desc: Any,
    data_names: Sequence[str],
    label_names: Sequence[str],
    parts: Sequence[Part],
    bound: Mapping[str, tuple[int, ...]],
) -> SlotFeed:
    """Find out how a feed's slots become the inputs of a symbol.

    Args:
        symbol: the symbol.
        desc: description of the feed.
        data_names: which of its arguments are inputs.
        label_names: which are labels.
        parts: where a first line is looked for, should the size of a dense slot not be known otherwise.
        bound: shapes of inputs that are known already.

    Raises:
        ArgumentError: an input is no slot, or a slot is none that can feed it.
        ShapeError: shapes contradict each other.
        StateError: the size of a dense slot is not known, and there is no line in any file.
    """
    names = [*data_names, *label_names]
    slots = {slot.name: slot for slot in desc.slots}
    missing = [name for name in names if name not in slots]
    if missing:
        raise ArgumentError(
            f"{', '.join(missing)}: the program has inputs that are no slots of the feed; its slots are {', '.join(slots)}"
        )
    attributes = symbol.attr_dict()
    own = _as_declared(desc, names, attributes)
    shapes = _shapes(symbol, own, names, attributes, parts, bound)
    types = _types(symbol, names, slots, attributes)
    descs = {name: DataDesc(name, shapes[name], types[name]) for name in names}
    return SlotFeed(
        own,
        tuple(descs[name] for name in data_names),
        tuple(descs[name] for name in label_names),
        _tables(symbol, names),
    )


def _as_declared(desc: Any, names: Sequence[str], attributes: Mapping[str, Mapping[str, str]]) -> Any:
    """Return a copy of a description in which slots are used, and dense, as variables are declared."""
    own = deepcopy(desc)
    own.set_use_slots(list(names))
    own.set_dense_slots([name for name in names])
    return own


# shapes


def _declared(attributes: Mapping[str, str]) -> tuple[int, ...] | None:
    text = attributes.get("__shape__")
    if text is None:
        return None
    found = ast.literal_eval(text)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _shapes(
    symbol: Symbol,
    desc: Any,
    names: Sequence[str],
    attributes: Mapping[str, Mapping[str, str]],
    parts: Sequence[Part],
    bound: Mapping[str, tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs for a full batch."""
    size = desc.batch_size
    known: dict[str, tuple[int, ...]] = {}
    for name in names:
        given = bound.get(name) or _declared(attributes.get(name, {}))
        if given is None or any(axis <= 0 for axis in given[1:]) or not given:
            continue
        if len(given) > 2:
            raise ShapeError(
                f"variable {name!r} is declared with the shape {given}; a slot feeds (N,) or (N, values a line)"
            )
        known[name] = (size, *given[1:])
    unknown = [name for name in names if name not in known]
    widths = _widths(desc, unknown, parts) if unknown else {}
    known.update({name: (size, width) for name, width in widths.items() if width != 1})
    return _settled(symbol, known, [name for name in unknown if widths[name] == 1], size)


def _settled(
    symbol: Symbol, known: dict[str, tuple[int, ...]], single: list[str], size: int
) -> dict[str, tuple[int, ...]]:
    """Choose between (N,) and (N, 1) for slots of one value a line: as the graph around them says, else (N, 1)."""
    while single:
        found = dict(zip(symbol.list_arguments(), symbol.infer_shape_partial(**known)[0]))
        said = {name: found[name] for name in single if found[name] in ((size,), (size, 1))}
        known.update(said or {single[0]: (size, 1)})
        single = [name for name in single if name not in known]
    return known


def _widths(desc: Any, names: Sequence[str], parts: Sequence[Part]) -> dict[str, int]:
    """Return how many values a line has for some dense slots, as the first line says."""
    one = deepcopy(desc)
    one.batch_size = 1
    rest: Iterator[Part] = iter(parts)
    batches = iter(FileBatches(one, lambda: next(rest, None), "skip"))
    try:
        first = next(batches, None)
    finally:
        batches.close()  # type: ignore[attr-defined]  # it is a generator: what it has opened is closed
    if first is None:
        raise StateError(
            f"no file has a line, so that it is not known how many values {', '.join(names)} have; declare the variable "
            "with its shape, as in Variable(name, shape=(0, 13))"
        )
    return {name: int(first.slots[name].values.shape[1]) for name in names}


# types


def _types(
    symbol: Symbol, names: Sequence[str], slots: Mapping[str, Any], attributes: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return element types: as declared; else whole numbers stay such unless that would make others of the net so."""
    types: dict[str, str] = {}
    for name in names:
        declared = attributes.get(name, {}).get("__dtype__")
        types[name] = "float32" if declared is None else dtype_from_code(int(declared))
        if declared is None and slots[name].type == "uint64" and _stays_floating(symbol, name, names):
            types[name] = "int64"
    return types


def _stays_floating(symbol: Symbol, name: str, inputs: Sequence[str]) -> bool:
    """Say whether all that is not an input is of a floating type if one input is int64."""
    from ..base import dtype_name

    try:
        found, outputs, states = symbol.infer_type_partial(**{name: "int64"})
    except (DTypeError, ArgumentError):
        return False
    others = [each for own, each in zip(symbol.list_arguments(), found) if own not in inputs]
    known = [each for each in (*others, *outputs, *states) if each is not None]
    return all(dtype_name(each) in _FLOATING for each in known)


# tables


def _tables(symbol: Symbol, names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return, for inputs that look-ups read, the smallest table."""
    found: dict[str, tuple[str, int]] = {}
    for node in symbol.graph.nodes:
        if node.op is None or node.op.name not in _LOOKUPS:
            continue
        name, table = (child.name for child, _ in node.inputs[:2])
        is_slot = node.inputs[0][0].op is None and name in names
        if is_slot and (name not in found or found[name][1] > node.a.input_dim):
            found[name] = (table, node.a.input_dim)
    return found
