"""Which of the user's functions the graph is calling: these must leave the graph alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["called", "calling"]


class _CalledFunctions(threading.local):
    """The functions that a thread is in, the innermost last."""

    def __init__(self) -> None:
        self.all: list[str] = []


_names = _CalledFunctions()


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Remember, inside a ``with`` block, that a function is being called.

    Args:
        name: as errors show it.
    """
    _names.all.append(name)
    try:
        yield
    finally:
        _names.all.pop()


def called() -> str:
    """Return the name of the innermost function that is being called in this thread, "" for none."""
    return _names.all[-1] if _names.all else ""
