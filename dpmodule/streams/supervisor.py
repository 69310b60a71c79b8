"""`Supervisor`: start child processes, hear from them, and end them together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from .._core import lazy
from .._core.closing import Closing
from ..base import StateError
from .checks import check_count, check_seconds
from .launch import START_S, check_start_method
from .process import GRACE_S, ChildProcess, block, close_all

__all__ = ["START_S", "Supervisor"]

lazy.publish(__name__, __all__)


class Supervisor(Closing):
    """Owns the child processes of one pool, iterator or training run.

    A child runs ``target(channel, *args)`` and talks to its parent through the `Channel`. Its first exception is raised
    here with its own type; its traceback comes along as the cause. Children ignore Ctrl-C, which only the parent hears,
    and are gone once this is closed, collected, or its process has died in whatever way. Nothing stays behind: no
    process, no shared memory, no descriptor.

    With the start methods "spawn" and "forkserver" functions and arguments are pickled, and a child begins with
    importing torch, which takes a second or two; a program whose own main file defines them needs the guard
    ``if __name__ == "__main__":``. "fork" takes milliseconds and pickles nothing, but a forked child must not use what
    other threads of its parent hold: start such children early.

    Args:
        name: what the workers are called: ``name-0``, ``name-1`` and so on.
        start_method: "spawn", "fork" or "forkserver".
        timeout_s: how long a child may take to answer in `join`, in seconds; None: as long as it lives.
        grace_s: how long a child may take to end on its own in `close`, in seconds, and again after SIGTERM.
        num_threads: number of threads that torch may use in each child.
        start_timeout_s: most seconds to start a child, until it has its function.

    Raises:
        ArgumentError: the system has no such start method, or a number is below 0.

    Example:
        >>> def count(channel, limit):
        ...     for number in range(limit):
        ...         channel.note("number", number)
        ...         channel.send(number)
        >>> with Supervisor("counter", start_method="fork") as counters:
        ...     child = counters.start(count, 3)
        ...     [child.recv(timeout_s=10) for _ in range(3)]
        [0, 1, 2]
    """

    def __init__(
        self,
        name: str = "worker",
        start_method: str = "spawn",
        timeout_s: float | None = None,
        grace_s: float = GRACE_S,
        num_threads: int = 1,
        start_timeout_s: float = START_S,
    ) -> None:
        check_count("Supervisor", "num_threads", num_threads)
        check_seconds("Supervisor", "grace_s", grace_s, optional=False)
        check_seconds("Supervisor", "timeout_s", timeout_s)
        check_seconds("Supervisor", "start_timeout_s", start_timeout_s, optional=False)
        self.name = name
        self.start_method = check_start_method(start_method)
        self.timeout_s = timeout_s
        self.grace_s = grace_s
        self.num_threads = num_threads
        self.start_timeout_s = start_timeout_s
        self._children: list[ChildProcess] = []
        self._closed = False

    @property
    def children(self) -> Sequence[ChildProcess]:
        """All children that have not been dropped, in the order in which they were started."""
        return tuple(self._children)

    def start(
        self, target: Callable[..., Any], *args: Any, name: str | None = None, index: int | None = None
    ) -> ChildProcess:
        """Start a child.

        Args:
            target: what it runs; its first argument is its `Channel`.
            args: the other arguments. Tensors among them lie in shared memory afterwards, except under "fork". An
                unused end of a tensor pipe belongs to the child from now on, so that the other end notices if the child
                ends before it has used it.
            name: name of the worker (default: made from the supervisor's name and the worker's number).
            index: number of the worker (default: how many there are already).

        Raises:
            UnpicklableError: the function or an argument cannot be given to another process; none is started then.
            MemoryError: shared memory is not enough for tensors and bytes among the arguments; likewise.
            WorkerStuck: the child could not be started in time, as the fork server or the child itself is stopped.
            WorkerDied: the fork server, or the child, died meanwhile.
            StateError: the supervisor is closed.
        """
        if self._closed:
            raise StateError(f"supervisor {self.name!r} is closed; make a new one")
        index = len(self._children) if index is None else index
        child = ChildProcess(
            target,
            args,
            name or f"{self.name}-{index}",
            index,
            self.start_method,
            self.num_threads,
            self.start_timeout_s,
        )
        self._children.append(child)
        _hand_over(args, child.pid)
        return child

    def drop(self, child: ChildProcess) -> None:
        """End one child and forget it."""
        child.close(self.grace_s)
        self._children.remove(child)

    def await_ready(self, timeout_s: float) -> list[Any]:
        """Wait until every child has sent its first value, and return these in the children's order.

        Args:
            timeout_s: how long that may take for all of them, in seconds.

        Raises:
            WorkerStuck: a child has sent nothing in time; it has been killed.
            WorkerDied, BaseException: as `ChildProcess.recv` does.
        """
        deadline = time.monotonic() + timeout_s
        found = []
        for child in self._children:
            if not child.poll(max(deadline - time.monotonic(), 0.0)):
                raise child.stuck(f"has not started within {timeout_s:g} s")
            found.append(child.recv())
        return found

    def failure(self) -> BaseException | None:
        """Return why the first child that failed did so, None if none has."""
        errors = (child.failure() for child in self._children)
        return next((error for error in errors if error is not None), None)

    def wait(self, timeout_s: float | None = None) -> list[ChildProcess]:
        """Return the children whose `recv` would return or raise at once; wait until there is one.

        Args:
            timeout_s: seconds to wait; None for no limit.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            ready = [child for child in self._children if child.poll()]
            left = None if deadline is None else deadline - time.monotonic()
            if ready or not self._children or (left is not None and left <= 0):
                return ready
            block(self._children, left)

    def join(self, timeout_s: float | None = None) -> list[Any]:
        """Wait until every child's function has returned, and return what they returned, in the children's order.

        The first failure of any of them is raised at once, after which `close` ends the others.

        Args:
            timeout_s: how long that may take, in seconds (default: the supervisor's `timeout_s`).

        Raises:
            WorkerDied: a child ended without an exception of its own.
            WorkerStuck: a child has not returned in time.
            BaseException: whatever a child raised.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        running = list(self._children)
        while running:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not any(child.failure() is not None or child.finished for child in running):
                block(running, left)
            for child in list(running):
                if child.failure() is None and not child.finished:
                    if left == 0.0:
                        raise child.stuck(f"has not returned within {timeout_s:g} s")
                    continue
                child.result(0.0)  # raises unless it has returned
                running.remove(child)
        return [child.result(0.0) for child in self._children]

    def close(self) -> None:
        self._closed = True
        close_all(self._children, self.grace_s)


class ProgressWatch:
    """Tells which workers have made no progress for too long."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, float]] = {}

    def is_stuck(self, worker: int, progress: Any, timeout_s: float) -> bool:
        """Return True if a worker's progress, a number or a text, is what it was some seconds ago."""
        now = time.monotonic()
        before, since = self._seen.setdefault(worker, (progress, now))
        if before != progress:
            self._seen[worker] = progress, now
            return False
        return now - since > timeout_s

    def restart(self) -> None:
        """Give all workers their whole time again."""
        self._seen.clear()


def _hand_over(args: tuple[Any, ...], pid: int) -> None:
    """Give the ends of pipes among a child's arguments to the child."""
    for each in args:
        if hasattr(each, "hand_over"):
            # one in use stays here: what a forked child has is a copy that it may close
            with contextlib.suppress(StateError):
                each.hand_over(pid)
