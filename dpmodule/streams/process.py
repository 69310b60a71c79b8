"""`ChildProcess`: a child process, for its parent."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util  # noqa: F401  # registers its exit function first, so that it runs after the one below
import os
import select
import signal
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import Any

from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, MXNetError, StateError
from .child import DONE, ERROR, MESSAGE, ChildStart, Lifeline
from .errors import PipeClosed, WorkerStuck, refused
from .launch import START_S, check_not_importing_main, forget_process, launch, pack_target, resume_fork_server
from .messages import Message, MessageFrames, ReceivedMessage, RemoteError, pack
from .worker_status import STACK_SIGNAL, WorkerStatus, died_error, process_state, stuck_error

KILL_S = 5.0
"""Most seconds to wait for a killed process to end; it takes longer only if the system hangs."""

_open: set[ChildResources] = set()


class ChildResources:
    """Process, channel, lifeline and status page of a child, in its parent.

    Every process forked from the parent closes them, so that a child does not keep its siblings alive.
    """

    def __init__(self) -> None:
        with contextlib.ExitStack() as undo:
            parent_sock, self.child_sock = socket.socketpair()
            self.frames = MessageFrames(parent_sock)
            undo.callback(self.frames.close)
            undo.callback(self.child_sock.close)
            self.lifeline = Lifeline()
            undo.callback(self.lifeline.close)
            self.status = WorkerStatus()
            undo.pop_all()
        self.process: BaseProcess | None = None
        self.pid = -1
        self.exitcode: int | None = None
        self._pidfd = -1
        self._owner = os.getpid()
        self._closed = False
        _open.add(self)

    def attach(self, process: BaseProcess) -> None:
        """Take ownership of a process that has just started."""
        self.process = process
        self.pid = process.pid or -1
        self.lifeline.arm(self.pid)
        self.child_sock.close()
        # the system lacks the call, or the process has ended
        with contextlib.suppress(AttributeError, OSError):
            self._pidfd = os.pidfd_open(self.pid)

    @property
    def sentinel(self) -> int:
        """Descriptor that becomes readable when the process ends."""
        if self._pidfd >= 0 or self.process is None or self._closed:
            return self._pidfd
        return int(self.process.sentinel)

    def dead(self, timeout_s: float = 0.0) -> bool:
        """Wait up to `timeout_s` seconds, and return True if the process has ended."""
        if self.process is None or self._closed:
            return True
        poll = select.poll()
        poll.register(self.sentinel, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is None or self._closed:
            return
        with contextlib.suppress(OSError):  # it has ended
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif not self.dead():
                os.kill(self.pid, number)

    def reap(self, timeout_s: float = KILL_S) -> bool:
        """Wait for the process to end and read its exit status; return False if it still runs after `timeout_s`."""
        if self.process is None:
            return True
        deadline = time.monotonic() + timeout_s
        if not self.dead(timeout_s):
            return False
        self.exitcode = self.process.exitcode
        if self.exitcode is None:  # a fork server reports the status
            resume_fork_server()
            self.process.join(max(deadline - time.monotonic(), 1.0))
            self.exitcode = self.process.exitcode
        return True

    def close(self) -> None:
        """Kill the process if it still runs, and release everything; further calls do nothing."""
        if os.getpid() != self._owner:
            self.abandon()
        elif not self._closed:
            self.signal(signal.SIGKILL)
            self.reap()
            self._release()

    def abandon(self) -> None:
        """In a process other than the parent: close the inherited descriptors."""
        if self._closed:
            return
        if self.process is None:  # this is the child, which needs the rest
            self._closed = True
            _open.discard(self)
            self.frames.close()
            self.lifeline.abandon()
        else:
            self._release()

    def _release(self) -> None:
        self._closed = True
        _open.discard(self)
        self.frames.close()
        self.child_sock.close()
        self.lifeline.close()
        self.status.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self.process is not None and os.getpid() == self._owner:
            try:
                self.process.close()
            except ValueError:  # the process still runs: the system hangs
                forget_process(self.process)


def _close_all() -> None:
    for resources in list(_open):
        resources.close()


def _abandon_all() -> None:
    for resources in list(_open):
        resources.abandon()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


GRACE_S = 1.0
"""Most seconds for a child to end after its channel is closed, and again after SIGTERM."""
_EXIT_S = 5.0  # an interpreter closes the channel before it runs its atexit functions
_STACK_S = 0.6


class ChildProcess(Closing):
    """A process that runs ``target(channel, *args)`` and exchanges messages with its parent.

    The first exception of the child is raised here with its own type; its cause is the traceback in the child. If the
    child ends without an exception, for example by a signal, `WorkerDied` is raised. Every later call raises the same
    error. The process ends with this object or with the parent process, however that ends.

    Do not use an object from several threads at a time.

    Args:
        target: function to run; its first argument is a `Channel`.
        args: its other arguments. Tensors among them are in shared memory afterwards.
        name: name of the worker, also of the process.
        start_method: "spawn", "fork" or "forkserver".
        num_threads: number of threads that torch may use in the child.
        start_timeout_s: most seconds that the child may take to start and receive its function.

    Attributes:
        name: name of the worker.
        index: number of the worker.
        pid: process id.

    Raises:
        ArgumentError: `target` is not callable.
        UnpicklableError: the function or an argument cannot be sent to a process that is not forked; no process is
            started.
        StateError: a child is importing a main program that lacks ``if __name__ == "__main__":``.
        WorkerStuck: the child could not be started in time: the fork server or the child is stopped.
        WorkerDied: the fork server or the child died during the start.
        FileError: the system has no descriptor, process or memory left.
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
        self._inbox: deque[ReceivedMessage] = deque()
        self._outcome: ReceivedMessage | None = None
        self._error: BaseException | None = None
        self._closed = False
        if not callable(target):
            raise ArgumentError(f"worker {index} {name!r}: target is {target!r}, expected a function")
        check_not_importing_main()
        message = None if start_method == "fork" else pack_target(target, args)
        try:
            self._resources = ChildResources()
        except OSError as error:
            raise refused(f"the channel of worker {index} {name!r}", error) from error
        self._finalizer = weakref.finalize(self, ChildResources.close, self._resources)
        self._finalizer.atexit = False  # `ChildResources` closes it at exit
        try:
            self._start(start_method, target, args, num_threads, message, start_timeout_s)
        except BaseException:
            self._closed = True
            self._finalizer()
            raise
        finally:
            if message is not None:
                message.close()
        self.pid = self._resources.pid

    def _start(
        self,
        method: str,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        threads: int,
        message: Message | None,
        timeout_s: float,
    ) -> None:
        resources = self._resources
        fds = (resources.child_sock, resources.lifeline.child_fd, resources.status.fd)
        start = ChildStart(*fds, self.name, self.index, threads, generators.child_seed())
        try:
            resources.attach(launch(method, start, target, args, timeout_s))
        except MXNetError:
            raise
        except OSError as error:
            raise refused(f"the process of worker {self.index} {self.name!r}", error) from error
        if message is not None:
            self._send(message, timeout_s)

    def __repr__(self) -> str:
        return f"ChildProcess({self.index}, {self.name!r}, pid={self.pid})"

    # --- state

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return not self._closed and not self._resources.dead()

    @property
    def finished(self) -> bool:
        """True if the child's function has returned."""
        return self._outcome is not None

    @property
    def working_on(self) -> str:
        """The child's latest `Channel.note`; empty if there is none."""
        return "" if self._closed else self._resources.status.read()

    @property
    def sentinel(self) -> int:
        """Descriptor that becomes readable when the process ends, for an event loop to watch."""
        return self._resources.sentinel

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message arrives, for an event loop to watch."""
        return self._resources.frames.fileno()

    def stack(self, timeout_s: float = _STACK_S) -> str:
        """Return the current Python stacks of the child's threads; empty if the child does not answer in time.

        A stopped child is resumed, since it could not answer otherwise.

        Args:
            timeout_s: most seconds to wait.
        """
        resources = self._resources
        if self._closed or resources.dead() or not resources.status.begun():
            return ""
        resources.signal(STACK_SIGNAL)
        resources.signal(signal.SIGCONT)
        return resources.status.await_stack(timeout_s)

    # --- messages

    def send(self, value: Any, timeout_s: float | None = None) -> None:
        """Send a value to the child; block while the child does not read.

        Args:
            value: any picklable object; large arrays and tensors go through shared memory.
            timeout_s: most seconds to wait; None to wait as long as the child lives.

        Raises:
            WorkerDied: the child has ended.
            WorkerStuck: the child did not read in time; it has been killed.
            BaseException: the exception of the child.
        """
        self._check_open()
        self._raise_error()
        self._send(pack(MESSAGE, value), timeout_s)

    def _send(self, message: Message, timeout_s: float | None) -> None:
        deadline = _deadline(timeout_s)

        def until_writable() -> None:
            self._wait(deadline, timeout_s, writing=True)

        try:
            self._resources.frames.send(message, until_writable)
        except OSError:  # the other end is closed: the child is ending
            self._pump()
            if self._error is None and self._outcome is None:
                self._fail()
            self._raise_error()
            raise self._returned() from None

    def recv(self, timeout_s: float | None = None) -> Any:
        """Return the next value that the child sent.

        Args:
            timeout_s: most seconds to wait; None to wait as long as the child lives.

        Raises:
            PipeClosed: the child's function has returned, and everything it sent has been received.
            WorkerDied: the child ended in another way.
            WorkerStuck: nothing arrived in time; the child has been killed.
            BaseException: the exception of the child.
        """
        if not self.poll(timeout_s):
            raise self._give_up(timeout_s)
        if self._inbox:
            return self._inbox.popleft().value()
        self._raise_error()
        raise self._returned()

    def poll(self, timeout_s: float | None = 0.0) -> bool:
        """Wait up to `timeout_s` seconds, and return True if `recv` would return or raise without blocking.

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
        """Wait for the child's function and return its result; messages can still be received.

        Args:
            timeout_s: most seconds to wait; None for no limit.

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
        """Return the child's exception or a WorkerDied; None if the child runs or has returned.

        Args:
            timeout_s: seconds to wait for its end.
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
        """Read from the channel, and return True if there is a message to receive."""
        frames = self._resources.frames
        if not frames.ended:
            for message in frames.receive():
                if message.kind == MESSAGE:
                    self._inbox.append(message)
                else:
                    self._conclude(message)
        return bool(self._inbox)

    def _conclude(self, message: ReceivedMessage) -> None:
        if message.kind == DONE:
            self._outcome = message
        elif message.kind == ERROR and self._error is None:
            remote: RemoteError = message.value()
            self._error = remote.restore(self._who())

    def _ended(self) -> bool:
        """Return True if the child has returned or failed; if it died, determine the cause."""
        if self._outcome is not None or self._error is not None:
            return True
        if self._resources.dead() or self._resources.frames.ended:
            self._fail()
            return True
        return False

    def _fail(self) -> None:
        """Determine why the child ended from its last messages or its exit status."""
        ended = self._resources.reap(_EXIT_S)
        self._pump()
        if self._outcome is None and self._error is None:
            if ended:
                resources = self._resources
                end = (resources.pid, resources.exitcode, resources.status)
                self._error = died_error(self._who(), self.index, self.name, *end)
            else:
                self.stuck(f"closed its channel and did not end within {_EXIT_S:g} s")
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
        if self._resources.dead():
            raise BrokenPipeError

    def _give_up(self, timeout_s: float | None) -> BaseException:
        """Kill a child that does not answer, and return the error with its stack."""
        if self._error is None:
            self._error = self.stuck(f"did not answer within {timeout_s:g} s")
        return self._error.with_traceback(None)

    def stuck(self, how: str) -> WorkerStuck:
        """Kill a hanging child, and return the error with its stack, which later calls raise.

        Args:
            how: rest of the sentence "worker 1 'reader' (pid 42) ...".
        """
        state, doing = process_state(self.pid), self.working_on
        begun = not self._closed and self._resources.status.begun()
        stack = self.stack()
        self.kill()
        error = stuck_error(self._who(), how, doing, state, stack, begun)
        self._error = self._error or error
        return error

    # --- its end

    def _who(self) -> str:
        return f"worker {self.index} {self.name!r} (pid {self._resources.pid})"

    def kill(self) -> None:
        """End the process with SIGKILL; its last messages can still be received."""
        if not self._closed:
            self._resources.signal(signal.SIGKILL)
            self._resources.reap()

    def ask_to_end(self) -> None:
        """Close the channel: the child's next `recv` or `send` then raises PipeClosed."""
        if not self._closed:
            self._resources.frames.close()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._resources.signal(signal.SIGTERM)
        self._resources.signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds, and return True if the process has ended.

        Args:
            timeout_s: seconds, 0 or more.
        """
        return self._closed or self._resources.dead(timeout_s)

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the process and release everything: close the channel, then send SIGTERM, then SIGKILL.

        Args:
            grace_s: seconds to wait after each of the first two.
        """
        close_all([self], grace_s)

    def release(self) -> None:
        """Kill the process if it still runs, and release everything."""
        self._closed = True
        self._finalizer()


def block(children: Iterable[ChildProcess], left_s: float | None, event: int = select.POLLIN) -> None:
    """Wait until there is something to read from a child, or to write to it, or its process ends.

    Args:
        event: what to wait for, in addition to the end: reading or writing.
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
    finally:  # also when Ctrl-C interrupts the waiting
        for child in children:
            child.release()


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
