"""Unique names of variables, counted by the startup program, or separately inside `guard`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._core import lazy
from .program import default_startup_program
from .scope import UniqueNames

__all__ = ["generate", "guard"]

lazy.publish(__name__, __all__)


def generate(key: str) -> str:
    """Return the next name with a prefix, such as ``fc_0``.

    Args:
        key: the prefix, such as ``"fc"``.
    """
    return default_startup_program().startup_group.names.generate(key)


@contextmanager
def guard() -> Iterator[None]:
    """Restart the numbers of names inside a ``with`` statement.

    A network that is built again in another program of the same startup program gets the same names, and therefore the
    same parameters.
    """
    group = default_startup_program().startup_group
    before, group.names = group.names, UniqueNames()
    try:
        yield
    finally:
        group.names = before
