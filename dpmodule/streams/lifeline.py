"""A pipe by which a child process ends with its parent, whatever either of them is doing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import threading

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
