"""The connection of one end of a pipe to the other: whose it is, waiting for the other side, noticing its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ...base import ArgumentError, FileError, StateError
from ..errors import LoopClosedError, PipeBroken, PipeClosed, PipeTimeout
from . import control as c
from .control import ENDED, NEWS, POLL_S, Peer, PipeFrames, Signal


class Parts(NamedTuple):
    """The descriptors of one end; they belong to it."""

    control: int
    own: c.Signal
    other: c.Signal
    frames: PipeFrames


class Connection:
    """The connection of one side to the other.

    The first use in a process claims the side for it; from then on the other side notices when that process ends.

    Args:
        make_core: makes the hot part from the shared block, its descriptor, and the signals of this side and the other.

    Attributes:
        core: the hot part, None until the side has been claimed.
        waiting: number of the thread of the call that waits on this end, None while there is none.
        sibling: returns the other side's connection, if this process has it too.
        gone: whether all that this process held of it has been let go of.
    """

    def __init__(
        self, side: int, parts: Parts, make_core: Callable[[c.Control, int, c.Signal, c.Signal], Any]
    ) -> None:
        self._side = side
        self._parts = parts
        self._make_core = make_core
        self.name = c.SIDES[side]
        self.control = c.Control(parts.control)
        self.frames = parts.frames
        self._peer = Peer(self.control, 1 - side)
        self.watch = LoopWatch(parts.own, parts.frames, self._peer)
        self.sibling: Callable[[], Connection | None] = lambda: None
        self.core: Any = None
        self.closed = self.gone = self._shared = self._given = self._seen = False
        self._owner: int | None = None
        self.waiting: int | None = None

    # --- whose it is

    def claim(self) -> None:
        """Make this process the owner of the side, if it is not yet."""
        if self.closed:
            if not self._busy:
                self.drop()  # close() came while this thread was inside the core
            raise PipeClosed(f"this {self.name} is closed")
        if self.core is not None and not self.gone:
            return
        if self._given or self.gone or not self.control.claim(self._side):
            raise StateError(f"the {self.name} of this pipe {self._whose()}; only one process may use it")
        # the other side may wait, and wants to watch this process from now on: also if it cannot go on
        parts = self._parts
        parts.other.give()
        self.core = self._make_core(self.control, parts.control, parts.own, parts.other)
        self._watch_descriptors()
        self._owner = os.getpid()

    def _whose(self) -> str:
        owner = self.control.get(self._side, c.PID)
        if owner == os.getpid():
            return "is another object of this process, which it was copied or handed to"
        return f"belongs to process {owner}" if owner else "was handed to another process"

    def hand_over(self, pid: int) -> None:
        """Enter a child process as the owner of this end and let go of the copy here.

        Without it the child becomes the owner when it first uses its copy; if it ends before that, nobody notices.
        """
        if type(pid) is not int or pid < 1:
            raise ArgumentError(f"hand_over: pid is {pid!r}, expected the process id of a child")
        owner = self.control.get(self._side, c.PID) if not self.gone else pid
        if self.core is not None or owner not in (0, pid):
            raise StateError(f"the {self.name} of this pipe belongs to process {owner} already")
        if not self.gone:
            if not owner:
                self.control.put(self._side, c.START, max(c.process_start(pid), 0))
                self.control.put(self._side, c.PID, pid)
            self._parts.other.give()
            self.drop()

    def give_away(self) -> list[Any]:
        """Return handles by which multiprocessing hands the descriptors on; this copy cannot be used any more."""
        from multiprocessing import reduction

        if self.core is not None or self.closed:
            state = "closed" if self.closed else "in use"
            raise StateError(
                f"the {self.name} of this pipe is {state} in process {os.getpid()}; give it away unused"
            )
        own, other = self._parts.own, self._parts.other
        fds = (self._parts.control, own.read, own.write, other.read, other.write, self.frames.socket.fileno())
        handles = {fd: reduction.DupFd(fd) for fd in set(fds)}  # an eventfd is read and written by one
        self._given = True
        return [handles[fd] for fd in fds]

    def after_fork(self, child: bool) -> None:
        """Note that there are copies now; in a child, let go of what is in use in the parent."""
        self._shared = True
        if child and self.core is not None:
            self.watch.abandon()  # the loop's own descriptor is the parent's too
            self.waiting = None
            self.drop()

    # --- waiting

    def enter(self) -> None:
        """Begin a call that may wait."""
        if self.closed or self.gone or self.core is None:
            self.claim()
        if self.waiting is not None and not self.watch.stale():
            raise StateError(
                f"another call is waiting on this {self.name}; one task or thread may use it at a time"
            )
        self.waiting = threading.get_ident()

    def leave(self) -> bool:
        """End the call; say whether the end can still be used."""
        self.waiting = None
        if self.closed:
            self.drop()  # by another thread, while this one waited
        return not self.closed

    def look(self) -> None:
        """See whether the other side has been claimed; if so, let go of this process's copy of it."""
        if self._seen or not self._peer.look():
            return
        if self._peer.remote:
            self._watch_descriptors()
            self.watch.peer(self._peer.fd)
            sibling = self.sibling()
            if sibling is not None and sibling.core is None:
                sibling.drop()
        self._seen = True  # last: what is interrupted on the way is done the next time

    def check_peer(self) -> None:
        """Ask whether the other side's process has ended."""
        self.look()  # the first to see it must also have it watched
        self._peer.check()

    def _watch_descriptors(self) -> None:
        """Tell the core what ends its waiting."""
        ended = self.frames.ended or self.gone
        self.core.watch(
            -1 if ended else self.frames.socket.fileno(), -1 if self._peer.dead else self._peer.fd
        )

    @property
    def can_wait_inside(self) -> bool:
        """Whether the core can wait by itself: it has been told what it must watch."""
        return self._peer.pid != 0 and not (self._peer.polled or self._peer.dead)

    def block(self, deadline: float | None) -> None:
        """Wait in this thread until something may have changed."""
        self.look()
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            count = self.control.slots
            nothing = "nothing from the writer", f"all {count} slots are on the way or in use by the reader"
            raise PipeTimeout(f"{nothing[self._side != c.READER]} for the time given")
        if self._peer.polled:
            left = POLL_S if left is None else min(left, POLL_S)
        found = self.core.wait(left)
        if found & NEWS:
            self.frames.fill()
        if found & ENDED or self._peer.polled:
            self.check_peer()
        if found & (NEWS | ENDED):
            self._watch_descriptors()

    async def pause(self) -> None:
        """Wait in the running event loop until something may have changed."""
        self.watch.attach()
        if self.core.arm():
            return
        self.look()
        if not (self._peer.dead or self.frames.ended):
            await self.watch.wait(POLL_S if self._peer.polled else None)
        elif self.reason() is None:
            await asyncio.sleep(POLL_S)
        if self._peer.polled:
            self.check_peer()

    def reason(self) -> Exception | None:
        """Return why nothing can come from the other side any more, None if something can."""
        if self.closed:
            return PipeClosed(f"this {self.name} is closed")
        if self.frames.ended and self.core is not None:
            self.look()  # it may have come and gone since the last look
        other = 1 - self._side
        name, pid, state = c.SIDES[other], self.control.get(other, c.PID), self.control.get(other, c.STATE)
        if state == c.CLOSED:
            return PipeClosed(f"the {name} closed the pipe")
        if state == c.DROPPED:
            return PipeBroken(f"the {name} (process {pid}) was dropped without close()")
        if self._peer.dead:
            return PipeBroken(f"the {name} is gone: its process {pid} has ended without close()")
        if self.frames.ended and not self._peer.pid:
            return PipeBroken(
                f"the {name} is gone: every copy of it was closed or its process ended before using it"
            )
        return None

    def check(self) -> None:
        """Raise why nothing can come from the other side any more, if nothing can."""
        self.look()
        reason = self.reason()
        if reason is not None:
            try:
                raise reason
            finally:
                del reason  # else its traceback would hold it, and whatever callers have

    # --- the end

    @property
    def shown_state(self) -> str:
        """What it is, in a word or two."""
        return "closed" if self.closed else "given away" if self._given or self.gone else "open"

    @property
    def in_use(self) -> bool:
        """Whether this process owns the side, has not closed it, and the other side goes on."""
        return self._owner == os.getpid() and not self.closed and self.reason() is None

    def ends_here(self) -> bool:
        """Say whether closing this end is news for the other side: it was neither closed nor let go of before."""
        if self.closed or self.gone:
            self.closed = True
            return False
        if self.core is None and not (self._shared or self._given) and self.control.claim(self._side):
            self._owner = os.getpid()  # there are no copies: the side ends here
        return True

    def shut(self) -> None:
        """Let no call begin any more."""
        self.closed = True

    def finish(self, state: int) -> None:
        """Tell the other side, and let go of all as soon as no call is under way."""
        if self._owner == os.getpid():
            self.control.put(self._side, c.STATE, state)
            self._parts.other.give()
        if (self.waiting is None or self.waiting == threading.get_ident()) and not self._busy:
            self.watch.wake()
            self.drop()
        else:
            self._parts.own.give()  # the thread that waits lets go

    @property
    def _busy(self) -> bool:
        """Whether another thread is inside the core."""
        return self.core is not None and bool(self.core.busy)

    def drop(self) -> None:
        """Let go of everything this process holds of the end; the other side does not see it."""
        if self.gone:
            return
        self.gone = True
        self.watch.detach()
        self._peer.close()
        self.frames.close()
        if self.core is not None:
            self.core.release()
        self._parts.own.close()
        self._parts.other.close()
        os.close(self._parts.control)


# the descriptors of one end in an event loop


class LoopWatch:
    """Watches an end's signal, socket and process in the running loop; moves when the end is used in another one.

    The loop keeps these alive, and not the end.
    """

    def __init__(self, signal: Signal, frames: PipeFrames, peer: Peer) -> None:
        self._signal, self._frames, self._peer = signal, frames, peer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fds: list[int] = []
        self._waiter: asyncio.Future[None] | None = None

    def attach(self) -> None:
        """Watch in the running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise LoopClosedError("no event loop is running; use send() and recv() outside of one") from error
        if loop is self._loop:
            return
        self.detach()
        self._loop = loop
        try:
            self._add(self._signal.read, self._on_signal)
            if not self._frames.ended:
                self._add(self._frames.socket.fileno(), self._on_socket)
            if self._peer.fd >= 0 and not self._peer.dead:
                self._add(self._peer.fd, self._on_process)
        except RuntimeError as error:
            self.detach()
            raise LoopClosedError(f"the event loop cannot watch a pipe: {error}") from error

    def _add(self, fd: int, react: Callable[[int], None]) -> None:
        if self._loop is not None:
            self._loop.add_reader(fd, react, fd)
            self._fds.append(fd)

    def peer(self, fd: int) -> None:
        """Watch the other side's process too, which is known only now."""
        if self._loop is None or fd < 0 or fd in self._fds:
            return
        if self._loop.is_closed():
            self.detach()  # the next loop will watch all that is known by then
        else:
            self._add(fd, self._on_process)

    def forget(self, fd: int) -> None:
        """Watch a descriptor no longer."""
        if self._loop is not None and fd in self._fds:
            self._fds.remove(fd)
            if not self._loop.is_closed():
                self._loop.remove_reader(fd)

    def detach(self) -> None:
        """Leave the loop; who waits in it is woken."""
        self.wake()
        for fd in list(self._fds):
            with contextlib.suppress(RuntimeError):  # the loop is being closed in another thread
                self.forget(fd)
        self._loop, self._fds = None, []

    def abandon(self) -> None:
        """Forget the loop without touching it: it belongs to the process that this one was forked from."""
        self._loop, self._fds, self._waiter = None, [], None

    def stale(self) -> bool:
        """Whether who waits does so in a loop that has been closed, and waits for ever."""
        return self._waiter is not None and self._waiter.get_loop().is_closed()

    async def wait(self, limit_s: float | None) -> None:
        """Wait until one of the descriptors is readable, or for a time in seconds."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if limit_s is None else loop.call_later(limit_s, self.wake)
        try:
            await waiter
        finally:
            if self._waiter is waiter:
                self._waiter = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Wake who waits."""
        waiter = self._waiter
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)

    def _on_signal(self, fd: int) -> None:
        self._signal.drain()
        self.wake()

    def _on_socket(self, fd: int) -> None:
        try:
            self._frames.fill()
        except FileError:  # who receives the message that it belongs to meets it again, and raises it
            self.detach()
            return
        if self._frames.ended:
            self.forget(fd)
        self.wake()

    def _on_process(self, fd: int) -> None:
        self._peer.dead = True
        self.forget(fd)
        self.wake()
