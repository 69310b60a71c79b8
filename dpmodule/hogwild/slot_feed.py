"""`SlotFeed`: maps the slots of a feed to the inputs of a symbol, with their shapes and types."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..base import (
    ArgumentError,
    BoundsError,
    DTypeError,
    MXNetError,
    ShapeError,
    StateError,
    did_you_mean,
    dtype_from_code,
    dtype_name,
)
from ..context import cpu
from ..executor.storage_types import declared_storage_types
from ..io import DataBatch, DataDesc
from ..module.class_labels import NetworkInputs, find_invalid_label, reads_classes
from ..ndarray import NDArray
from ..ndarray.ragged import RaggedNDArray
from ..ops.attrs import literal
from ..streams import Slot
from ..symbol import Symbol
from .data_feed import FeedBatch, first_batch
from .data_files import FileRange

_logger = logging.getLogger(__name__)

_FLOATING = ("float16", "float32", "float64", "bfloat16")
_LOOKUPS = ("Embedding",)
_CPU = cpu()


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Description of lines with the slots that a program needs, in place of a `DataFeedDesc`.

    Args:
        slots: the slots in the order of a line.
    """

    slots: tuple[Slot, ...]
    batch_size: int
    pipe_command: str

    @property
    def used_slots(self) -> list[Slot]:
        """The used slots."""
        return [slot for slot in self.slots if slot.is_used]


@dataclass(frozen=True, slots=True)
class SlotFeed:
    """Inputs of a symbol from a feed.

    Args:
        desc: description of the lines, with slots dense, used and as wide as the symbol needs them.
        types: torch types of the inputs by name.
        tables: name and number of rows of the smallest table that a slot indexes, by slot.
    """

    desc: Any
    data: tuple[DataDesc, ...]
    labels: tuple[DataDesc, ...]
    types: Mapping[str, torch.dtype]
    tables: Mapping[str, tuple[str, int]]

    def batch(self, lines: FeedBatch) -> DataBatch:
        """Return lines as a batch of these inputs, without a copy if types agree."""
        for name, (table, rows) in self.tables.items():
            _check_rows(lines, name, table, rows)
        return DataBatch(
            [self._array(desc, lines) for desc in self.data],
            [self._array(desc, lines) for desc in self.labels],
        )

    def input(self, name: str, lines: FeedBatch) -> Any:
        """Return the values of one slot as an input array."""
        return next(self._array(desc, lines) for desc in (*self.data, *self.labels) if desc.name == name)

    def _array(self, desc: DataDesc, lines: FeedBatch) -> Any:
        """Return the values of one slot in the shape and type of a description."""
        values, offsets = lines.slots[desc.name]
        dtype = self.types[desc.name]
        if values.dtype is not dtype:
            values = values.to(dtype)
        if desc.stype == "ragged":
            return RaggedNDArray(values.reshape(-1), offsets, _CPU)
        return NDArray(values.view(-1) if len(desc.shape) == 1 else values, _CPU)


def _check_rows(lines: FeedBatch, name: str, table: str, rows: int) -> None:
    values, offsets = lines.slots[name]
    if not values.numel():
        return
    low, high = map(int, values.aminmax())
    if low >= 0 and high < rows:
        return
    flat = values.reshape(-1)
    at = int(((flat < 0) | (flat >= rows)).nonzero()[0])
    row = int(torch.searchsorted(offsets, at, right=True)) - 1
    number = int(flat[at])
    shown = number if number >= 0 else number + 2**64
    raise BoundsError(
        f"slot {name!r} has the value {shown}, which is not a row of the table {table!r} with {rows} rows; the value "
        f"is in row {row} of the batch that begins in line {lines.first_line} of {lines.file}"
    )


def feed_of(
    symbol: Symbol,
    desc: Any,
    data_names: Sequence[str],
    label_names: Sequence[str],
    parts: Sequence[FileRange],
    bound: Mapping[str, tuple[int, ...]],
    given: Collection[str] = (),
) -> SlotFeed:
    """Return the `SlotFeed` of a symbol.

    Args:
        parts: file ranges, whose first line is read if the size of a dense slot is unknown.
        bound: known shapes of inputs.
    """
    names = [*data_names, *label_names]
    slots = {slot.name: slot for slot in desc.slots}
    attributes = symbol.attr_dict()
    ragged = {name for name, stype in declared_storage_types(symbol.graph).items() if stype == "ragged"}
    certain, possible = _arguments_without_slot(symbol, names, given, attributes, ragged)
    variables = [name for name in symbol.list_arguments() if name in names or name in possible]
    _check_slots([*(name for name in names if name not in slots), *certain], slots, variables)
    lines = LineFormat(
        tuple(_slot_as_declared(slot, names, ragged) for slot in desc.slots),
        desc.batch_size,
        desc.pipe_command,
    )
    known = {
        name: _declared(name, attributes.get(name, {}), bound.get(name), name in ragged) for name in names
    }
    try:
        shapes = _shapes(symbol, lines, known, parts)
    except (ShapeError, StateError):
        if any(slot.is_used and slot.name not in names for slot in desc.slots):  # a name may be misspelt
            _check_slots(possible, slots, variables)
        raise
    if possible:
        _check_slots(_with_unknown_shape(symbol, shapes, possible), slots, variables)
    lines = replace(lines, slots=tuple(_with_width(slot, shapes.get(slot.name)) for slot in lines.slots))
    types = _types(symbol, names, slots, attributes)
    stypes = {name: "ragged" if name in ragged else "default" for name in names}
    descs = {name: DataDesc(name, shapes[name], types[name], stype=stypes[name]) for name in names}
    return SlotFeed(
        lines,
        tuple(descs[name] for name in data_names),
        tuple(descs[name] for name in label_names),
        {name: getattr(torch, dtype_name(desc.dtype)) for name, desc in descs.items()},
        _tables(symbol, names),
    )


def _arguments_without_slot(
    symbol: Symbol,
    names: Sequence[str],
    given: Collection[str],
    attributes: Mapping[str, Mapping[str, str]],
    ragged: Collection[str],
) -> tuple[list[str], list[str]]:
    """Return arguments other than `names` that are not parameters, and arguments that may not be."""
    graph = symbol.graph
    possible = [
        name
        for name in graph.argument_names
        if not (name in names or name in given or name in graph.parameters)
        and "__init__" not in attributes.get(name, {})
    ]
    return [
        name
        for name in possible
        if name in graph.labels or name in ragged or _has_batch_axis(attributes.get(name, {}))
    ], possible


def _has_batch_axis(attributes: Mapping[str, str]) -> bool:
    """Return True if a variable is declared with a batch axis, which parameters do not have."""
    shape = literal(attributes.get("__shape__", "None"))
    return bool(shape) and shape[0] == 0


def _with_unknown_shape(
    symbol: Symbol, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str]
) -> list[str]:
    inferred = dict(zip(symbol.list_arguments(), symbol.infer_shape_partial(**shapes)[0]))
    return [name for name in names if not inferred[name] or 0 in inferred[name]]


def _check_slots(missing: Sequence[str], slots: Collection[str], variables: Sequence[str]) -> None:
    """Raise ArgumentError for inputs without a slot."""
    if missing:
        raise ArgumentError(
            f"slots feed variables of the same name, but there is no slot {' or '.join(missing)}; the feed has the "
            f"slots {', '.join(slots)}, the network the variables {', '.join(variables)}"
            f"{did_you_mean(missing[0], slots)}"
        )


def _slot_as_declared(slot: Slot, names: Sequence[str], ragged: Collection[str]) -> Slot:
    """Return a slot, used and dense as the program declares it."""
    is_used = slot.name in names
    is_dense = slot.is_dense if not is_used else slot.name not in ragged
    return Slot(slot.name, slot.type, is_dense, is_used, slot.width if is_dense else None)


def _with_width(slot: Slot, shape: tuple[int, ...] | None) -> Slot:
    if shape is None or not slot.is_dense:
        return slot
    return replace(slot, width=1 if len(shape) == 1 else shape[1])


# shapes


def _declared(
    name: str, attributes: Mapping[str, str], bound: tuple[int, ...] | None, is_ragged: bool
) -> tuple[int, ...] | None:
    """Return the shape of an input without the batch axis, None if it is unknown."""
    if is_ragged:
        return ()
    text = attributes.get("__shape__")
    shape = tuple(literal(text)) if bound is None and text is not None else bound
    if shape is None or not len(shape):
        return None
    if len(shape) > 2:
        raise ShapeError(
            f"variable {name!r} has the shape {shape}, expected (N,) or (N, values per line) for a slot"
        )
    return None if any(axis <= 0 for axis in shape[1:]) else shape[1:]


def _shapes(
    symbol: Symbol, lines: LineFormat, known: Mapping[str, tuple[int, ...] | None], parts: Sequence[FileRange]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs for a full batch."""
    size = lines.batch_size
    shapes = {name: (size, *rest) for name, rest in known.items() if rest is not None}
    shapes.update(_inferred(symbol, shapes, [name for name in known if name not in shapes], size))
    widths = {slot.name: slot.width for slot in lines.slots if slot.name in known and slot.name not in shapes}
    unknown = [name for name, width in widths.items() if width is None]
    if unknown:
        widths.update(_widths(lines, unknown, parts))
    shapes.update({name: (size, width) for name, width in widths.items() if width is not None and width > 1})
    return _resolve_single_columns(symbol, shapes, [name for name in known if name not in shapes], size)


def _resolve_single_columns(
    symbol: Symbol, known: dict[str, tuple[int, ...]], single: list[str], size: int
) -> dict[str, tuple[int, ...]]:
    """Choose between (N,) and (N, 1) for slots with one value: inferred from the graph, else (N, 1)."""
    while single:
        known.update(_inferred(symbol, known, single, size) or {single[0]: (size, 1)})
        single = [name for name in single if name not in known]
    return known


def _inferred(
    symbol: Symbol, known: Mapping[str, tuple[int, ...]], wanted: Sequence[str], size: int
) -> dict[str, tuple[int, ...]]:
    """Return the inferred shapes of inputs, if a slot can have them."""
    inferred = dict(zip(symbol.list_arguments(), symbol.infer_shape_partial(**known)[0]))
    return {
        name: inferred[name]
        for name in wanted
        if inferred[name][:1] == (size,) and len(inferred[name]) < 3 and 0 not in inferred[name]
    }


def _widths(lines: LineFormat, names: Sequence[str], parts: Sequence[FileRange]) -> dict[str, int]:
    """Return the number of values of dense slots in the first line."""
    one: Any = replace(lines, batch_size=1)
    first = first_batch(one, parts, "skip")
    if first is not None:
        return {name: int(first.slots[name].values.shape[1]) for name in names}
    raise StateError(
        f"the files have no lines, so that the number of values of {', '.join(names)} is unknown; declare the "
        "variable with its shape, as in Variable(name, shape=(0, 13))"
    )


# types


def _types(
    symbol: Symbol,
    names: Sequence[str],
    slots: Mapping[str, Any],
    attributes: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    """Return element types: as declared, else int64 for uint64 slots if all other types stay floating."""
    types: dict[str, str] = {}
    for name in names:
        declared = attributes.get(name, {}).get("__dtype__")
        types[name] = "float32" if declared is None else dtype_from_code(int(declared))
        if declared is None and slots[name].type == "uint64" and _keeps_rest_floating(symbol, name, names):
            types[name] = "int64"
    return types


def _keeps_rest_floating(symbol: Symbol, name: str, inputs: Sequence[str]) -> bool:
    """Return True if all types except those of inputs stay floating with one int64 input."""
    try:
        arguments, outputs, states = symbol.infer_type_partial(**{name: "int64"})
    except (DTypeError, ArgumentError):
        return False
    others = [dtype for own, dtype in zip(symbol.list_arguments(), arguments) if own not in inputs]
    known = [dtype for dtype in (*others, *outputs, *states) if dtype is not None]
    return all(dtype_name(dtype) in _FLOATING for dtype in known)


# tables


def _tables(symbol: Symbol, names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the smallest table of each input that is looked up."""
    tables: dict[str, tuple[str, int]] = {}
    for node in symbol.graph.nodes:
        if node.op is None or node.op.name not in _LOOKUPS:
            continue
        name, table = (child.name for child, _ in node.inputs[:2])
        is_slot = node.inputs[0][0].op is None and name in names and node.a.input_dim is not None
        if is_slot and (name not in tables or tables[name][1] > node.a.input_dim):
            tables[name] = (table, node.a.input_dim)
    return tables


# labels of the first batch, checked before training


def check_first_labels(
    feed: SlotFeed, symbol: Symbol, parts: Sequence[FileRange], on_bad_line: str, check_labels: str
) -> str:
    """Check that labels in the first batch of a run are classes of the network.

    Sources that can be read only once, such as pipes and output of programs, are checked by the workers.

    Returns:
        The action of each worker on labels of its first batch: "ignore" if they are checked here.
    """
    names = [desc.name for desc in (*feed.data, *feed.labels)]
    if check_labels == "ignore" or not reads_classes(symbol, names):
        return "ignore"
    if feed.desc.pipe_command != "cat" or not all(os.path.isfile(part.path) for part in parts):
        return check_labels
    try:
        lines = first_batch(feed.desc, parts, on_bad_line)
    except MXNetError:  # the run raises it
        return "ignore"
    if lines is not None:
        check_labels_of(feed, symbol, lines, check_labels)
    return "ignore"


def check_labels_of(feed: SlotFeed, symbol: Symbol, lines: FeedBatch, check_labels: str) -> None:
    """Check that the labels of a batch are classes of a network."""
    if check_labels == "ignore":
        return
    descs = [*feed.data, *feed.labels]
    shapes = {desc.name: (lines.num_lines, *desc.shape[1:]) for desc in descs}
    labels = {desc.name: feed.input(desc.name, lines) for desc in descs}
    wrong = find_invalid_label(NetworkInputs(symbol, shapes, labels))
    if wrong is None:
        return
    location = f"row {wrong.row} of the batch that begins in line {lines.first_line} of {lines.file}"
    text = f"run_from_files: {wrong.describe(location)}"
    if check_labels == "raise":
        raise BoundsError(f'{text} Correct the files; check_labels="warn" trains on such labels')
    _logger.warning('%s Training continues; check_labels="raise" stops it, "ignore" hides this warning', text)
