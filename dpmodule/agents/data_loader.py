"""`DataLoader`: loads what a teacher's next examples need, in a thread, while agents work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from typing import Any

__all__ = ["DataLoader", "LoadedQueue"]


class DataLoader:
    """Calls functions in a thread, one after the other; every process has a thread of its own.

    Source: ParlAI's DataLoader of 2018.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._executor = ThreadPoolExecutor(1, "dpmodule-data-loader")

    def request_load(
        self,
        receive_fn: Callable[[Future[Any]], Any],
        load_fn: Callable[..., Any],
        args: Sequence[Any] | Mapping[str, Any],
    ) -> None:
        """Have a function called later.

        Args:
            receive_fn: called with the future when the function has returned or raised.
            load_fn: the function.
            args: its arguments, by position or by name.
        """
        if self._pid != os.getpid():  # forked; the thread is the parent's
            self._start()
        if isinstance(args, Mapping):
            future = self._executor.submit(load_fn, **args)
        else:
            future = self._executor.submit(load_fn, *args)
        future.add_done_callback(receive_fn)

    def __reduce__(self) -> tuple[Any, ...]:
        return DataLoader, ()


class LoadedQueue(Queue[Any]):
    """A queue that takes futures, too: `get` returns their results, and raises what the loading raised."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item; see `queue.Queue`."""
        item = super().get(block, timeout)
        return item.result() if isinstance(item, Future) else item
