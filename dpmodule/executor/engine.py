"""MXNet's switches of its own scheduler (`mx.engine`), which programs may keep calling.

MXNet can hand several small operators to its scheduler at once. Here a graph is one generated function already, so
the number is kept and has no effect.
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
    """Set how many operators MXNet would group, and return the former number; it changes nothing here.

    Args:
        size: a number from 0.

    Raises:
        ArgumentError: it is none.
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
