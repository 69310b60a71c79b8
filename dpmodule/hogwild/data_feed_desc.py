"""`DataFeedDesc`: the slots of a text file's lines, and how many lines make a batch."""

from __future__ import annotations

import copy
import math
import os
import shlex
from collections.abc import Iterable
from typing import Any

from .._files import regular_file
from ..base import ArgumentError, FileError, FileFormatError, did_you_mean
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


class UnknownSlotError(ArgumentError, KeyError):
    """A name that no slot has."""

    __str__ = Exception.__str__  # KeyError's puts quotes around it


class DataFeedDesc:
    r"""Describe lines in MultiSlot format: which slots they have, which of them are used, and the size of batches.

    The description is in the text format of protocol buffers, with the fields of Paddle's DataFeedDesc::

        name: "MultiSlotDataFeed"
        batch_size: 2
        multi_slot_desc {
            slots { name: "words" type: "uint64" is_dense: false is_used: true }
            slots { name: "label" type: "uint64" is_dense: true  is_used: true }
        }

    A slot's type is "uint64" or "float"; is_dense says that every line has as many values, is_used that they are
    wanted; both are false where they are not given. ``shape: [2, 3]``, of a dense slot, says how many: 6; a dimension
    that is not positive leaves it open. `batch_size` is 32 where it is not given.

    Args:
        description: a path, or the text itself, which is a string with a brace or a line's end in it.
        allow_pipe_command: a `pipe_command` other than ``cat`` may be run: a program, named by the description, that
            reads each file and writes the lines. It runs as the user of this process, without a shell.

    Attributes:
        name: which feed of Paddle it describes; "MultiSlotDataFeed" where it does not say.
        batch_size: lines of a batch.
        pipe_command: the program that files go through, "cat" for none.
        slots: the slots in the order of a line, as `dpmodule.streams.Slot`.
        shapes: what ``shape`` says, by the name of the slot.

    Raises:
        FileError: there is no such file, or it cannot be read.
        FileFormatError: the text is no such description: an unknown field, two slots of one name, a batch size below
            1; names line and column (from 1) of the wrong token.
        ArgumentError: there is a `pipe_command`, and `allow_pipe_command` was not given.

    Example:
        >>> feed = DataFeedDesc('multi_slot_desc { slots { name: "words" type: "uint64" } }')
        >>> feed.set_use_slots(["words"])
        >>> feed.batch_size, feed.slots
        (32, [Slot(name='words', type='uint64', is_dense=False, is_used=True, width=None)])

    Source: Paddle's DataFeedDesc, which raises ParseError for what is wrong, and takes batch sizes below 1.
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
        """Lines of a batch; see `set_batch_size`."""
        return self._batch_size

    @property
    def pipe_command(self) -> str:
        """The program that files go through, "cat" for none."""
        return self._pipe_command

    @property
    def slots(self) -> list[Slot]:
        """The slots in the order of a line."""
        return list(self._slots.values())

    @property
    def used_slots(self) -> list[Slot]:
        """The slots whose values are wanted, in the order of a line."""
        return [slot for slot in self._slots.values() if slot.is_used]

    def set_batch_size(self, batch_size: int) -> None:
        """Set how many lines make a batch.

        Args:
            batch_size: lines, from 1.

        Raises:
            ArgumentError: it is no integer from 1.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size < 2**31:
            raise ArgumentError(
                f"set_batch_size: batch_size is {batch_size!r}, expected an integer from 1 to 2^31 - 1"
            )
        self._batch_size = batch_size

    def set_dense_slots(self, dense_slots_name: Iterable[str]) -> None:
        """Say of slots that every line has as many values of them; the others stay as they are.

        Args:
            dense_slots_name: names, as the description has them.

        Raises:
            ArgumentError: a string was given for the list of names.
            UnknownSlotError: there is no slot of a name; then none is changed.
        """
        for name in self._checked_names("set_dense_slots", dense_slots_name):
            self._change(name, is_dense=True)

    def set_use_slots(self, use_slots_name: Iterable[str]) -> None:
        """Say of slots that their values are wanted; the others stay as they are.

        Args:
            use_slots_name: names, as the description has them.

        Raises:
            ArgumentError: a string was given for the list of names.
            UnknownSlotError: there is no slot of a name; then none is changed.
        """
        for name in self._checked_names("set_use_slots", use_slots_name):
            self._change(name, is_used=True)

    def without_pipe_command(self) -> DataFeedDesc:
        """Return a copy for files that have gone through the program."""
        other = copy.copy(self)
        other._slots, other.shapes, other._pipe_command = dict(self._slots), dict(self.shapes), "cat"
        return other

    def desc(self) -> str:
        """Return the description as text, from which `DataFeedDesc` makes the same again."""
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
                raise UnknownSlotError(f"{call}: there is no slot {name!r}; the slots are {known}{hint}")
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
            raise self._error(
                given, f"the name {' or '.join(map(repr, _FEED_NAMES))}, the only feeds that there are here"
            )
        return str(given.value)

    def _read_command(self, message: ProtoMessage, is_allowed: bool) -> str:
        given = message.one("pipe_command", "cat")
        try:
            words = shlex.split(given.value)
        except ValueError as error:
            raise self._error(given, f"a command in the words of a shell ({error})") from error
        if words in ([], ["cat"]):
            return "cat"
        if "\0" in given.value:
            raise self._error(given, "a command without the character 0")
        if not is_allowed:
            raise ArgumentError(
                f"{self._source}: line {given.token.line}, column {given.token.column}: pipe_command is "
                f"{given.value!r}, a program that every file would go through; if you trust the description, say "
                "DataFeedDesc(..., allow_pipe_command=True)"
            )
        return str(given.value)

    def _read_slots(self, message: ProtoMessage) -> dict[str, Slot]:
        owner = message.one("multi_slot_desc").value
        if owner is None or not owner.all("slots"):
            place = ParsedValue(None, message.end if owner is None else owner.end)
            raise self._error(
                place, 'multi_slot_desc { slots { name: "..." type: "..." } } with one slot or more'
            )
        found: dict[str, Slot] = {}
        for given in owner.all("slots"):
            name, type = given.value.one("name"), given.value.one("type")
            if not name.value:
                raise self._error(name, "the name of the slot")
            if name.value in found:
                raise self._error(name, "another name, since a slot before has this one")
            if type.value not in ("uint64", "float"):
                raise self._error(type, f'the type "uint64" or "float" of slot {name.value!r}')
            flags = [given.value.one(flag, False).value for flag in ("is_dense", "is_used")]
            if given.value.all("shape"):
                self.shapes[name.value] = tuple(size.value for size in given.value.all("shape"))
            found[name.value] = self._slot(name.value, type.value, *flags)
        return found


def _read_description(description: Any) -> tuple[str, str]:
    """Return the text of a description, and what errors call it."""
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
