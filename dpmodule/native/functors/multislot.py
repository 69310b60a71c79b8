"""MultiSlot text: its description, what parsing it gives, and the parser of programs without the extension."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ...base import ArgumentError, FileFormatError

_MOST = 2**64 - 1
_INTEGER_EXPECTED = f"an integer from 0 to {_MOST}"
_FLOAT_EXPECTED = "a finite decimal number of float32"
_COUNT_EXPECTED = "the number of values"
_DENSE_COUNT_EXPECTED = "the number of values, 1 or more, since the slot is dense"

_INTEGER = re.compile(rb"[0-9]+")
_FLOAT = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_PLAIN_INTEGERS = re.compile(rb"[0-9]{1,19}(?: [0-9]{1,19})*")
_PLAIN_FLOATS = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?: -?[0-9]+(?:\.[0-9]+)?)*")
_WORD = re.compile(rb"[^ \t\r]+")
_TOO_LARGE = 2.0**128 - 2.0**103
"""From here on numbers round to no finite float32."""


@dataclass(frozen=True)
class Slot:
    """A slot of MultiSlot text.

    Args:
        name: what the slot is called.
        type: "uint64" or "float".
        is_dense: every line has the same number of values.
        is_used: the values are returned, not only checked.
        width: how many values every line of a dense slot has; None for as many as the first line.

    Raises:
        ArgumentError: another type, a name that is no text, or a width of a slot that is not dense or below 1.
    """

    name: str
    type: str = "uint64"
    is_dense: bool = False
    is_used: bool = True
    width: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentError(f"slot: name is {self.name!r}, expected text")
        if self.type not in ("uint64", "float"):
            raise ArgumentError(f"slot {self.name!r}: type is {self.type!r}, expected 'uint64' or 'float'")
        if self.width is not None and not (
            self.is_dense and type(self.width) is int and 1 <= self.width < 2**63
        ):
            raise ArgumentError(
                f"slot {self.name!r}: width is {self.width!r}, expected an integer from 1, of a slot that is dense"
            )


class SlotValues(NamedTuple):
    """What was read for one slot; the values of line i are ``values[offsets[i]:offsets[i + 1]]``.

    Args:
        values: of all lines, concatenated.
        offsets: start of each line, and the end of the last one.

    Shape:
        values: (sum of the counts,), int64 or float32; (N lines, count) for a dense slot.
        offsets: (N + 1,), int64, of values, also where they have two axes.
    """

    values: torch.Tensor
    offsets: torch.Tensor


class MultiSlotLines(NamedTuple):
    """What parsing gives.

    Args:
        slots: the used slots by name, in the order of the description.
        consumed: bytes that they take; the rest of the text is a line without end.
        num_bad: bad lines that were passed over.
        passed: for every line that was passed over, blank or bad, how many were read before it.

    Shape:
        passed: (P,), int64, ascending.
    """

    slots: dict[str, SlotValues]
    num_lines: int
    consumed: int
    num_bad: int
    passed: torch.Tensor


Raw = tuple[int, int, list[Any], int, Any]
"""Lines, bytes, buffers of values and offsets of each used slot, bad lines, buffer of the lines passed over."""


def finish(slots: list[Slot], raw: Raw) -> MultiSlotLines:
    """Make tensors of a parser's buffers, without copying."""
    lines, consumed, buffers, bad, passed = raw
    used = [slot for slot in slots if slot.is_used]
    found = {}
    for i, slot in enumerate(used):
        values = _tensor(buffers[2 * i], torch.float32 if slot.type == "float" else torch.int64)
        if slot.is_dense:
            values = values.view(lines, -1 if lines else 0)
        found[slot.name] = SlotValues(values, _tensor(buffers[2 * i + 1], torch.int64))
    return MultiSlotLines(found, lines, consumed, bad, _tensor(passed, torch.int64))


def _tensor(buffer: Any, dtype: torch.dtype) -> torch.Tensor:
    if memoryview(buffer).nbytes == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype)


def parse(
    text: Any,
    slots: list[Slot],
    source: str,
    first_line: int,
    final: bool,
    skip_blank: bool = False,
    skip_bad: bool = False,
) -> Raw:
    """Parse text as the extension does."""
    data = bytes(text)
    lines = data.split(b"\n")
    rest = lines.pop()
    if rest and final:
        lines.append(rest)
        rest = b""
    parser = _Parser(slots, source, first_line)
    for line in lines:
        if skip_blank and not _WORD.search(line):
            parser.pass_over()
        elif skip_bad:
            parser.try_line(line)
        else:
            parser.parse_line(line)
    passed = np.array(parser.passed, np.int64)
    return parser.lines, len(data) - len(rest), parser.buffers(), parser.bad, passed


class _Parser:
    def __init__(self, slots: list[Slot], source: str, first_line: int) -> None:
        self._slots, self._source, self._first_line = slots, source, first_line
        self._values: list[list[Any]] = [[] for _ in slots]
        self._offsets = [[0] for _ in slots]
        self._dims = [slot.width or 0 for slot in slots]
        self.lines, self.bad = 0, 0
        self.passed: list[int] = []

    def pass_over(self) -> None:
        self.passed.append(self.lines)

    def try_line(self, line: bytes) -> None:
        dims = list(self._dims)
        try:
            self.parse_line(line)
        except FileFormatError:
            self._dims = dims
            for values, offsets in zip(self._values, self._offsets):
                del offsets[self.lines + 1 :]
                del values[offsets[-1] :]
            self.bad += 1
            self.pass_over()

    def parse_line(self, line: bytes) -> None:
        words = _WORD.findall(line)
        at = 0
        for i in range(len(self._slots)):
            at = self._parse_slot(i, words, at)
        if at < len(words):
            raise FileFormatError(
                f"{self._where()}: found {_quoted(words[at])} after the last slot '{self._slots[-1].name}', expected "
                "the end of the line"
            )
        self.lines += 1

    def _parse_slot(self, i: int, words: list[bytes], at: int) -> int:
        slot = self._slots[i]
        word = words[at] if at < len(words) else b""
        count = _integer(word)
        if count < slot.is_dense:
            expected = _DENSE_COUNT_EXPECTED if slot.is_dense else _COUNT_EXPECTED
            raise self._error(slot, "count", word, expected)
        if slot.is_dense and self._dims[i] != count:
            self._set_dim(i, count)
        given = words[at + 1 : at + 1 + count]
        read = self._floats if slot.type == "float" else self._integers
        values = read(slot, given, count)
        if len(given) < count:
            raise self._value_error(slot, len(given), count, b"")
        if slot.is_used:
            self._values[i].extend(values)
            self._offsets[i].append(len(self._values[i]))
        return at + 1 + count

    def _set_dim(self, i: int, count: int) -> None:
        if self._dims[i]:
            slot = self._slots[i]
            places = ", as many as in the lines before" if slot.width is None else " in every line"
            raise FileFormatError(
                f"{self._where()}, slot '{slot.name}': found {count} values, expected {self._dims[i]}{places}, "
                "since the slot is dense"
            )
        self._dims[i] = count

    def _integers(self, slot: Slot, words: list[bytes], count: int) -> list[int]:
        if _PLAIN_INTEGERS.fullmatch(b" ".join(words)):
            return list(map(int, words))
        values = []
        for k, word in enumerate(words):
            value = _integer(word)
            if value < 0:
                raise self._value_error(slot, k, count, word)
            values.append(value)
        return values

    def _floats(self, slot: Slot, words: list[bytes], count: int) -> list[float]:
        if _PLAIN_FLOATS.fullmatch(b" ".join(words)):
            values = list(map(float, words))
            if max(map(abs, values)) < _TOO_LARGE:
                return values
        values = []
        for k, word in enumerate(words):
            value = float(word) if _FLOAT.fullmatch(word) else _TOO_LARGE
            if abs(value) >= _TOO_LARGE:
                raise self._value_error(slot, k, count, word)
            values.append(value)
        return values

    def _value_error(self, slot: Slot, k: int, count: int, word: bytes) -> FileFormatError:
        expected = _FLOAT_EXPECTED if slot.type == "float" else _INTEGER_EXPECTED
        return self._error(slot, f"value {k + 1} of {count}", word, expected)

    def _error(self, slot: Slot, place: str, word: bytes, expected: str) -> FileFormatError:
        found = _quoted(word) if word else "the end of the line"
        return FileFormatError(
            f"{self._where()}, slot '{slot.name}', {place}: found {found}, expected {expected}"
        )

    def _where(self) -> str:
        return f"{self._source}: line {self._first_line + self.lines + len(self.passed)}"

    def buffers(self) -> list[Any]:
        arrays: list[Any] = []
        for slot, values, offsets in zip(self._slots, self._values, self._offsets, strict=True):
            if slot.is_used and slot.type == "float":
                arrays += [np.array(values, np.float64).astype(np.float32), np.array(offsets, np.int64)]
            elif slot.is_used:
                arrays += [np.array(values, np.uint64).view(np.int64), np.array(offsets, np.int64)]
        return arrays


def _integer(word: bytes) -> int:
    """Return an unsigned integer of 64 bits, or -1 if the word is none."""
    digits = word.lstrip(b"0") or b"0"
    if not _INTEGER.fullmatch(word) or len(digits) > 20:  # Python refuses to convert very long ones
        return -1
    value = int(digits)
    return value if value <= _MOST else -1


def _quoted(word: bytes) -> str:
    """Return a word as messages show it: what is not printable as hexadecimal, no more than 40 bytes."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in word[:40])
    return f"'{shown}'" + ("..." if len(word) > 40 else "")
