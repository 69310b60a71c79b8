"""Watching the process at the other end of a pipe."""

from __future__ import annotations

import os
import select

from . import control as c

__all__ = ["Peer"]

POLL_S = 0.25
"""How often a process is asked for where the system cannot wake us when it ends, in seconds."""


class Peer:
    """The process that has claimed the other side, if any has.

    Args:
        control: the shared block.
        side: the other side.
    """

    def __init__(self, control: c.Control, side: int) -> None:
        self._control, self.side = control, side
        self.pid = 0
        self.fd = -1
        self.dead = False
        self._start = 0

    def look(self) -> bool:
        """Say whether the other side has been claimed; its process is known from the first time on."""
        if self.pid == 0:
            pid = self._control.get(self.side, c.PID)
            if pid not in (0, os.getpid()):
                self._start = self._control.get(self.side, c.START)
                self._watch(pid)
            self.pid = pid  # last: a Ctrl-C on the way here must not make it known, but not watched
        return self.pid != 0

    def _watch(self, pid: int) -> None:
        if self.fd < 0 and hasattr(os, "pidfd_open"):
            try:
                self.fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self.dead = True
            except OSError:
                self.fd = -1  # an old kernel, or a sandbox
        start = c.process_start(pid)
        self.dead = self.dead or start < 0 or bool(start and self._start and start != self._start)

    @property
    def remote(self) -> bool:
        """Whether another process is known to be there."""
        return self.pid not in (0, os.getpid())

    @property
    def polled(self) -> bool:
        """Whether it has to be asked for from time to time."""
        return self.remote and self.fd < 0 and not self.dead

    def check(self) -> bool:
        """Say whether the process, which `look` has seen, is known to have ended."""
        if self.dead or not self.remote:
            return self.dead
        if self.fd >= 0:
            self.dead = self._readable()
        else:
            self.dead = c.process_start(self.pid) != self._start if self._start else not _exists(self.pid)
        return self.dead

    def _readable(self) -> bool:
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Stop watching."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
