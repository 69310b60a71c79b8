"""Code of a child process: its setup, its channel to the parent, and the call of its function."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing.process
import multiprocessing.spawn
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import reduction
from typing import Any

import torch

from .._devices import generators
from .errors import PipeClosed, WorkerStuck
from .messages import Message, MessageFrames, ReceivedMessage, RemoteError, pack
from .worker_status import WorkerStatus

_SET_SIGNAL: int | None = getattr(fcntl, "F_SETSIG", None)  # Linux only


class Lifeline:
    """A pipe whose closing, or the parent's death, makes the system kill the child.

    The system sends SIGKILL when the last writing end is closed, whatever the child's interpreter is doing. Unlike
    ``prctl(PR_SET_PDEATHSIG)`` it does not depend on the thread that started the child.

    Attributes:
        child_fd: the reading end, which the child inherits; -1 after it is closed here.
    """

    def __init__(self) -> None:
        self.child_fd, self._fd = os.pipe()
        if _SET_SIGNAL is not None:
            _notify(self.child_fd)

    def arm(self, pid: int) -> None:
        """Bind the pipe to a child that has just been started, and close the parent's copy of the reading end."""
        if _SET_SIGNAL is not None:
            with contextlib.suppress(OSError):  # the child has already ended
                fcntl.fcntl(self.child_fd, fcntl.F_SETOWN, pid)
        self.close_child_fd()

    def close_child_fd(self) -> None:
        """Close the parent's copy of the reading end."""
        fd, self.child_fd = self.child_fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Kill the child if it still runs."""
        self.close_child_fd()
        self.abandon()

    def abandon(self) -> None:
        """Close the parent's end only."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _notify(fd: int) -> None:
    """Have the system send SIGKILL to the descriptor's owner when the pipe's other end closes."""
    fcntl.fcntl(fd, _SET_SIGNAL or 0, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def hold_lifeline(fd: int) -> None:
    """In the child: end when the parent ends, immediately if it is already gone."""
    if _SET_SIGNAL is not None:
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())  # the parent may have died before doing it
        if select.select([fd], [], [], 0)[0]:
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(fd,), name="dpmodule-lifeline", daemon=True).start()


def _watch(fd: int) -> None:
    os.read(fd, 1)
    os.kill(os.getpid(), signal.SIGKILL)


START, MESSAGE, DONE, ERROR = range(4)
"""Kinds of messages: the function to run, a user's value, the function's result, its exception."""

_received_fds: list[int] = []
_importing_main = False


class ParentGone(PipeClosed):
    """The parent closed its end of the channel."""


@dataclass(slots=True)
class ChildStart:
    """Resources and settings that a parent passes to a new child."""

    sock: socket.socket
    lifeline_fd: int
    status_fd: int
    name: str
    index: int
    num_threads: int
    entropy: tuple[int, int]

    def __reduce__(self) -> tuple[Any, ...]:
        fds = [reduction.DupFd(fd) for fd in (self.sock.fileno(), self.lifeline_fd, self.status_fd)]
        return _rebuild_link, (fds, self.name, self.index, self.num_threads, self.entropy)


def _rebuild_link(fds: list[Any], *rest: Any) -> ChildStart:
    sock, lifeline_fd, status_fd = (fd.detach() for fd in fds)
    return ChildStart(socket.socket(fileno=sock), lifeline_fd, status_fd, *rest)


@dataclass(frozen=True, slots=True)
class PassedDescriptor:
    """Placeholder of an open descriptor in a pickle; `detach` returns it in the child, as in multiprocessing."""

    position: int

    def detach(self) -> int:
        """Return the descriptor, which then belongs to the caller."""
        fd, _received_fds[self.position] = _received_fds[self.position], -1
        return fd


def importing_main() -> bool:
    """Return True while this child imports the program's main file, for a function defined there."""
    return _importing_main


class Channel:
    """A child's connection to its parent.

    Args:
        status: page shared with the parent, in which the worker records its current work.

    Attributes:
        name: name of this worker.
        index: number of this worker, from 0.
    """

    def __init__(self, frames: MessageFrames, status: WorkerStatus, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self._frames = frames
        self._status = status
        self._waiting: list[ReceivedMessage] = []

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message arrives, or when the parent closes."""
        return self._frames.fileno()

    def note(self, what: str, number: int = -1) -> None:
        """Record what this worker is working on, for the parent's error message if the worker dies or hangs.

        Args:
            what: name of the work, such as a file or "batch"; pass the same object while it does not change.
            number: number of the record, batch or job; negative for none.
        """
        self._status.write(what, number)

    def send(self, value: Any) -> None:
        """Send a value to the parent; block while the parent does not read.

        Args:
            value: any picklable object; large arrays and tensors go through shared memory.

        Raises:
            PipeClosed: the parent has closed the channel.
        """
        self.send_message(pack(MESSAGE, value))

    def send_message(self, message: Message) -> None:
        """Send a packed message.

        Args:
            message: a message that `pack` made.
        """
        try:
            self._frames.send(message, self._until_writable)
        except OSError:
            raise self._gone() from None

    def _until_writable(self) -> None:
        select.select([], [self._frames], [])

    def poll(self, timeout_s: float | None = 0.0) -> bool:
        """Wait up to `timeout_s` seconds, and return True if `recv` would return or raise without blocking.

        Args:
            timeout_s: seconds; None for no limit.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._waiting and not self._frames.ended:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            select.select([self._frames], [], [], left)
            self._waiting += self._frames.receive()
            if left == 0.0:
                break
        return bool(self._waiting) or self._frames.ended

    def recv(self, timeout_s: float | None = None) -> Any:
        """Return the next value that the parent sent.

        Args:
            timeout_s: most seconds to wait; None to wait as long as the parent lives.

        Raises:
            PipeClosed: the parent has closed the channel; uncaught, it ends the process without an error.
            TimeoutError: nothing arrived in time.
        """
        return self.recv_message(timeout_s).value()

    def recv_message(self, timeout_s: float | None = None) -> ReceivedMessage:
        """Return the next message, not yet unpickled.

        Args:
            timeout_s: most seconds to wait; None for no limit.
        """
        if not self.poll(timeout_s):
            raise WorkerStuck(f"worker {self.index} {self.name!r} got no message within {timeout_s:g} s")
        if not self._waiting:
            raise self._gone()
        return self._waiting.pop(0)

    def _gone(self) -> ParentGone:
        return ParentGone(f"the parent of worker {self.index} {self.name!r} has closed the channel")


def run(start: ChildStart, target: Callable[..., Any] | None = None, args: tuple[Any, ...] = ()) -> None:
    """Run a child process from its setup to its end.

    Args:
        target: function of a forked child; other children receive theirs as a message.
    """
    status = WorkerStatus(start.status_fd)
    _initialize(start, status)
    channel = Channel(MessageFrames(start.sock), status, start.name, start.index)
    try:
        if target is None:
            target, args = _receive_target(channel)
        value = target(channel, *args)
        message = pack(DONE, value)
    except ParentGone:
        return
    except SystemExit:
        raise
    except BaseException as error:
        message = pack(ERROR, RemoteError.of(error, skip=1))
        with contextlib.suppress(ParentGone):
            channel.send_message(message)
        sys.exit(1)
    with contextlib.suppress(ParentGone):
        channel.send_message(message)


def _initialize(start: ChildStart, status: WorkerStatus) -> None:
    """Reset signals, threads and random numbers that a new process has from its parent."""
    hold_lifeline(start.lifeline_fd)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends its children
    status.watch_stack()
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # shown by ps, top and perf
        name.write(start.name[:15])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    torch.set_num_threads(start.num_threads)  # first: a forked child lacks the threads of OpenMP
    generators.seed_process(start.entropy)
    if (asyncio := sys.modules.get("asyncio")) is not None:
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(None)


def _receive_target(channel: Channel) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    message = channel.recv_message()
    main, data = message.value()
    if main:
        _import_main(main)
    _received_fds[:] = message.fds
    try:
        target, args = pickle.loads(data)
    finally:
        for fd in _received_fds:
            if fd >= 0:
                os.close(fd)
        _received_fds.clear()
    return target, args


def _import_main(main: dict[str, Any]) -> None:
    """Import the program's main file, under another name, as multiprocessing does."""
    global _importing_main
    process: Any = multiprocessing.process.current_process()
    _importing_main = process._inheriting = True  # makes a program without a guard raise an error
    try:
        multiprocessing.spawn.prepare(main)
    finally:
        _importing_main = process._inheriting = False
