"""MXNet's scheduler settings (`mx.engine`), accepted so that programs which call them keep working.

MXNet can submit several small operators to its scheduler in one call. Here a graph is a single generated function, so
the number is stored and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._core import lazy
from ..base import ArgumentError

__all__ = ["bulk", "set_bulk_size"]

lazy.publish(__name__, __all__)

_size = 15  # MXNet's default


def set_bulk_size(size: int) -> int:
    """Set the number of operators that MXNet would group, and return the previous number; it has no effect here.

    Args:
        size: a number from 0.

    Raises:
        ArgumentError: `size` is not a whole number from 0.
    """
    global _size
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ArgumentError(f"size is {size!r}, expected a whole number from 0")
    before, _size = _size, size
    return before


@contextmanager
def bulk(size: int) -> Iterator[None]:
    """Set the number inside a ``with`` block.

    Args:
        size: a number from 0.
    """
    before = set_bulk_size(size)
    try:
        yield
    finally:
        set_bulk_size(before)
