"""Which of the user's functions the graph is calling: these must leave the graph alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["called", "calling"]

_names: list[str] = []


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Remember, inside a ``with`` block, that a function is being called.

    Args:
        name: as errors show it.
    """
    _names.append(name)
    try:
        yield
    finally:
        _names.pop()


def called() -> str:
    """Return the name of the innermost function that is being called, "" for none."""
    return _names[-1] if _names else ""
