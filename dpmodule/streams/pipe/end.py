"""One end of a pipe: whose it is, waiting for the other side, noticing its end; what users do with either end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ...base import ArgumentError, StateError
from ..errors import PipeBroken, PipeClosed, PipeTimeout
from . import control as c
from .control import ENDED, NEWS, POLL_S, LoopWatcher, Peer, PipeFrames

Self = TypeVar("Self", bound="PipeEnd")


class EndParts(NamedTuple):
    """The descriptors of one end; they belong to it."""

    control: int
    own: c.Signal
    other: c.Signal
    frames: PipeFrames


class PipeEnd:
    """One end of a tensor pipe.

    The first use in a process claims the side for it; from then on the other side notices when that process ends.

    An end has methods of the core for itself while it is free to use, which `_start_fast` sets and `_stop_fast` resets.

    Args:
        make_core: makes the hot part from the shared block, its descriptor, and the signals of this side and the other.
    """

    # _core: the hot part, None until the side has been claimed; _waiting: number of the thread of the call that waits
    # on this end, None while there is none; _sibling: returns the other end, if this process has it too; _gone: whether
    # all that this process held of it has been let go of

    def __init__(
        self, side: int, parts: EndParts, make_core: Callable[[c.Control, int, c.Signal, c.Signal], Any]
    ) -> None:
        self._side = side
        self._parts = parts
        self._make_core = make_core
        self._name = c.SIDES[side]
        self._control = c.Control(parts.control)
        self._frames = parts.frames
        self._peer = Peer(self._control, 1 - side)
        self._watch = LoopWatcher(parts.own, parts.frames, self._peer)
        self._sibling: Callable[[], PipeEnd | None] = lambda: None
        self._core: Any = None
        self._closed = self._gone = self._shared = self._given = self._seen = False
        self._owner: int | None = None
        self._waiting: int | None = None
        _ends.add(self)

    def _start_fast(self) -> None:
        raise NotImplementedError

    def _stop_fast(self) -> None:
        raise NotImplementedError

    # --- whose it is

    def claim(self) -> None:
        """Make this process the owner of this end, as its first use does.

        Copies of it in other processes, also in those that are forked later, then can only be closed.
        """
        self._claim()
        if self._waiting is None:
            self._start_fast()

    def _claim(self) -> None:
        """Make this process the owner of the side, if it is not yet."""
        if self._closed:
            if not self._busy:
                self._drop()  # close() came while this thread was inside the core
            raise PipeClosed(f"this {self._name} is closed")
        if self._core is not None and not self._gone:
            return
        if self._given or self._gone or not self._control.claim(self._side):
            raise StateError(f"the {self._name} of this pipe {self._whose()}; only one process may use it")
        # the other side may wait, and wants to watch this process from now on: also if it cannot go on
        parts = self._parts
        parts.other.give()
        self._core = self._make_core(self._control, parts.control, parts.own, parts.other)
        self._watch_descriptors()
        self._owner = os.getpid()

    def _whose(self) -> str:
        owner = self._control.get(self._side, c.PID)
        if owner == os.getpid():
            return "is another object of this process, which it was copied or passed to"
        return f"belongs to process {owner}" if owner else "was passed to another process"

    def hand_over(self, pid: int) -> None:
        """Enter a child process as the owner of this end and let go of the copy here.

        Without it the child becomes the owner when it first uses its copy; if it ends before that, no one notices.
        """
        if type(pid) is not int or pid < 1:
            raise ArgumentError(f"hand_over: pid is {pid!r}, expected the process id of a child")
        owner = self._control.get(self._side, c.PID) if not self._gone else pid
        if self._core is not None or owner not in (0, pid):
            raise StateError(f"the {self._name} of this pipe belongs to process {owner} already")
        if not self._gone:
            if not owner:
                self._control.put(self._side, c.START, max(c.process_start(pid), 0))
                self._control.put(self._side, c.PID, pid)
            self._parts.other.give()
            self._drop()

    def _after_fork(self, child: bool) -> None:
        """Note that there are copies now; in a child, let go of what is in use in the parent."""
        self._shared = True
        if child and self._core is not None:
            self._watch.abandon()  # the loop's own descriptor is the parent's too
            self._waiting = None
            self._drop()
        if child:
            self._stop_fast()

    # --- waiting

    def _enter(self) -> None:
        """Begin a call that may wait."""
        if self._closed or self._gone or self._core is None:
            self._claim()
        if self._waiting is not None and not self._watch.stale():
            raise StateError(
                f"another call is waiting on this {self._name}; one task or thread may use it at a time"
            )
        self._waiting = threading.get_ident()
        self._stop_fast()

    def _leave(self) -> None:
        """End the call."""
        self._waiting = None
        if self._closed:
            self._drop()  # by another thread, while this one waited
        else:
            self._start_fast()

    def _look(self) -> None:
        """See whether the other side has been claimed; if so, let go of this process's copy of it."""
        if self._seen or not self._peer.look():
            return
        if self._peer.remote:
            self._watch_descriptors()
            self._watch.peer(self._peer.fd)
            sibling = self._sibling()
            if sibling is not None and sibling._core is None:
                sibling._drop()
        self._seen = True  # last: what is interrupted on the way is done the next time

    def _check_peer(self) -> None:
        """Ask whether the other side's process has ended."""
        self._look()  # the first to see it must also have it watched
        self._peer.check()

    def _watch_descriptors(self) -> None:
        """Tell the core what ends its waiting."""
        ended = self._frames.ended or self._gone
        self._core.watch(
            -1 if ended else self._frames.socket.fileno(), -1 if self._peer.dead else self._peer.fd
        )

    @property
    def _can_wait_inside(self) -> bool:
        """True if the core can wait on its own: it has been told what it must watch."""
        return self._peer.pid != 0 and not (self._peer.polled or self._peer.dead)

    def _block(self, deadline: float | None) -> None:
        """Wait in this thread until something may have changed."""
        self._look()
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            count = self._control.slots
            nothing = "nothing from the writer", f"all {count} slots are on the way or in use by the reader"
            raise PipeTimeout(f"{nothing[self._side != c.READER]} for the time given")
        if self._peer.polled:
            left = POLL_S if left is None else min(left, POLL_S)
        found = self._core.wait(left)
        if found & NEWS:
            self._frames.fill()
        if found & ENDED or self._peer.polled:
            self._check_peer()
        if found & (NEWS | ENDED):
            self._watch_descriptors()

    async def _pause(self) -> None:
        """Wait in the running event loop until something may have changed."""
        self._watch.attach()
        if self._core.arm():
            return
        self._look()
        if not (self._peer.dead or self._frames.ended):
            await self._watch.wait(POLL_S if self._peer.polled else None)
        elif self._reason() is None:
            await asyncio.sleep(POLL_S)
        if self._peer.polled:
            self._check_peer()

    def _reason(self) -> Exception | None:
        """Return why nothing can come from the other side any longer, None if something can."""
        if self._closed:
            return PipeClosed(f"this {self._name} is closed")
        if self._frames.ended and self._core is not None:
            self._look()  # it may have come and gone since the last look
        other = 1 - self._side
        name, pid, state = c.SIDES[other], self._control.get(other, c.PID), self._control.get(other, c.STATE)
        if state == c.CLOSED:
            return PipeClosed(f"the {name} closed the pipe")
        if state == c.DROPPED:
            return PipeBroken(f"the {name} (process {pid}) was dropped without close()")
        if self._peer.dead:
            return PipeBroken(f"the {name} is gone: its process {pid} has ended without close()")
        if self._frames.ended and not self._peer.pid:
            return PipeBroken(
                f"the {name} is gone: every copy of it was closed or its process ended before using it"
            )
        return None

    def _check(self) -> None:
        """Raise why nothing can come from the other side any longer, if nothing can."""
        self._look()
        reason = self._reason()
        if reason is not None:
            try:
                raise reason
            finally:
                del reason  # else its traceback would hold it, and whatever callers have

    # --- the end

    def _finish(self, state: int) -> None:
        """Let no call begin any longer, tell the other side, and let go of all as soon as no call is under way."""
        self._closed = True
        self._stop_fast()
        if self._owner == os.getpid():
            self._control.put(self._side, c.STATE, state)
            self._parts.other.give()
        if (self._waiting is None or self._waiting == threading.get_ident()) and not self._busy:
            self._watch.wake()
            self._drop()
        else:
            self._parts.own.give()  # the thread that waits lets go

    @property
    def _busy(self) -> bool:
        """True if another thread is inside the core."""
        return self._core is not None and bool(self._core.busy)

    def _drop(self) -> None:
        """Let go of everything this process holds of the end; the other side does not see it."""
        if self._gone:
            return
        self._gone = True
        self._watch.detach()
        self._peer.close()
        self._frames.close()
        if self._core is not None:
            self._core.release()
        self._parts.own.close()
        self._parts.other.close()
        os.close(self._parts.control)

    def __reduce__(self) -> Any:
        """Hand the end to a child process that is being started; the copy here cannot be used any longer."""
        from multiprocessing import reduction

        if self._core is not None or self._closed:
            state = "closed" if self._closed else "in use"
            raise StateError(
                f"the {self._name} of this pipe is {state} in process {os.getpid()}; give it away unused"
            )
        own, other = self._parts.own, self._parts.other
        fds = (
            self._parts.control,
            own.read,
            own.write,
            other.read,
            other.write,
            self._frames.socket.fileno(),
        )
        handles = {fd: reduction.DupFd(fd) for fd in set(fds)}  # an eventfd is read and written by one
        self._given = True
        return _rebuild, (type(self), [handles[fd] for fd in fds])

    def close(self) -> None:
        """Close this end; the other side gets PipeClosed once it has taken what was sent.

        A second call does nothing. A copy of an end that belongs to another process is let go of, no more.
        """
        if self._closed or self._gone:
            self._closed = True
            return
        if self._core is None and not (self._shared or self._given) and self._control.claim(self._side):
            self._owner = os.getpid()  # there are no copies: the side ends here
        self._finish(c.CLOSED)

    @property
    def closed(self) -> bool:
        """True if this end has been closed."""
        return self._closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.__exit__(*error)

    def __del__(self) -> None:
        if getattr(self, "_gone", True):
            return
        used = self._owner == os.getpid() and not self._closed and self._reason() is None
        with contextlib.suppress(Exception):  # at the interpreter's end anything may be gone already
            self._finish(c.DROPPED)
        if used:
            warnings.warn(f"a pipe's {self._name} was dropped without close()", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "given away" if self._given or self._gone else "open"
        return f"<{type(self).__name__} {state}, {self._control.slots} slots>"


def link_ends(reader: PipeEnd, writer: PipeEnd) -> None:
    """Have each end let go of the other, as far as this process has it, once that belongs to another process."""
    for one, other in ((reader, writer), (writer, reader)):
        one._sibling = weakref.ref(other)


def deadline_of(timeout: float | None) -> float | None:
    """Return when a time in seconds from now is over, by `time.monotonic`; None for never."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)):
        raise ArgumentError(f"timeout is {timeout!r}, expected a number of seconds, or None to wait for ever")
    return time.monotonic() + timeout


def _rebuild(kind: Any, handles: list[Any], *options: Any) -> PipeEnd:
    """Make an end in the process that it was passed to, which owns it from now on."""
    unique = {id(handle): handle for handle in handles}
    done = {key: handle.detach() for key, handle in unique.items()}
    control, own_read, own_write, other_read, other_write, sock = (done[id(handle)] for handle in handles)
    own, other = c.Signal(own_read, own_write), c.Signal(other_read, other_write)
    end = socket.socket(fileno=sock)
    end.setblocking(False)
    made: PipeEnd = kind(EndParts(control, own, other, PipeFrames(end)), *options)
    made._claim()
    return made


_ends: weakref.WeakSet[PipeEnd] = weakref.WeakSet()


def _forked(child: bool) -> None:
    for end in list(_ends):
        end._after_fork(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=lambda: _forked(False), after_in_child=lambda: _forked(True))
