"""Work on blocks of bytes in Python: copies, and, without the extension, CRC-32C, compression and record search."""

from __future__ import annotations

import struct
import zlib  # also loads the libz.so.1 that the extension then finds
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from ..base import ArgumentError, BoundsError, DeviceError, DTypeError, FileFormatError

# checksums


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(crc >> 1) ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: Any, value: int) -> int:
    """Return the CRC-32C of a bytes-like, continued from `value`."""
    crc, table = value ^ 0xFFFFFFFF, _CRC_TABLE
    for byte in bytes(data):
        crc = (crc >> 8) ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


# copies

ByteRange = np.ndarray[Any, Any]
"""Bytes of a buffer or tensor, which the array keeps alive."""


def byte_range(name: str, data: Any, offset: int, count: int | None, write: bool = False) -> ByteRange:
    """Return `count` bytes of a contiguous buffer or tensor from `offset` on; the rest if `count` is None."""
    whole = _tensor_bytes(name, data) if isinstance(data, torch.Tensor) else _buffer_bytes(name, data)
    if write and not whole.flags.writeable:
        raise ArgumentError(f"{name} is {type(data).__name__}, which cannot be written to")
    size = len(whole)
    end = size if count is None else offset + count
    if not 0 <= offset <= end <= size:
        wanted = "the rest" if count is None else f"{count} bytes"
        raise BoundsError(f"{name}: {wanted} from byte {offset} on are not inside its {size} bytes")
    return whole[offset:end]


def _buffer_bytes(name: str, data: Any) -> ByteRange:
    try:
        view = memoryview(data)
    except TypeError:
        raise DTypeError(f"{name} is {type(data).__name__}, expected a buffer or a tensor") from None
    if not view.c_contiguous:
        raise ArgumentError(f"{name} is not contiguous")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def _tensor_bytes(name: str, data: torch.Tensor) -> ByteRange:
    if data.device.type != "cpu":
        raise DeviceError(f"{name} is a tensor of {data.device}; functors work in the memory of the CPU")
    if data.layout != torch.strided or not data.is_contiguous():
        raise ArgumentError(f"{name} is a tensor that is not contiguous")
    array: ByteRange = data.detach().reshape(-1).view(torch.uint8).numpy()
    return array


def copy(target: ByteRange, source: ByteRange) -> int:
    """Copy all bytes of `source` and return their number."""
    target[:] = source
    return len(source)


# compression

WINDOW_BITS = {"gzip": 31, "zlib": 15, "deflate": -15}
"""The ``wbits`` argument of zlib for each format."""

_INPUT_BYTES = 1 << 20
"""Most bytes given to zlib per call; it lets go of the GIL meanwhile."""


def compress(data: Any, name: str, level: int) -> bytes:
    """Return data compressed in a format."""
    stream = zlib.compressobj(level, zlib.DEFLATED, WINDOW_BITS[name])
    return stream.compress(data) + stream.flush()


def decompress(data: Any, name: str, max_bytes: int) -> bytes:
    """Return data decompressed.

    Args:
        data: a bytes-like.
        max_bytes: largest number of bytes of the result; -1 for any.
    """
    return _Decompressor(memoryview(data), name, max_bytes).run()


class _Decompressor:
    def __init__(self, data: memoryview, name: str, max_bytes: int) -> None:
        self._data, self._max_bytes = data, max_bytes
        self._name = name if name != "auto" else "gzip" if self._is_gzip(0) else "zlib"
        self._parts: list[bytes] = []
        self._size = 0

    def run(self) -> bytes:
        at, end = self._member(0), len(self._data)
        while self._name == "gzip":
            while at < end and self._data[at] == 0:  # padding of tapes and block devices
                at += 1
            if at == end or not self._is_gzip(at):
                break
            at = self._member(at)
        if at < end:
            self._fail(at, f"the data end here, but {end - at} bytes follow")
        return b"".join(self._parts)

    def _is_gzip(self, at: int) -> bool:
        head = bytes(self._data[at : at + 2])
        return len(head) > 0 and b"\x1f\x8b".startswith(head)

    def _member(self, at: int) -> int:
        """Decompress one stream that begins at a byte, and return the byte after its end."""
        stream = zlib.decompressobj(WINDOW_BITS[self._name])
        while not stream.eof:
            block = self._data[at : at + _INPUT_BYTES]
            if not block:
                self._fail(at, "cut short: the data continue")
            before = stream.copy()
            most = 0 if self._max_bytes < 0 else self._max_bytes - self._size + 1
            try:
                self._parts.append(stream.decompress(block, most))
            except zlib.error as error:
                self._fail_at_damage(before, at, error)
            at += len(block) - len(stream.unconsumed_tail) - len(stream.unused_data)
            self._size += len(self._parts[-1])
            if 0 <= self._max_bytes < self._size:
                limit = f"max_bytes={self._max_bytes}; raise the limit if you trust them"
                self._fail(at, f"the data expand to more than {limit}")
        return at

    def _fail_at_damage(self, stream: Any, at: int, error: zlib.error) -> NoReturn:
        """Find the damaged byte by decompressing the block again, byte by byte."""
        if "Error 2 " in str(error):
            at += 6  # the header, and the dictionary's checksum
            self._fail(at, "the data need a preset dictionary, which is not supported")
        while True:
            try:
                stream.decompress(self._data[at : at + 1])
            except zlib.error as again:
                text = str(again).partition(": ")[2] or str(again)
                self._fail(at + 1, f"damaged, or not {self._name}: {text}")
            at += 1

    def _fail(self, at: int, text: str) -> NoReturn:
        raise FileFormatError(f"{self._name} data: byte {at}: {text}")


# records

_MAGIC = struct.pack("<I", 0xCED7230A)
_WHOLE, _MIDDLE, _LAST = 0, 2, 3


class Records(NamedTuple):
    """The records of a block of a record file.

    Args:
        records: StringHandles, slices of the block; records that contain the magic number, and so were written in
            parts, are copies.
        consumed: number of bytes they take; a record that is not wholly in the block begins there.
    """

    records: list[Any]
    consumed: int


def find_records(handle: Any, make: Any, source: str, offset: int, final: bool) -> tuple[list[Any], int]:
    """Return the records in a handle and the number of bytes they take.

    Args:
        make: makes a StringHandle of bytes.
        offset: position of the data in the file, in bytes.
    """
    search = _RecordSearch(memoryview(handle), source, offset, final)
    records = []
    at = 0
    while at < len(handle):
        record = search.record(at)
        if record is None:
            break
        parts, at = record
        whole = handle[parts[0]]
        records.append(whole if len(parts) == 1 else make(_MAGIC.join(bytes(handle[part]) for part in parts)))
    return records, at


class _RecordSearch:
    def __init__(self, view: memoryview, source: str, offset: int, final: bool) -> None:
        self._view, self._source, self._offset, self._final = view, source, offset, final

    def record(self, at: int) -> tuple[list[slice], int] | None:
        """Return the parts of the record at a byte, and its end; None if the record is not complete."""
        parts: list[slice] = []
        flag = -1
        while flag not in (_WHOLE, _LAST):
            head = self._head(at, bool(parts))
            if head is None:
                return None
            flag, length = head
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
        flag = word >> 29
        if flag > _LAST or (flag in (_MIDDLE, _LAST)) != begun:
            self._fail(at, f"a part of kind {flag} is not allowed here")
        return flag, word & (2**29 - 1)

    def _fail(self, at: int, text: str) -> NoReturn:
        raise FileFormatError(
            f"{self._source}: byte {self._offset + at}: {text}; the file is damaged, cut short, or does not begin with "
            "a record"
        )
