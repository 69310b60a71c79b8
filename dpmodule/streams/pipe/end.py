"""What both ends of a pipe let their users do: claim, hand over, close."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import warnings
import weakref
from typing import Any, TypeVar

from ...base import ArgumentError
from . import control as c
from .connection import Connection, Parts
from .control import PipeFrames

Self = TypeVar("Self", bound="PipeEnd")


class PipeEnd:
    """One end of a tensor pipe.

    The first use in a process claims the side for it; from then on the other side notices when that process ends.

    An end has methods of the core for itself while it is free to use, which `_start_fast` sets and `_stop_fast` resets.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        _ends.add(self)

    def _start_fast(self) -> None:
        raise NotImplementedError

    def _stop_fast(self) -> None:
        raise NotImplementedError

    def claim(self) -> None:
        """Make this process the owner of this end, as its first use does.

        Copies of it in other processes, also in those that are forked later, then can only be closed.
        """
        self._connection.claim()
        if self._connection.waiting is None:
            self._start_fast()

    def hand_over(self, pid: int) -> None:
        """Enter a child process as the owner of this end and let go of the copy here.

        Without it the child becomes the owner when it first uses its copy; if it ends before that, nobody notices.
        """
        self._connection.hand_over(pid)

    def __reduce__(self) -> Any:
        """Hand the end to a child process that is being started; the copy here cannot be used any more."""
        return _rebuild, (type(self), self._connection.give_away())

    def _after_fork(self, child: bool) -> None:
        self._connection.after_fork(child)
        if child:
            self._stop_fast()

    def _enter(self) -> None:
        """Begin a call that may wait."""
        self._connection.enter()
        self._stop_fast()

    def _leave(self) -> None:
        if self._connection.leave():
            self._start_fast()

    def close(self) -> None:
        """Close this end; the other side gets PipeClosed once it has taken what was sent.

        A second call does nothing. A copy of an end that belongs to another process is let go of, no more.
        """
        if self._connection.ends_here():
            self._finish(c.CLOSED)

    def _finish(self, state: int) -> None:
        self._connection.shut()
        self._stop_fast()
        self._connection.finish(state)

    @property
    def closed(self) -> bool:
        """Whether this end has been closed."""
        return self._connection.closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.__exit__(*error)

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is None or connection.gone:
            return
        used = connection.in_use
        with contextlib.suppress(Exception):  # at the interpreter's end anything may be gone already
            self._finish(c.DROPPED)
        if used:
            warnings.warn(
                f"a pipe's {connection.name} was dropped without close()", ResourceWarning, stacklevel=2
            )

    def __repr__(self) -> str:
        connection = self._connection
        return f"<{type(self).__name__} {connection.shown_state}, {connection.control.slots} slots>"


def introduce(reader: PipeEnd, writer: PipeEnd) -> None:
    """Have each end let go of the other, as far as this process has it, once that belongs to another process."""
    for one, other in ((reader, writer), (writer, reader)):
        one._connection.sibling = weakref.ref(other._connection)


def deadline_of(timeout: float | None) -> float | None:
    """Return when a time in seconds from now is over, by `time.monotonic`; None for never."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)):
        raise ArgumentError(f"timeout is {timeout!r}, expected a number of seconds, or None to wait for ever")
    return time.monotonic() + timeout


def _rebuild(kind: Any, handles: list[Any], *options: Any) -> PipeEnd:
    """Make an end in the process that it was handed to, which owns it from now on."""
    unique = {id(handle): handle for handle in handles}
    done = {key: handle.detach() for key, handle in unique.items()}
    control, own_read, own_write, other_read, other_write, sock = (done[id(handle)] for handle in handles)
    own, other = c.Signal(own_read, own_write), c.Signal(other_read, other_write)
    end = socket.socket(fileno=sock)
    end.setblocking(False)
    made: PipeEnd = kind(Parts(control, own, other, PipeFrames(end)), *options)
    made._connection.claim()
    return made


_ends: weakref.WeakSet[PipeEnd] = weakref.WeakSet()


def _forked(child: bool) -> None:
    for end in list(_ends):
        end._after_fork(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=lambda: _forked(False), after_in_child=lambda: _forked(True))
