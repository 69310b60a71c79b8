"""Names that no other variable has: counted with the startup program, or afresh inside `guard`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .._core import lazy
from .program import UniqueNames, default_startup_program

__all__ = ["generate", "guard"]

lazy.publish(__name__, __all__)


def generate(key: str) -> str:
    """Return the next name of a kind, such as ``fc_0``.

    Args:
        key: the kind, such as ``"fc"``.
    """
    return default_startup_program().startup_scope.names.generate(key)


@contextmanager
def guard() -> Iterator[None]:
    """Count names afresh inside a ``with`` statement.

    A network written a second time, into another program under the same startup program, gets the same names so, and
    with them the same parameters.
    """
    scope = default_startup_program().startup_scope
    before, scope.names = scope.names, UniqueNames()
    try:
        yield
    finally:
        scope.names = before
