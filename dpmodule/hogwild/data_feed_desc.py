"""`DataFeedDesc`: the slots of the lines of text files, and the batch size."""

from __future__ import annotations

import copy
import math
import os
import shlex
from collections.abc import Iterable
from typing import Any

from .._files import regular_file
from ..base import ArgumentError, FileError, FileFormatError, UnknownNameError, did_you_mean
from ..streams import Slot
from .prototxt import FieldKind, ParsedValue, ProtoMessage, quoted, read, syntax_error

_FEED_NAMES = ("MultiSlotDataFeed", "MultiSlotInMemoryDataFeed")
_BATCH_SIZE = 32

_SLOT = {
    "name": FieldKind("string"),
    "type": FieldKind("string"),
    "is_dense": FieldKind("bool"),
    "is_used": FieldKind("bool"),
    "shape": FieldKind("int32", repeated=True),
}
_SCHEMA = {
    "name": FieldKind("string"),
    "batch_size": FieldKind("int32"),
    "pipe_command": FieldKind("string"),
    "multi_slot_desc": FieldKind({"slots": FieldKind(_SLOT, repeated=True)}),
}


class DataFeedDesc:
    r"""Description of lines in MultiSlot format: their slots, the used slots, and the batch size.

    The description is in the text format of protocol buffers, with the fields of Paddle's DataFeedDesc::

        name: "MultiSlotDataFeed"
        batch_size: 2
        multi_slot_desc {
            slots { name: "words" type: "uint64" is_dense: false is_used: true }
            slots { name: "label" type: "uint64" is_dense: true  is_used: true }
        }

    The type of a slot is "uint64" or "float"; is_dense means that every line has the same number of values, is_used
    that the values are used; both default to false. ``shape: [2, 3]`` of a dense slot means 6 values; with a dimension
    that is not positive, the number is open. `batch_size` defaults to 32.

    Args:
        description: a path, or the text itself: a string with a brace or a newline.
        allow_pipe_command: whether to allow a `pipe_command` other than ``cat``: a program in the description that
            reads each file and writes the lines. It runs as the user of this process, without a shell.

    Attributes:
        name: name of the feed in Paddle; default "MultiSlotDataFeed".
        batch_size: number of lines in a batch.
        pipe_command: the program that reads each file, "cat" for none.
        slots: the slots in the order of a line, as `dpmodule.streams.Slot`.
        shapes: values of ``shape`` by slot.

    Raises:
        FileError: the file does not exist or cannot be read.
        FileFormatError: the description is not valid: an unknown field, two slots with one name, a batch size below 1;
            the text names line and column (from 1) of the wrong token.
        ArgumentError: there is a `pipe_command`, but `allow_pipe_command` is False.

    Example:
        >>> feed = DataFeedDesc('multi_slot_desc { slots { name: "words" type: "uint64" } }')
        >>> feed.set_use_slots(["words"])
        >>> feed.batch_size, feed.slots
        (32, [Slot(name='words', type='uint64', is_dense=False, is_used=True, width=None)])

    Source: Paddle's DataFeedDesc, which raises ParseError for syntax errors, and accepts batch sizes below 1.
    """

    def __init__(self, description: Any, *, allow_pipe_command: bool = False) -> None:
        text, self._source = _read_description(description)
        message = read(text, _SCHEMA, self._source)
        self.name = self._feed_name(message)
        batch_size = message.one("batch_size", _BATCH_SIZE)
        if batch_size.value < 1:
            raise self._error(batch_size, "a batch_size of 1 or more")
        self._batch_size: int = batch_size.value
        self._pipe_command = self._read_command(message, allow_pipe_command)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._slots = self._read_slots(message)

    @property
    def batch_size(self) -> int:
        """Number of lines in a batch; see `set_batch_size`."""
        return self._batch_size

    @property
    def pipe_command(self) -> str:
        """The program that reads each file, "cat" for none."""
        return self._pipe_command

    @property
    def slots(self) -> list[Slot]:
        """The slots in the order of a line."""
        return list(self._slots.values())

    @property
    def used_slots(self) -> list[Slot]:
        """The used slots in the order of a line."""
        return [slot for slot in self._slots.values() if slot.is_used]

    def set_batch_size(self, batch_size: int) -> None:
        """Set the batch size.

        Args:
            batch_size: number of lines, from 1.

        Raises:
            ArgumentError: it is not an integer from 1.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size < 2**31:
            raise ArgumentError(
                f"set_batch_size: batch_size is {batch_size!r}, expected an integer from 1 to 2^31 - 1"
            )
        self._batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Iterable[str]) -> None:
        """Mark slots as dense: every line has the same number of values; other slots do not change.

        Args:
            dense_slots_name: list of existing names.

        Raises:
            ArgumentError: the argument is a string, not a list of names.
            UnknownNameError: a name is unknown; then no slot changes.
        """
        for name in self._checked_names("set_dense_slots", dense_slots_name):
            self._change(name, is_dense=True)

    def set_use_slots(self, use_slots_name: Iterable[str]) -> None:
        """Mark slots as used; other slots do not change.

        Args:
            use_slots_name: list of existing names.

        Raises:
            ArgumentError: the argument is a string, not a list of names.
            UnknownNameError: a name is unknown; then no slot changes.
        """
        for name in self._checked_names("set_use_slots", use_slots_name):
            self._change(name, is_used=True)

    def without_pipe_command(self) -> DataFeedDesc:
        """Return a copy without `pipe_command`, for the output of the program."""
        other = copy.copy(self)
        other._slots, other.shapes, other._pipe_command = dict(self._slots), dict(self.shapes), "cat"
        return other

    def desc(self) -> str:
        """Return the description as text, which `DataFeedDesc` can read."""
        lines = [f"name: {quoted(self.name)}", f"batch_size: {self.batch_size}", "multi_slot_desc {"]
        for slot in self._slots.values():
            lines += [
                "  slots {",
                f"    name: {quoted(slot.name)}",
                f"    type: {quoted(slot.type)}",
                f"    is_dense: {str(slot.is_dense).lower()}",
                f"    is_used: {str(slot.is_used).lower()}",
                *(f"    shape: {size}" for size in self.shapes.get(slot.name, ())),
                "  }",
            ]
        return "\n".join([*lines, "}", f"pipe_command: {quoted(self.pipe_command)}", ""])

    def __repr__(self) -> str:
        slots = ", ".join(slot.name if slot.is_used else f"({slot.name})" for slot in self._slots.values())
        return f"<DataFeedDesc {self._source}: batch_size {self.batch_size}, slots {slots}>"

    def _checked_names(self, call: str, names: Any) -> list[str]:
        if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
            raise ArgumentError(f"{call}: got {names!r}, expected a list of names, such as [{names!r}]")
        wanted = list(names)
        for name in wanted:
            if name not in self._slots:
                known = ", ".join(self._slots)
                hint = did_you_mean(str(name), self._slots)
                raise UnknownNameError(f"{call}: slot {name!r} does not exist; the slots are {known}{hint}")
        return wanted

    def _change(self, name: str, *, is_dense: bool = False, is_used: bool = False) -> None:
        slot = self._slots[name]
        self._slots[name] = self._slot(name, slot.type, slot.is_dense or is_dense, slot.is_used or is_used)

    def _slot(self, name: str, type: str, is_dense: bool, is_used: bool) -> Slot:
        shape = self.shapes.get(name)
        is_known = is_dense and shape and min(shape) > 0
        return Slot(name, type, is_dense, is_used, math.prod(shape) if shape and is_known else None)

    # reading

    def _error(self, given: ParsedValue, expected: str) -> FileFormatError:
        return syntax_error(self._source, given.token, expected)

    def _feed_name(self, message: ProtoMessage) -> str:
        given = message.one("name", _FEED_NAMES[0])
        if given.value not in _FEED_NAMES:
            raise self._error(given, f"the name {' or '.join(map(repr, _FEED_NAMES))}, the supported feeds")
        return str(given.value)

    def _read_command(self, message: ProtoMessage, is_allowed: bool) -> str:
        entry = message.one("pipe_command", "cat")
        try:
            words = shlex.split(entry.value)
        except ValueError as error:
            raise self._error(entry, f"a command in shell syntax ({error})") from error
        if words in ([], ["cat"]):
            return "cat"
        if "\0" in entry.value:
            raise self._error(entry, "a command without the character 0")
        if not is_allowed:
            raise ArgumentError(
                f"{self._source}: line {entry.token.line}, column {entry.token.column}: pipe_command is "
                f"{entry.value!r}, a program that would read every file; if you trust the description, use "
                "DataFeedDesc(..., allow_pipe_command=True)"
            )
        return str(entry.value)

    def _read_slots(self, message: ProtoMessage) -> dict[str, Slot]:
        owner = message.one("multi_slot_desc").value
        if owner is None or not owner.all("slots"):
            place = ParsedValue(None, message.end if owner is None else owner.end)
            raise self._error(
                place, 'multi_slot_desc { slots { name: "..." type: "..." } } with one or more slots'
            )
        slots: dict[str, Slot] = {}
        for slot_entry in owner.all("slots"):
            name, type = slot_entry.value.one("name"), slot_entry.value.one("type")
            if not name.value:
                raise self._error(name, "the name of the slot")
            if name.value in slots:
                raise self._error(name, "another name, since an earlier slot has this one")
            if type.value not in ("uint64", "float"):
                raise self._error(type, f'the type "uint64" or "float" of slot {name.value!r}')
            flags = [slot_entry.value.one(flag, False).value for flag in ("is_dense", "is_used")]
            if slot_entry.value.all("shape"):
                self.shapes[name.value] = tuple(size.value for size in slot_entry.value.all("shape"))
            slots[name.value] = self._slot(name.value, type.value, *flags)
        return slots


def _read_description(description: Any) -> tuple[str, str]:
    """Return the text of a description, and its name in errors."""
    if isinstance(description, str) and any(mark in description for mark in "{}\n"):
        return description, "DataFeedDesc text"
    if not isinstance(description, (str, os.PathLike)) or not os.fspath(description):
        raise ArgumentError(
            f"DataFeedDesc: got {description!r}, expected a path or the text of a description"
        )
    path = os.fsdecode(description)
    try:
        with open(path, "rb", opener=regular_file) as file:
            data = file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(
            getattr(error, "errno", None) or 0, f"DataFeedDesc: cannot read the description: {reason}", path
        ) from error
    try:
        return data.decode(), path
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        raise FileFormatError(
            f"{path}: line {line}, column {column}: found a byte 0x{data[error.start]:02x}, expected text in UTF-8"
        ) from error
