"""MultiSlot text: description of its slots, result of parsing it, and the parser used without the extension."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ..base import ArgumentError, FileFormatError

_MOST = 2**64 - 1
_INTEGER_EXPECTED = f"an integer from 0 to {_MOST}"
_FLOAT_EXPECTED = "a finite decimal number of float32"
_COUNT_EXPECTED = "the number of values"
_DENSE_COUNT_EXPECTED = "the number of values, 1 or more, since the slot is dense"

_INTEGER = re.compile(rb"[0-9]+")
_FLOAT = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WORD = re.compile(rb"[^ \t\r]+")
_TOO_LARGE = 2.0**128 - 2.0**103
"""Smallest number that does not round to a finite float32."""


@dataclass(frozen=True)
class Slot:
    """A slot of MultiSlot text.

    Args:
        name: name of the slot.
        type: "uint64" or "float".
        is_dense: every line has the same number of values.
        is_used: the values are returned, not only checked.
        width: number of values per line of a dense slot; None for the number in the first line.

    Raises:
        ArgumentError: another type, a name that is not a str, or a width of a slot that is not dense or below 1.
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
    """Values of one slot; those of line i are ``values[offsets[i]:offsets[i + 1]]``.

    Args:
        values: values of all lines, line after line.
        offsets: beginning of each line, followed by the end of the last one.

    Shape:
        values: (sum of the counts,), int64 or float32; (N lines, count) for a dense slot.
        offsets: (N + 1,), int64, of values, also where they have two axes.
    """

    values: torch.Tensor
    offsets: torch.Tensor


class MultiSlotLines(NamedTuple):
    """Result of parsing MultiSlot text.

    Args:
        slots: the used slots by name, in the order of the description.
        consumed: number of bytes they take; the rest of the text is an incomplete line.
        num_bad: number of bad lines that were skipped.
        passed: for every skipped line, blank or bad, the number of lines read before it.

    Shape:
        passed: (P,), int64, ascending.
    """

    slots: dict[str, SlotValues]
    num_lines: int
    consumed: int
    num_bad: int
    passed: torch.Tensor


ParsedBuffers = tuple[int, int, list[Any], int, Any]
"""Lines, bytes, buffers of values and offsets of each used slot, bad lines, buffer of the skipped lines."""


def to_tensors(slots: list[Slot], parsed: ParsedBuffers) -> MultiSlotLines:
    """Return a parser's buffers as tensors, without copying."""
    lines, consumed, buffers, bad, passed = parsed
    used = [slot for slot in slots if slot.is_used]
    slot_values = {}
    for i, slot in enumerate(used):
        values = _tensor(buffers[2 * i], torch.float32 if slot.type == "float" else torch.int64)
        if slot.is_dense:
            values = values.view(lines, -1 if lines else 0)
        slot_values[slot.name] = SlotValues(values, _tensor(buffers[2 * i + 1], torch.int64))
    return MultiSlotLines(slot_values, lines, consumed, bad, _tensor(passed, torch.int64))


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
) -> ParsedBuffers:
    """Parse text as the extension does."""
    data = bytes(text)
    lines = data.split(b"\n")
    rest = lines.pop()
    if rest and final:
        lines.append(rest)
        rest = b""
    parser = _LineParser(slots, source, first_line)
    for line in lines:
        if skip_blank and not _WORD.search(line):
            parser.skip()
        elif skip_bad:
            parser.try_line(line)
        else:
            parser.parse_line(line)
    passed = np.array(parser.passed, np.int64)
    return parser.lines, len(data) - len(rest), parser.buffers(), parser.bad, passed


class _LineParser:
    def __init__(self, slots: list[Slot], source: str, first_line: int) -> None:
        self._slots, self._source, self._first_line = slots, source, first_line
        self._values: list[list[Any]] = [[] for _ in slots]
        self._offsets = [[0] for _ in slots]
        self._dims = [slot.width or 0 for slot in slots]
        self.lines, self.bad = 0, 0
        self.passed: list[int] = []

    def skip(self) -> None:
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
            self.skip()

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
        if count is None or count < slot.is_dense:
            expected = _DENSE_COUNT_EXPECTED if slot.is_dense else _COUNT_EXPECTED
            raise self._error(slot, "count", word, expected)
        if slot.is_dense and self._dims[i] != count:
            self._set_dim(i, count)
        slot_words = words[at + 1 : at + 1 + count]
        read = _float if slot.type == "float" else _integer
        values = [read(word) for word in slot_words]
        if None in values:
            raise self._value_error(slot, values.index(None), count, slot_words[values.index(None)])
        if len(slot_words) < count:
            raise self._value_error(slot, len(slot_words), count, b"")
        if slot.is_used:
            self._values[i].extend(values)
            self._offsets[i].append(len(self._values[i]))
        return at + 1 + count

    def _set_dim(self, i: int, count: int) -> None:
        if self._dims[i]:
            slot = self._slots[i]
            extent = ", as many as in the lines before" if slot.width is None else " in every line"
            raise FileFormatError(
                f"{self._where()}, slot '{slot.name}': found {count} values, expected {self._dims[i]}{extent}, "
                "since the slot is dense"
            )
        self._dims[i] = count

    def _value_error(self, slot: Slot, k: int, count: int, word: bytes) -> FileFormatError:
        expected = _FLOAT_EXPECTED if slot.type == "float" else _INTEGER_EXPECTED
        return self._error(slot, f"value {k + 1} of {count}", word, expected)

    def _error(self, slot: Slot, place: str, word: bytes, expected: str) -> FileFormatError:
        shown = _quoted(word) if word else "the end of the line"
        return FileFormatError(
            f"{self._where()}, slot '{slot.name}', {place}: found {shown}, expected {expected}"
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


def _integer(word: bytes) -> int | None:
    """Return an unsigned integer of 64 bits, or None if the word is not one."""
    digits = word.lstrip(b"0") or b"0"
    if not _INTEGER.fullmatch(word) or len(digits) > 20:  # Python refuses to convert very long ones
        return None
    value = int(digits)
    return value if value <= _MOST else None


def _float(word: bytes) -> float | None:
    """Return a number that rounds to a finite float32, or None if the word is not one."""
    value = float(word) if _FLOAT.fullmatch(word) else _TOO_LARGE
    return value if abs(value) < _TOO_LARGE else None


def _quoted(word: bytes) -> str:
    """Return a word as messages show it: at most 40 bytes, unprintable ones in hexadecimal."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in word[:40])
    return f"'{shown}'" + ("..." if len(word) > 40 else "")
