"""`Supervisor`: starting child processes, receiving from them, and ending them together."""

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
    here with its own type and its traceback as the cause. Children ignore Ctrl-C, which only the parent handles. They
    end when the supervisor is closed or collected, or when its process dies for any reason. No process, shared memory
    or descriptor remains.

    The start methods "spawn" and "forkserver" pickle functions and arguments, and a child first imports torch, which
    takes a second or two; a program that defines them in its main file needs the guard
    ``if __name__ == "__main__":``. "fork" takes milliseconds and pickles nothing, but a forked child must not use locks
    or other resources that threads of its parent hold: start such children early.

    Args:
        name: prefix of the worker names: ``name-0``, ``name-1`` and so on.
        start_method: "spawn", "fork" or "forkserver".
        timeout_s: most seconds that `join` waits; None for no limit.
        grace_s: most seconds that a child may take to end on its own in `close`, and again after SIGTERM.
        num_threads: number of threads that torch may use in each child.
        start_timeout_s: most seconds that a child may take to start and receive its function.

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
        """Children that have not been dropped, in the order of their start."""
        return tuple(self._children)

    def start(
        self, target: Callable[..., Any], *args: Any, name: str | None = None, index: int | None = None
    ) -> ChildProcess:
        """Start a child.

        Args:
            target: function to run; its first argument is the child's `Channel`.
            args: the other arguments. Tensors among them are moved to shared memory, except with "fork". An unused end
                of a tensor pipe belongs to the child from now on, so that the other end notices if the child ends
                before it uses its end.
            name: name of the worker (default: the supervisor's name and the worker's number).
            index: number of the worker (default: the number of existing children).

        Raises:
            UnpicklableError: the function or an argument cannot be passed to another process; no child is started.
            MemoryError: shared memory is too small for the tensors and bytes among the arguments; no child is started.
            WorkerStuck: the child did not start in time, because the fork server or the child is stopped.
            WorkerDied: the fork server or the child died during the start.
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
        """Wait until every child has sent its first value, and return these values in the order of the children.

        Args:
            timeout_s: most seconds to wait for all of them.

        Raises:
            WorkerStuck: a child has sent nothing in time; it has been killed.
            WorkerDied, BaseException: as `ChildProcess.recv` does.
        """
        deadline = time.monotonic() + timeout_s
        values = []
        for child in self._children:
            if not child.poll(max(deadline - time.monotonic(), 0.0)):
                raise child.stuck(f"has not started within {timeout_s:g} s")
            values.append(child.recv())
        return values

    def failure(self) -> BaseException | None:
        """Return the error of the first child that failed, None if none has."""
        errors = (child.failure() for child in self._children)
        return next((error for error in errors if error is not None), None)

    def wait(self, timeout_s: float | None = None) -> list[ChildProcess]:
        """Wait until the `recv` of at least one child would not block, and return all such children.

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
        """Wait until the functions of all children have returned, and return their results in order of the children.

        The first failure is raised immediately; `close` then ends the other children.

        Args:
            timeout_s: most seconds to wait (default: the supervisor's `timeout_s`).

        Raises:
            WorkerDied: a child ended without raising an exception.
            WorkerStuck: a child did not return in time.
            BaseException: the exception that a child raised.
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
    """Detection of workers that make no progress for too long."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, float]] = {}

    def is_stuck(self, worker: int, progress: Any, timeout_s: float) -> bool:
        """Return True if a worker's progress, a number or a text, has not changed for `timeout_s` seconds."""
        now = time.monotonic()
        before, since = self._seen.setdefault(worker, (progress, now))
        if before != progress:
            self._seen[worker] = progress, now
            return False
        return now - since > timeout_s

    def restart(self) -> None:
        """Restart the time limits of all workers."""
        self._seen.clear()


def _hand_over(args: tuple[Any, ...], pid: int) -> None:
    """Make a child the owner of the pipe ends among its arguments."""
    for arg in args:
        if hasattr(arg, "hand_over"):
            # an end in use stays here: a forked child has a copy, which it may close
            with contextlib.suppress(StateError):
                arg.hand_over(pid)
