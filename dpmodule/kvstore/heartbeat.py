"""`Heartbeat`: periodic signs of life of the processes of a run, by which a lost one is identified."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

_INTERVAL_S = 0.4
_TIMEOUT_S = 1.4
"""Time of several heartbeats; a process without one for so long is lost."""

_ANSWER_S = 3.0
"""Time within which the store of the group must answer."""

_MEETING_S = 6.5
"""Time within which all processes must come to the same round; with that of `silent_ranks`, less than 10 s."""

_SILENCE_S = 4.0
"""Time without a heartbeat after which the others do not wait longer for a process to come to a round."""

_POLL_S = 0.005


class Heartbeat:
    """Increments a counter in the group's store while this process runs, and reports processes that stopped to.

    A thread increments it, also while the process waits or computes. A stopped or killed process no longer counts.
    The thread also publishes the number of rounds of an exchange that the process has entered.

    Args:
        rank: number of this process.
        size: number of processes.

    Attributes:
        rounds: number of rounds that this process has entered.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.rounds = 0
        # a separate connection, as the operations of one connection wait for each other
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank, self._size = rank, size
        self._stopped = threading.Event()
        self._store.add(_key(rank), 1)
        self._publish()
        self._thread = threading.Thread(target=self._beat, name="dpmodule-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        with suppress(RuntimeError):  # the process with the store has exited
            while not self._stopped.wait(_INTERVAL_S):
                self._store.add(_key(self._rank), 1)
                self._publish()

    def _publish(self) -> None:
        self._store.set(_rounds_key(self._rank), str(self.rounds))

    def await_round(self) -> tuple[list[int], list[int]]:
        """Wait until all processes are at the round of this one.

        Returns:
            The ranks that did not come in time, and those of them without a heartbeat.
        """
        start = time.monotonic()
        late = [i for i in range(self._size) if i != self._rank]
        self._publish()
        before: list[int] | None = None
        while late and (waited := time.monotonic() - start) < _MEETING_S:
            late = [i for i in late if int(self._store.get(_rounds_key(i))) < self.rounds]
            if late and before is None:
                before = self._counts()
            elif before and waited > _SILENCE_S:
                silent = [i for i in late if self._store.add(_key(i), 0) == before[i]]
                if silent:
                    return late, silent
                before = []
            time.sleep(_POLL_S if late else 0.0)
        return late, [i for i in self.silent_ranks() if i in late] if late else []

    def silent_ranks(self) -> list[int]:
        """Return the ranks without a heartbeat, after waiting for several intervals."""
        results: list[list[int]] = []

        def compare() -> None:
            try:
                before = self._counts()
                time.sleep(_TIMEOUT_S)
                results.append([i for i, count in enumerate(self._counts()) if count == before[i]])
            except RuntimeError:
                return

        # the store itself may not answer; then the process with the store, rank 0, is the lost one
        thread = threading.Thread(target=compare, daemon=True)
        thread.start()
        thread.join(_ANSWER_S)
        return [i for i in (results[0] if results else [0]) if i != self._rank]

    def _counts(self) -> list[int]:
        return [self._store.add(_key(i), 0) for i in range(self._size)]

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._thread.join(_ANSWER_S)


def _key(rank: int) -> str:
    return f"heartbeat/{rank}"


def _rounds_key(rank: int) -> str:
    return f"rounds/{rank}"
