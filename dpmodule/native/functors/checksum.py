"""CRC-32C in NumPy, for programs without the extension.

A checksum is linear: pieces of equal length are summed side by side, one array operation per byte of a piece, and the
sum of each is then carried over the pieces behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)
_PIECE = 512
"""Bytes of a piece."""


def _byte_table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ _POLYNOMIAL, table >> 1).astype(np.uint32)
    return table


_TABLE = _byte_table()


def _carry_tables() -> list[list[int]]:
    """Return four tables, of each byte of a sum, whose entries together are the sum carried over a piece of zeros."""
    sums = np.concatenate([np.arange(256, dtype=np.uint32) << np.uint32(8 * k) for k in range(4)])
    for _ in range(_PIECE):
        sums = (sums >> np.uint32(8)) ^ _TABLE[sums & np.uint32(255)]
    tables: list[list[int]] = sums.reshape(4, 256).tolist()
    return tables


_CARRY = _carry_tables()
_BYTES: list[int] = _TABLE.tolist()


def crc32c(data: Any, value: int) -> int:
    """Return the CRC-32C of a bytes-like, continued from `value`."""
    array = np.frombuffer(data, np.uint8)
    whole = len(array) // _PIECE * _PIECE
    crc = value ^ 0xFFFFFFFF
    first, second, third, fourth = _CARRY
    for piece in _sums(array[:whole].reshape(-1, _PIECE)):
        crc = first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24] ^ piece
    for byte in array[whole:].tolist():
        crc = (crc >> 8) ^ _BYTES[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _sums(pieces: Any) -> list[int]:
    """Return the sum of each row, beginning with 0."""
    sums = np.zeros(len(pieces), np.uint32)
    for column in np.ascontiguousarray(pieces.T):
        sums = (sums >> np.uint32(8)) ^ _TABLE[(sums & np.uint32(255)) ^ column]
    listed: list[int] = sums.tolist()
    return listed
