"""Compression and decompression by Python's zlib, for programs without the extension or without libz.so.1."""

from __future__ import annotations

import zlib  # also loads the libz.so.1 that the extension then finds
from typing import Any

from ...base import FileFormatError

FORMATS = {"gzip": 31, "zlib": 15, "deflate": -15}
"""Formats by name, with what zlib calls window bits."""

_STEP = 1 << 16
"""Bytes that are given to the library at once."""

_LARGEST = 1 << 20
"""Bytes that are taken from the library at once."""


def compress(data: Any, name: str, level: int) -> bytes:
    """Return data compressed in a format."""
    stream = zlib.compressobj(level, zlib.DEFLATED, FORMATS[name])
    return stream.compress(data) + stream.flush()


def decompress(data: Any, name: str, most: int) -> bytes:
    """Return data decompressed.

    Args:
        data: a bytes-like.
        most: largest number of bytes of the result; -1 for any.
    """
    return _Inflater(memoryview(data), name, most).run()


class _Inflater:
    def __init__(self, data: memoryview, name: str, most: int) -> None:
        self._data, self._most = data, most
        self._name = name if name != "auto" else "gzip" if self._starts_member(0) else "zlib"
        self._output: list[bytes] = []
        self._size = 0

    def run(self) -> bytes:
        at, end = self._member(0), len(self._data)
        while self._name == "gzip":
            while at < end and self._data[at] == 0:  # padding of tapes and block devices
                at += 1
            if at == end or not self._starts_member(at):
                break
            at = self._member(at)
        if at < end:
            self._fail(at, f"the data end here, but {end - at} bytes follow")
        return b"".join(self._output)

    def _starts_member(self, at: int) -> bool:
        head = bytes(self._data[at : at + 2])
        return len(head) > 0 and head == b"\x1f\x8b"[: len(head)]

    def _member(self, at: int) -> int:
        """Decompress from a place on to the end of a stream, and return where that is."""
        stream = zlib.decompressobj(FORMATS[self._name])
        while not stream.eof:
            piece = self._data[at : at + _STEP]
            if not piece:
                self._fail(at, "cut short: the data continue")
            before = stream.copy()
            try:
                while not stream.eof and piece:
                    output = stream.decompress(piece, _LARGEST)
                    at += len(piece) - len(stream.unconsumed_tail) - len(stream.unused_data)
                    self._take(output, at)
                    piece = stream.unconsumed_tail  # type: ignore[assignment]
            except zlib.error as error:
                self._locate(before, at, error)
        return at

    def _take(self, output: bytes, at: int) -> None:
        self._output.append(output)
        self._size += len(output)
        if 0 <= self._most < self._size:
            self._fail(
                at, f"the data expand to more than max_bytes={self._most}; raise the limit if you trust them"
            )

    def _locate(self, stream: Any, at: int, error: zlib.error) -> None:
        """Find the byte at which a piece is damaged, by giving it again byte by byte."""
        if "Error 2 " in str(error):
            self._fail(at, "the data need a preset dictionary, which is not supported")
        while True:
            try:
                stream.decompress(self._data[at : at + 1])
            except zlib.error as again:
                text = str(again).partition(": ")[2] or str(again)
                self._fail(at + 1, f"damaged, or not {self._name}: {text}")
            at += 1

    def _fail(self, at: int, text: str) -> None:
        raise FileFormatError(f"{self._name} data: byte {at}: {text}")
