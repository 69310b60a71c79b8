"""`ChildProcess`: one child, as its parent sees it."""

from __future__ import annotations

import select
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, MXNetError, StateError
from .child import DONE, ERROR, MESSAGE, Link
from .child_resources import Ends
from .crash_note import STACK_SIGNAL, death, hanging, state_of
from .errors import PipeClosed, WorkerStuck, refused
from .launch import START_S, check_not_importing_main, launch, pack_target
from .messages import Message, Received, RemoteError, pack

GRACE_S = 1.0
"""How long a child may take to end after its channel was closed, and again after SIGTERM, in seconds."""
_LAST_WORDS_S = 5.0  # an interpreter that ends has closed the channel before it runs what atexit has
_STACK_S = 0.6


class ChildProcess(Closing):
    """A process that runs ``target(channel, *args)``; its parent talks to it by messages.

    The first exception of the child is raised here, with its own type, its cause being the traceback it had there. A
    child that ends without one, killed by a signal or otherwise, raises `WorkerDied`, at once. Whatever is raised is
    raised again by every later call. The process ends with this object, or with the process that it belongs to, in
    whatever way that dies.

    Not to be used from several threads at a time.

    Args:
        target: what to run; its first argument is a `Channel`.
        args: its other arguments. Tensors among them lie in shared memory afterwards.
        name: name of the worker, also of the process.
        start_method: "spawn", "fork" or "forkserver".
        num_threads: how many threads torch may use in the child.
        start_timeout_s: how long the system may take to start the child, until it has its function, in seconds.

    Attributes:
        name: of the worker.
        index: of the worker.
        pid: of the process.

    Raises:
        ArgumentError: `target` cannot be called.
        UnpicklableError: the function or one of its arguments cannot be given to a process that is not forked; none
            has been started then.
        StateError: a main program that lacks ``if __name__ == "__main__":`` is being imported in a child.
        WorkerStuck: the child could not be started in time, as the fork server or the child itself is stopped.
        WorkerDied: the fork server, or the child, died meanwhile.
        FileError: the system has no descriptor, process or memory left for it.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "worker",
        index: int = 0,
        start_method: str = "spawn",
        num_threads: int = 1,
        start_timeout_s: float = START_S,
    ) -> None:
        self.name = name
        self.index = index
        self._inbox: deque[Received] = deque()
        self._outcome: Received | None = None
        self._error: BaseException | None = None
        self._closed = False
        if not callable(target):
            raise ArgumentError(f"worker {index} {name!r}: target is {target!r}, expected a function")
        check_not_importing_main()
        message = None if start_method == "fork" else pack_target(target, args)
        try:
            self._ends = Ends()
        except OSError as error:
            raise refused(f"the channel of worker {index} {name!r}", error) from error
        self._finalizer = weakref.finalize(self, Ends.close, self._ends)
        self._finalizer.atexit = False  # `child_resources` has a function of its own for that
        try:
            self._start(start_method, target, args, num_threads, message, start_timeout_s)
        except BaseException:
            self._closed = True
            self._finalizer()
            raise
        finally:
            if message is not None:
                message.close()
        self.pid = self._ends.pid

    def _start(
        self,
        method: str,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        threads: int,
        message: Message | None,
        timeout_s: float,
    ) -> None:
        ends = self._ends
        fds = (ends.child_sock, ends.lifeline.child_fd, ends.note.fd)
        link = Link(*fds, self.name, self.index, threads, generators.child_seed())
        try:
            ends.started(launch(method, link, target, args, timeout_s))
        except MXNetError:
            raise
        except OSError as error:
            raise refused(f"the process of worker {self.index} {self.name!r}", error) from error
        if message is not None:
            self._send(message, timeout_s)

    def __repr__(self) -> str:
        return f"ChildProcess({self.index}, {self.name!r}, pid={self.pid})"

    # --- what it is doing

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self._closed and not self._ends.dead()

    @property
    def finished(self) -> bool:
        """Whether the child's function has returned."""
        return self._outcome is not None

    @property
    def working_on(self) -> str:
        """What the child noted last by `Channel.note`; empty if nothing."""
        return "" if self._closed else self._ends.note.read()

    @property
    def sentinel(self) -> int:
        """Descriptor that becomes readable when the process ends, for an event loop to watch."""
        return self._ends.sentinel

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message has come, for an event loop to watch."""
        return self._ends.frames.fileno()

    def stack(self, timeout_s: float = _STACK_S) -> str:
        """Return the Python stacks of the child's threads as they are now; empty if it does not give them in time.

        A child that is stopped is let go on, since it could not answer otherwise.

        Args:
            timeout_s: seconds the child has for it.
        """
        ends = self._ends
        if self._closed or ends.dead() or not ends.note.begun():
            return ""
        ends.signal(STACK_SIGNAL)
        ends.signal(signal.SIGCONT)
        return ends.note.await_stack(timeout_s)

    # --- messages

    def send(self, value: Any, timeout_s: float | None = None) -> None:
        """Send a value to the child; waits while the child does not read.

        Args:
            value: anything that can be pickled; arrays and tensors travel in shared memory when they are large.
            timeout_s: how long to wait, in seconds; None: as long as the child lives.

        Raises:
            WorkerDied: the child has ended.
            WorkerStuck: the child did not read in time; it has been killed.
            BaseException: whatever the child raised.
        """
        self._check_open()
        self._raise_error()
        self._send(pack(MESSAGE, value), timeout_s)

    def _send(self, message: Message, timeout_s: float | None) -> None:
        deadline = _deadline(timeout_s)

        def until_writable() -> None:
            self._wait(deadline, timeout_s, writing=True)

        try:
            self._ends.frames.send(message, until_writable)
        except OSError:  # the other end is closed: it is ending, and says why or not
            self._pump()
            if self._error is None and self._outcome is None:
                self._fail()
            self._raise_error()
            raise self._returned() from None

    def recv(self, timeout_s: float | None = None) -> Any:
        """Return the next value that the child sent.

        Args:
            timeout_s: how long to wait, in seconds; None: as long as the child lives.

        Raises:
            PipeClosed: the child's function has returned, and all it sent has been received.
            WorkerDied: the child has ended otherwise.
            WorkerStuck: nothing came in time; the child has been killed.
            BaseException: whatever the child raised.
        """
        if not self.poll(timeout_s):
            raise self._give_up(timeout_s)
        if self._inbox:
            return self._inbox.popleft().value()
        self._raise_error()
        raise self._returned()

    def poll(self, timeout_s: float | None = 0.0) -> bool:
        """Say whether `recv` would return or raise at once, after waiting up to `timeout_s` seconds for that.

        Args:
            timeout_s: seconds; None for no limit.
        """
        self._check_open()
        deadline = _deadline(timeout_s)
        while not (self._pump() or self._ended()):
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            block([self], left)
        return True

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait until the child's function returns, and return what it returned; messages stay to be received.

        Args:
            timeout_s: seconds to wait; None for no limit.

        Raises:
            WorkerDied, WorkerStuck, BaseException: as `recv` does.
        """
        self._check_open()
        deadline = _deadline(timeout_s)
        while not self._ended():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise self._give_up(timeout_s)
            block([self], left)
            self._pump()
        self._raise_error()
        return None if self._outcome is None else self._outcome.value()

    def failure(self, timeout_s: float = 0.0) -> BaseException | None:
        """Return why the child failed: its exception, or a WorkerDied; None if it runs, or has returned.

        Args:
            timeout_s: how long to wait for its end, in seconds.
        """
        deadline = time.monotonic() + timeout_s
        while self._error is None and not self._closed:
            self._pump()
            left = deadline - time.monotonic()
            if self._ended() or left <= 0:
                break
            block([self], left)
        return self._error

    def _pump(self) -> bool:
        """Take what has come; say whether there is a message to receive."""
        frames = self._ends.frames
        if not frames.ended:
            for message in frames.receive():
                if message.kind == MESSAGE:
                    self._inbox.append(message)
                else:
                    self._conclude(message)
        return bool(self._inbox)

    def _conclude(self, message: Received) -> None:
        if message.kind == DONE:
            self._outcome = message
        elif message.kind == ERROR and self._error is None:
            remote: RemoteError = message.value()
            self._error = remote.restore(self._who())

    def _ended(self) -> bool:
        """Say whether the child has returned or failed; find out why, should it have died."""
        if self._outcome is not None or self._error is not None:
            return True
        if self._ends.dead() or self._ends.frames.ended:
            self._fail()
            return True
        return False

    def _fail(self) -> None:
        """Find the reason of an end: the last words of the child, or the way in which it ended."""
        ended = self._ends.reap(_LAST_WORDS_S)
        self._pump()
        if self._outcome is None and self._error is None:
            if ended:
                ends = self._ends
                self._error = death(self._who(), self.index, self.name, ends.pid, ends.exitcode, ends.note)
            else:
                self.stuck(f"closed its channel and did not end within {_LAST_WORDS_S:g} s")
        elif not ended:
            self.kill()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None) from self._error.__cause__

    def _returned(self) -> PipeClosed:
        return PipeClosed(f"{self._who()} has returned; there is nothing more to send or receive")

    def _check_open(self) -> None:
        if self._closed:
            self._raise_error()
            raise StateError(f"{self._who()} is closed")

    # --- waiting

    def _wait(self, deadline: float | None, timeout_s: float | None, writing: bool) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise self._give_up(timeout_s)
        block([self], left, select.POLLOUT if writing else select.POLLIN)
        if self._ends.dead():
            raise BrokenPipeError

    def _give_up(self, timeout_s: float | None) -> BaseException:
        """Kill a child that does not answer, and return the error that says where it hung."""
        if self._error is None:
            self._error = self.stuck(f"did not answer within {timeout_s:g} s")
        return self._error.with_traceback(None)

    def stuck(self, how: str) -> WorkerStuck:
        """Kill the child because it hangs; returns the error that says where, which later calls raise.

        Args:
            how: completes the sentence "worker 1 'reader' (pid 42) ...".
        """
        state, doing = state_of(self.pid), self.working_on
        begun = not self._closed and self._ends.note.begun()
        stack = self.stack()
        self.kill()
        error = hanging(self._who(), how, doing, state, stack, begun)
        self._error = self._error or error
        return error

    # --- its end

    def _who(self) -> str:
        return f"worker {self.index} {self.name!r} (pid {self._ends.pid})"

    def kill(self) -> None:
        """End the process at once, with SIGKILL; its last messages can still be received."""
        if not self._closed:
            self._ends.signal(signal.SIGKILL)
            self._ends.reap()

    def ask_to_end(self) -> None:
        """Close the channel: the child's next `recv` or `send` tells it that it is not needed any more."""
        if not self._closed:
            self._ends.frames.close()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._ends.signal(signal.SIGTERM)
        self._ends.signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to end, up to `timeout_s` seconds; say whether it has.

        Args:
            timeout_s: seconds, from 0.
        """
        return self._closed or self._ends.dead(timeout_s)

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the process and give everything back: first asked, then told by SIGTERM, then killed.

        Args:
            grace_s: how long to wait after each of the first two, in seconds.
        """
        close_all([self], grace_s)

    def give_back(self) -> None:
        """Kill the process if it still runs, and give everything back."""
        self._closed = True
        self._finalizer()


def block(children: Iterable[ChildProcess], left_s: float | None, event: int = select.POLLIN) -> None:
    """Wait until there is something to read from a child, or to write to it, or its process ends.

    Args:
        event: what to wait for, besides the end: reading or writing.
    """
    poll = select.poll()
    for child in children:
        poll.register(child, event)
        poll.register(child.sentinel, select.POLLIN)
    poll.poll(None if left_s is None else max(left_s, 0.0) * 1000)


def close_all(children: list[ChildProcess], grace_s: float = GRACE_S) -> None:
    """End several children together; see `ChildProcess.close`."""
    try:
        for step in (ChildProcess.ask_to_end, ChildProcess.terminate):
            for child in children:
                step(child)
            deadline = time.monotonic() + grace_s
            for child in children:
                child.wait(max(deadline - time.monotonic(), 0.0))
            if all(child.wait(0) for child in children):
                break
    finally:  # also when Ctrl-C cuts the waiting short
        for child in children:
            child.give_back()


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
