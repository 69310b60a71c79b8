"""`Heartbeat`: signs of life of the processes that train together, by which one that is lost gets named."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

_EVERY_S = 0.4
_LOOK_S = 1.4
"""How long a process may give no sign before it counts as lost: several beats."""

_ANSWER_S = 3.0
"""How long the store of the group may take to tell."""


class Heartbeat:
    """Counts up in the group's store while this process lives, and tells which others no longer do.

    A thread does so, also while the process waits for others or computes. One that is stopped or killed stops counting.

    Args:
        rank: number of this process.
        size: number of processes.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        # a connection of its own: operations of one connection wait for each other
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank, self._size = rank, size
        self._over = threading.Event()
        self._store.add(_key(rank), 1)
        self._thread = threading.Thread(target=self._beat, name="dpmodule-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the process that has the store is gone
            while not self._over.wait(_EVERY_S):
                self._store.add(_key(self._rank), 1)

    def silent_ranks(self) -> list[int]:
        """Return the ranks that give no sign of life; waits for some beats to tell."""
        found: list[list[int]] = []

        def look() -> None:
            try:
                before = self._counts()
                time.sleep(_LOOK_S)
                found.append([i for i, count in enumerate(self._counts()) if count == before[i]])
            except RuntimeError:
                return

        # the store itself may not answer: then nobody can be asked but the process that has it
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(_ANSWER_S)
        return [i for i in (found[0] if found else [0]) if i != self._rank]

    def _counts(self) -> list[int]:
        return [self._store.add(_key(i), 0) for i in range(self._size)]

    def end(self) -> None:
        """Stop counting."""
        self._over.set()
        self._thread.join(_ANSWER_S)


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"
