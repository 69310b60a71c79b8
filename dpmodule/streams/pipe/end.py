"""One end of a pipe: ownership, waiting for the other side, detecting its end; methods common to both ends."""

from __future__ import annotations

import asyncio
import contextlib
import math
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
    """Descriptors of one end, which owns them."""

    control: int
    own: c.Signal
    other: c.Signal
    frames: PipeFrames


class PipeEnd:
    """One end of a tensor pipe.

    The first use in a process claims the side for it; from then on the other side detects the end of that process.

    While no call is active, methods of the core replace methods of the end: `_start_fast` sets them, and `_stop_fast`
    resets them.

    Args:
        make_core: returns the core for the shared block, its descriptor, and the signals of this and the other side.
    """

    # _core: None until the side has been claimed; _waiting: identifier of the thread whose call waits on this end, or
    # None; _sibling: returns the other end if this process has it too; _gone: True once this process has released
    # everything of this end

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

    # --- ownership

    def claim(self) -> None:
        """Make this process the owner of this end, as its first use does.

        Copies of it in other processes, including those forked later, can then only be closed.
        """
        self._claim()
        if self._waiting is None:
            self._start_fast()

    def _claim(self) -> None:
        """Make this process the owner of the side if it is not yet the owner."""
        if self._closed:
            if not self._busy:
                self._drop()  # close() was called while this thread was inside the core
            raise PipeClosed(f"this {self._name} is closed")
        if self._core is not None and not self._gone:
            return
        if self._given or self._gone or not self._control.claim(self._side):
            raise StateError(f"the {self._name} of this pipe {self._whose()}; only one process may use it")
        # the other side may be waiting and must watch this process from now on, even if the claim fails below
        parts = self._parts
        parts.other.give()
        self._core = self._make_core(self._control, parts.control, parts.own, parts.other)
        self._watch_descriptors()
        self._owner = os.getpid()

    def _whose(self) -> str:
        owner = self._control.get(self._side, c.PID)
        if owner == os.getpid():
            return "belongs to another object of this process, to which it was copied or passed"
        return f"belongs to process {owner}" if owner else "was passed to another process"

    def hand_over(self, pid: int) -> None:
        """Make a child process the owner of this end and release the copy here.

        Without this call, the child becomes the owner when it first uses its copy; an earlier end goes undetected.
        """
        if type(pid) is not int or pid < 1:
            raise ArgumentError(f"hand_over: pid is {pid!r}, expected the process id of a child")
        owner = self._control.get(self._side, c.PID) if not self._gone else pid
        if self._core is not None or owner not in (0, pid):
            raise StateError(f"the {self._name} of this pipe already belongs to process {owner}")
        if not self._gone:
            if not owner:
                self._control.put(self._side, c.START, max(c.process_start(pid), 0))
                self._control.put(self._side, c.PID, pid)
            self._parts.other.give()
            self._drop()

    def _after_fork(self, child: bool) -> None:
        """Record that copies exist; in a child, release what the parent uses."""
        self._shared = True
        if child and self._core is not None:
            self._watch.abandon()  # the parent shares the loop's descriptor
            self._waiting = None
            self._drop()
        if child:
            self._stop_fast()

    # --- waiting

    def _enter(self) -> None:
        """Start a call that may wait."""
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
            self._drop()  # another thread closed the end while this one waited
        else:
            self._start_fast()

    def _look(self) -> None:
        """If the other side has been claimed by another process, watch that process and release the copy here."""
        if self._seen or not self._peer.look():
            return
        if self._peer.remote:
            self._watch_descriptors()
            self._watch.peer(self._peer.fd)
            sibling = self._sibling()
            if sibling is not None and sibling._core is None:
                sibling._drop()
        self._seen = True  # last: if the lines above are interrupted, the next call repeats them

    def _check_peer(self) -> None:
        """Check whether the process of the other side has ended."""
        self._look()  # the first check must also start watching
        self._peer.check()

    def _watch_descriptors(self) -> None:
        """Set the descriptors that end the waiting of the core."""
        ended = self._frames.ended or self._gone
        self._core.watch(
            -1 if ended else self._frames.socket.fileno(), -1 if self._peer.dead else self._peer.fd
        )

    @property
    def _can_wait_inside(self) -> bool:
        """True if the core can wait on its own: it knows all descriptors to watch."""
        return self._peer.pid != 0 and not (self._peer.polled or self._peer.dead)

    def _block(self, deadline: float | None) -> None:
        """Wait in this thread until something may have changed."""
        self._look()
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            count = self._control.slots
            reasons = "the writer sent nothing", f"all {count} slots were in transit or in use by the reader"
            raise PipeTimeout(f"{reasons[self._side != c.READER]} during the timeout")
        if self._peer.polled:
            left = POLL_S if left is None else min(left, POLL_S)
        events = self._core.wait(left)
        if events & NEWS:
            self._frames.fill()
        if events & ENDED or self._peer.polled:
            self._check_peer()
        if events & (NEWS | ENDED):
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
        """Return the error if the other side can send nothing more, None if it can."""
        if self._closed:
            return PipeClosed(f"this {self._name} is closed")
        if self._frames.ended and self._core is not None:
            self._look()  # the peer may have started and ended since the last call
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
        """Raise the error of `_reason` if there is one."""
        self._look()
        reason = self._reason()
        if reason is not None:
            try:
                raise reason
            finally:
                del reason  # otherwise its traceback would refer to it and to the locals of the callers

    # --- the end

    def _finish(self, state: int) -> None:
        """Refuse new calls, notify the other side, and release everything once no call is active."""
        self._closed = True
        self._stop_fast()
        if self._owner == os.getpid():
            self._control.put(self._side, c.STATE, state)
            self._parts.other.give()
        if (self._waiting is None or self._waiting == threading.get_ident()) and not self._busy:
            self._watch.wake()
            self._drop()
        else:
            self._parts.own.give()  # the waiting thread releases everything

    @property
    def _busy(self) -> bool:
        """True if another thread is inside the core."""
        return self._core is not None and bool(self._core.busy)

    def _drop(self) -> None:
        """Release everything this process holds of the end, without notifying the other side."""
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
        """Pass the end to a child process that is being started; the copy here becomes unusable."""
        from multiprocessing import reduction

        if self._core is not None or self._closed:
            state = "closed" if self._closed else "in use"
            raise StateError(
                f"the {self._name} of this pipe is {state} in process {os.getpid()}; pass an end before its first use"
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
        handles = {fd: reduction.DupFd(fd) for fd in set(fds)}  # an eventfd uses one descriptor for both
        self._given = True
        return _rebuild, (type(self), [handles[fd] for fd in fds])

    def close(self) -> None:
        """Close this end; the other side gets PipeClosed after it has received everything that was sent.

        A second call does nothing. Closing a copy of an end that belongs to another process only releases the copy.
        """
        if self._closed or self._gone:
            self._closed = True
            return
        if self._core is None and not (self._shared or self._given) and self._control.claim(self._side):
            self._owner = os.getpid()  # there are no copies, so that this closes the side
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
        with contextlib.suppress(Exception):  # during interpreter shutdown, anything may be missing
            self._finish(c.DROPPED)
        if used:
            warnings.warn(f"a pipe's {self._name} was dropped without close()", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "given away" if self._given or self._gone else "open"
        return f"<{type(self).__name__} {state}, {self._control.slots} slots>"


def link_ends(reader: PipeEnd, writer: PipeEnd) -> None:
    """Make each end release the copy of the other one in this process once another process owns it."""
    for one, other in ((reader, writer), (writer, reader)):
        one._sibling = weakref.ref(other)


def deadline_of(timeout: float | None) -> float | None:
    """Return the value of `time.monotonic` at which a timeout ends; None for no timeout."""
    if timeout is None:
        return None
    if not isinstance(timeout, (int, float)) or math.isnan(timeout):
        raise ArgumentError(f"timeout is {timeout!r}, expected a number of seconds, or None for no limit")
    return time.monotonic() + timeout


def _rebuild(kind: Any, handles: list[Any], *options: Any) -> PipeEnd:
    """Rebuild an end in the process to which it was passed, and claim it."""
    unique = {id(handle): handle for handle in handles}
    fds = {key: handle.detach() for key, handle in unique.items()}
    control, own_read, own_write, other_read, other_write, sock = (fds[id(handle)] for handle in handles)
    own, other = c.Signal(own_read, own_write), c.Signal(other_read, other_write)
    connection = socket.socket(fileno=sock)
    connection.setblocking(False)
    end: PipeEnd = kind(EndParts(control, own, other, PipeFrames(connection)), *options)
    end._claim()
    return end


_ends: weakref.WeakSet[PipeEnd] = weakref.WeakSet()


def _forked(child: bool) -> None:
    for end in list(_ends):
        end._after_fork(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=lambda: _forked(False), after_in_child=lambda: _forked(True))
