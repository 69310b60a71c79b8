"""Automatic names of symbols: `NameManager` and `Prefix`."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import ClassVar

from ._core import lazy

__all__ = ["NameManager", "Prefix", "current"]

lazy.publish(__name__, __all__)


class _CurrentManager(type):
    """Gives `NameManager` MXNet's class attribute `current`, which every thread has of its own."""

    @property
    def current(cls) -> NameManager:
        """The manager that new symbols of this thread get their names from; may be set."""
        return current()

    @current.setter
    def current(cls, manager: NameManager) -> None:
        NameManager._scope.current = manager


class NameManager(metaclass=_CurrentManager):
    """Counts names per operator: the second unnamed FullyConnected becomes ``fullyconnected1``.

    Used in a ``with`` statement, numbering starts afresh inside.
    """

    _scope: ClassVar[threading.local] = threading.local()

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._outer: list[NameManager] = []

    def get(self, name: str | None, hint: str) -> str:
        """Return `name`, or the next automatic name made from `hint`.

        Args:
            name: the name that a program gave; None to make one.
            hint: kind of the node, such as ``"convolution"``; a number is put behind it.
        """
        if name:
            return name
        number = self._counter.get(hint, 0)
        self._counter[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        self._outer.append(current())
        NameManager._scope.current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        NameManager._scope.current = self._outer.pop()


class Prefix(NameManager):
    """Puts a prefix before every name, automatic or given.

    Args:
        prefix: text put in front.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


def current() -> NameManager:
    """Return the name manager of this thread."""
    if not hasattr(NameManager._scope, "current"):
        NameManager._scope.current = NameManager()
    manager: NameManager = NameManager._scope.current
    return manager
