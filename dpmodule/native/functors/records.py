"""Records in a piece of a record file: what finding them gives, and how without the extension."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ...base import FileFormatError

_MAGIC = struct.pack("<I", 0xCED7230A)
_WHOLE, _MIDDLE, _LAST = 0, 2, 3


class Records(NamedTuple):
    """The records of a piece of a record file.

    Args:
        records: StringHandles, slices of the piece; records that hold the magic number, and so were written in parts,
            are copies.
        consumed: bytes that they take; a record that is not wholly in the piece begins there.
    """

    records: list[Any]
    consumed: int


def find(handle: Any, make: Any, source: str, offset: int, final: bool) -> tuple[list[Any], int]:
    """Return the records in a handle, and how many bytes they take.

    Args:
        make: makes a StringHandle of bytes.
        offset: where the data begin in the file, in bytes.
    """
    finder = _Finder(memoryview(handle), source, offset, final)
    records = []
    at = 0
    while at < len(handle):
        found = finder.record(at)
        if found is None:
            break
        parts, at = found
        if len(parts) == 1:
            records.append(handle[parts[0]])
        else:
            records.append(make(_MAGIC.join(bytes(handle[part]) for part in parts)))
    return records, at


class _Finder:
    def __init__(self, view: memoryview, source: str, offset: int, final: bool) -> None:
        self._view, self._source, self._offset, self._final = view, source, offset, final

    def record(self, at: int) -> tuple[list[slice], int] | None:
        """Return where the parts of the record at a place are, and where it ends; None if that is not in the data."""
        parts: list[slice] = []
        kind = -1
        while kind not in (_WHOLE, _LAST):
            head = self._head(at, bool(parts))
            if head is None:
                return None
            kind, length = head
            begin, padded = at + 8, length + -length % 4
            left = len(self._view) - begin
            if left < (length if self._final else padded):
                if not self._final:
                    return None
                self._fail(at, f"{length} bytes of payload expected, but {left} are left")
            parts.append(slice(begin, begin + length))
            at = begin + min(padded, left)
        return parts, at

    def _head(self, at: int, begun: bool) -> tuple[int, int] | None:
        head = bytes(self._view[at : at + 8])
        if head[:4] != _MAGIC[: len(head[:4])]:
            shown = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in head[:4])
            self._fail(at, f"no record begins here: '{shown}' in place of '\\x0a#\\xd7\\xce'")
        if len(head) < 8:
            if self._final:
                self._fail(at, f"the head of a record, 8 bytes, expected, but {len(head)} are left")
            return None
        word = int.from_bytes(head[4:], "little")
        kind = word >> 29
        if kind > _LAST or (kind in (_MIDDLE, _LAST)) != begun:
            self._fail(at, f"a part of kind {kind} is not allowed here")
        return kind, word & (2**29 - 1)

    def _fail(self, at: int, text: str) -> None:
        raise FileFormatError(
            f"{self._source}: byte {self._offset + at}: {text}; the file is damaged, cut short, or does not begin with "
            "a record"
        )
