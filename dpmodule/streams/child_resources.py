"""The parent's resources of one child process, and how they are given back."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util  # noqa: F401  # its exit function has to be registered before ours, to run after it
import os
import select
import signal
import socket
import time
from multiprocessing.process import BaseProcess

from .child import Lifeline
from .crash_note import Note
from .launch import forget, let_continue
from .messages import MessageFrames

KILL_S = 5.0
"""How long a killed process may take to go, in seconds; longer only if the system itself hangs."""

_live: set[Ends] = set()


class Ends:
    """A child's process, channel, lifeline and note, as its parent has them.

    They are closed in every process that is forked from the parent: a child must not keep its sisters alive.
    """

    def __init__(self) -> None:
        with contextlib.ExitStack() as undo:
            ours, self.child_sock = socket.socketpair()
            self.frames = MessageFrames(ours)
            undo.callback(self.frames.close)
            undo.callback(self.child_sock.close)
            self.lifeline = Lifeline()
            undo.callback(self.lifeline.close)
            self.note = Note()
            undo.pop_all()
        self.process: BaseProcess | None = None
        self.pid = -1
        self.exitcode: int | None = None
        self._pidfd = -1
        self._owner = os.getpid()
        self._closed = False
        _live.add(self)

    def started(self, process: BaseProcess) -> None:
        """Take over a process that has just been started."""
        self.process = process
        self.pid = process.pid or -1
        self.lifeline.arm(self.pid)
        self.child_sock.close()
        # no such call here, or the process is gone already
        with contextlib.suppress(AttributeError, OSError):
            self._pidfd = os.pidfd_open(self.pid)

    @property
    def sentinel(self) -> int:
        """Descriptor that becomes readable when the process ends."""
        if self._pidfd >= 0 or self.process is None or self._closed:
            return self._pidfd
        return int(self.process.sentinel)

    def dead(self, timeout_s: float = 0.0) -> bool:
        """Say whether the process has ended, after waiting up to `timeout_s` seconds for that."""
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
        """Wait for the process to end and take its exit status; False if it still runs after `timeout_s` seconds."""
        if self.process is None:
            return True
        deadline = time.monotonic() + timeout_s
        if not self.dead(timeout_s):
            return False
        self.exitcode = self.process.exitcode
        if self.exitcode is None:  # with a forkserver the status comes by way of the server
            let_continue()
            self.process.join(max(deadline - time.monotonic(), 1.0))
            self.exitcode = self.process.exitcode
        return True

    def close(self) -> None:
        """Kill the process if it still runs, and give everything back; further calls do nothing."""
        if os.getpid() != self._owner:
            self.abandon()
        elif not self._closed:
            self.signal(signal.SIGKILL)
            self.reap()
            self._give_back()

    def abandon(self) -> None:
        """In another process than the parent: close what was inherited."""
        if self._closed:
            return
        if self.process is None:  # this is the child itself, which needs the rest
            self._closed = True
            _live.discard(self)
            self.frames.close()
            self.lifeline.abandon()
        else:
            self._give_back()

    def _give_back(self) -> None:
        self._closed = True
        _live.discard(self)
        self.frames.close()
        self.child_sock.close()
        self.lifeline.close()
        self.note.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self.process is not None and os.getpid() == self._owner:
            try:
                self.process.close()
            except ValueError:  # the system hangs, and the process still runs
                forget(self.process)


def _close_all() -> None:
    for ends in list(_live):
        ends.close()


def _abandon_all() -> None:
    for ends in list(_live):
        ends.abandon()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
