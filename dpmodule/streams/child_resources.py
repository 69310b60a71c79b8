"""The parent's resources of a child process, and their release."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util  # noqa: F401  # registers its exit function first, so that it runs after the one below
import os
import select
import signal
import socket
import time
from multiprocessing.process import BaseProcess

from .child import Lifeline
from .launch import forget_process, resume_fork_server
from .messages import MessageFrames
from .worker_status import WorkerStatus

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
