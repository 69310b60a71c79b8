"""What runs in a child process before, around and after the function that it was started for."""

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
from .crash_note import Note
from .errors import PipeClosed, WorkerStuck
from .messages import Message, MessageFrames, Received, RemoteError, pack

_SET_SIGNAL: int | None = getattr(fcntl, "F_SETSIG", None)  # Linux only


class Lifeline:
    """The parent's part: a child is killed by the system once this is closed, as it is when the parent dies.

    The system itself sends SIGKILL when nobody holds the pipe's writing end any more, so that it does not matter what
    the child's interpreter is doing; nor does it matter which thread started the child, which for
    ``prctl(PR_SET_PDEATHSIG)`` must not end before the child does.

    Attributes:
        child_fd: the reading end, for the child to inherit; -1 once it has been given away.
    """

    def __init__(self) -> None:
        self.child_fd, self._fd = os.pipe()
        if _SET_SIGNAL is not None:
            _notify(self.child_fd)

    def arm(self, pid: int) -> None:
        """Bind the pipe to a child that has just been started, and close the parent's copy of the reading end."""
        if _SET_SIGNAL is not None:
            with contextlib.suppress(OSError):  # it is dead already
                fcntl.fcntl(self.child_fd, fcntl.F_SETOWN, pid)
        self.close_child_fd()

    def close_child_fd(self) -> None:
        """Close the parent's copy of the reading end."""
        fd, self.child_fd = self.child_fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Let go of the child: kill it, if it still runs."""
        self.close_child_fd()
        self.abandon()

    def abandon(self) -> None:
        """Close the parent's own end only."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _notify(fd: int) -> None:
    """Have the system send SIGKILL, to an owner yet to be named, when the pipe's other end closes."""
    fcntl.fcntl(fd, _SET_SIGNAL or 0, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


def hold(fd: int) -> None:
    """In the child: end with the parent from now on, at once if it is gone already."""
    if _SET_SIGNAL is not None:
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())  # the parent may have died before it could
        if select.select([fd], [], [], 0)[0]:
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(fd,), name="dpmodule-lifeline", daemon=True).start()


def _watch(fd: int) -> None:
    os.read(fd, 1)
    os.kill(os.getpid(), signal.SIGKILL)


START, MESSAGE, DONE, ERROR = range(4)
"""Kinds of messages: what to run; the users' own; what the function returned; what it raised."""

_received_fds: list[int] = []
_importing_main = False


class ParentGone(PipeClosed):
    """The parent closed its end: the child is not needed any more."""


@dataclass(slots=True)
class Link:
    """What a child needs from its parent, on its way through the start of the process."""

    sock: socket.socket
    lifeline_fd: int
    note_fd: int
    name: str
    index: int
    num_threads: int
    entropy: tuple[int, int]

    def __reduce__(self) -> tuple[Any, ...]:
        fds = [reduction.DupFd(fd) for fd in (self.sock.fileno(), self.lifeline_fd, self.note_fd)]
        return _rebuild_link, (fds, self.name, self.index, self.num_threads, self.entropy)


def _rebuild_link(fds: list[Any], *rest: Any) -> Link:
    sock, lifeline_fd, note_fd = (each.detach() for each in fds)
    return Link(socket.socket(fileno=sock), lifeline_fd, note_fd, *rest)


@dataclass(frozen=True, slots=True)
class Passed:
    """Stands for an open descriptor in a pickle; `detach` returns it in the child, as multiprocessing's own does."""

    position: int

    def detach(self) -> int:
        """Return the descriptor; it belongs to the caller then."""
        fd, _received_fds[self.position] = _received_fds[self.position], -1
        return fd


def importing_main() -> bool:
    """Say whether this child is importing the program's main file, for the sake of a function defined there."""
    return _importing_main


class Channel:
    """A child's connection to its parent.

    Args:
        note: memory shared with the parent, in which the worker leaves what it is doing.

    Attributes:
        name: of this worker.
        index: of this worker, from 0.
    """

    def __init__(self, frames: MessageFrames, note: Note, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self._frames = frames
        self._note = note
        self._waiting: list[Received] = []

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message arrives, or when the parent closes."""
        return self._frames.fileno()

    def note(self, what: str, number: int = -1) -> None:
        """Note what this worker is working on, for the error that the parent raises should the worker die or hang.

        Args:
            what: such as the name of a file, or "batch"; pass the same object while it stays the same.
            number: which record, batch or job of it; below 0: none.
        """
        self._note.write(what, number)

    def send(self, value: Any) -> None:
        """Send a value to the parent; waits while the parent does not read.

        Args:
            value: anything that can be pickled; arrays and tensors travel in shared memory when they are large.

        Raises:
            PipeClosed: the parent has closed the channel.
        """
        self.send_message(pack(MESSAGE, value))

    def send_message(self, message: Message) -> None:
        """Send a message that is packed already.

        Args:
            message: what `pack` made.
        """
        try:
            self._frames.send(message, self._until_writable)
        except OSError:
            raise self._gone() from None

    def _until_writable(self) -> None:
        select.select([], [self._frames], [])

    def poll(self, timeout_s: float | None = 0.0) -> bool:
        """Say whether `recv` would return or raise at once, after waiting up to `timeout_s` seconds for that.

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
            timeout_s: how long to wait, in seconds; None: as long as the parent lives.

        Raises:
            PipeClosed: the parent has closed the channel; let it pass, and this process ends quietly.
            TimeoutError: nothing came in time.
        """
        return self.recv_message(timeout_s).value()

    def recv_message(self, timeout_s: float | None = None) -> Received:
        """Return the next message, not yet unpickled.

        Args:
            timeout_s: seconds to wait; None for no limit.
        """
        if not self.poll(timeout_s):
            raise WorkerStuck(f"worker {self.index} {self.name!r} got no message within {timeout_s:g} s")
        if not self._waiting:
            raise self._gone()
        return self._waiting.pop(0)

    def _gone(self) -> ParentGone:
        return ParentGone(f"the parent of worker {self.index} {self.name!r} has closed the channel")


def run(link: Link, target: Callable[..., Any] | None = None, args: tuple[Any, ...] = ()) -> None:
    """Be a child process: the function that every process of a supervisor is started with.

    Args:
        target: what to run, for a forked child; others receive it.
    """
    note = Note(link.note_fd)
    _settle(link, note)
    channel = Channel(MessageFrames(link.sock), note, link.name, link.index)
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


def _settle(link: Link, note: Note) -> None:
    """Put right what a new process has from its parent or from the system."""
    hold(link.lifeline_fd)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; it is the parent's to end its children
    note.watch_stack()
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # what ps, top and perf show
        name.write(link.name[:15])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    torch.set_num_threads(link.num_threads)  # before any work: a forked child has none of OpenMP's threads
    generators.seed_process(link.entropy)
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
    _importing_main = process._inheriting = True  # so that a program without a guard is told so
    try:
        multiprocessing.spawn.prepare(main)
    finally:
        _importing_main = process._inheriting = False
