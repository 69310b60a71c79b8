"""The descriptors of one end of a pipe in an event loop, and the one future that waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ...base import FileError
from ..errors import LoopClosedError
from .control import Signal
from .frames import PipeFrames
from .peer import Peer

__all__ = ["LoopWatch"]


class LoopWatch:
    """Watches an end's signal, socket and process in the running loop; moves when the end is used in another one.

    The loop keeps these alive, and not the end.

    Args:
        signal: wakes this side.
        frames: the socket.
        peer: the process at the other end.
    """

    def __init__(self, signal: Signal, frames: PipeFrames, peer: Peer) -> None:
        self._signal, self._frames, self._peer = signal, frames, peer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fds: list[int] = []
        self._waiter: asyncio.Future[None] | None = None

    def attach(self) -> None:
        """Watch in the running loop.

        Raises:
            LoopClosedError: no loop is running, or it is being closed.
        """
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
