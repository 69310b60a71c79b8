"""Which of the user's functions the graph is calling: these must leave the graph alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import StateError, user_line

__all__ = ["calling", "check_free"]

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


def check_free(what: str, is_computing: bool) -> None:
    """Check that the graph may be thrown away or cut.

    Args:
        what: what asks for it.
        is_computing: whether an engine is at work.

    Raises:
        StateError: a function that the graph calls asks for it, or another thread does.
    """
    if _names:
        raise StateError(
            f"{what} was called inside of {_names[-1]}, which the graph is calling: a function given to wrap or cell"
            f" takes and returns tensors and leaves the graph alone; call {what} outside of it (at {user_line()})"
        )
    if is_computing:
        raise StateError(
            f"{what} was called while another thread computes the graph; use the graph in one thread (at {user_line()})"
        )
