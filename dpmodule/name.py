"""Automatic names of symbols: `NameManager` and `Prefix`."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import ClassVar

from ._core import lazy

__all__ = ["NameManager", "Prefix", "current"]

lazy.publish(__name__, __all__)


class _CurrentManager(type):
    """Metaclass that defines MXNet's class attribute `NameManager.current`, one per thread."""

    @property
    def current(cls) -> NameManager:
        """The manager that new symbols of this thread get their names from; may be set."""
        return current()

    @current.setter
    def current(cls, manager: NameManager) -> None:
        NameManager._scope.current = manager


class NameManager(metaclass=_CurrentManager):
    """Counter of names per operator: the second unnamed FullyConnected becomes ``fullyconnected1``.

    In a ``with`` statement, numbering restarts inside.
    """

    _scope: ClassVar[threading.local] = threading.local()

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._outer: list[NameManager] = []

    def get(self, name: str | None, hint: str) -> str:
        """Return `name`, or the next automatic name made from `hint`.

        Args:
            name: the name that a program gave; None to make one.
            hint: kind of the node, such as ``"convolution"``; a number is appended.
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
    """Name manager that prepends a prefix to every name, automatic or not.

    Args:
        prefix: text to prepend.
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
