"""The thread that a graph belongs to: it alone adds nodes to it and asks for values."""

from __future__ import annotations

import threading
from threading import get_ident

__all__ = ["Owner"]


class _Stay:
    """Lies in a thread's memory as long as the thread lives."""

    __slots__ = ("_owner", "_turn")

    def __init__(self, owner: Owner, turn: int) -> None:
        self._owner, self._turn = owner, turn

    def __del__(self) -> None:
        self._owner.end(self._turn)


class Owner:
    """One thread.

    Attributes:
        ident: its number, see `threading.get_ident`; 0 once it has ended, since the next thread may get the same.
        name: its name.
    """

    __slots__ = ("_memory", "_turn", "ident", "name")

    def __init__(self) -> None:
        self.ident, self.name, self._turn = 0, "", 0
        self._memory = threading.local()
        self.take()

    def take(self) -> None:
        """Become the thread that calls."""
        ident = get_ident()
        if self.ident != ident:
            self.ident, self.name = ident, threading.current_thread().name
            self._turn += 1
            self._memory.stay = _Stay(self, self._turn)

    def end(self, turn: int) -> None:
        """Forget the number of a thread that has ended, if it is still the owner.

        Args:
            turn: how many had been owners when it became one.
        """
        if turn == self._turn:
            self.ident = 0
