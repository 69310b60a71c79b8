"""The receiving end of a tensor pipe."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from typing import Any

from ..errors import PipeBroken, PipeClosed, refused
from . import backend, foreign
from . import control as c
from .connection import Parts, PipeEnd, deadline_of
from .frames import FORGET, LAYOUT, SHARE, Frame
from .layout import read_outline

__all__ = ["TensorPipeReader"]


class TensorPipeReader(PipeEnd):
    """The receiving end of a pipe; made by `tensor_pipe`.

    What is received stays valid, and its slot unused, as long as any of its tensors or of their views exists.
    Iteration, ``for`` and ``async for``, ends when the writer has closed the pipe.
    """

    side = c.READER

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._recv: Callable[[], Any] = _nothing
        self._recv_wait: Callable[[], Any] = _nothing
        self._unreadable: dict[int, Exception] = {}
        self._payload = b""

    def _make_core(self) -> Any:
        parts = self._parts
        return backend.reader_core(self._control, parts.control, parts.own, parts.other)

    def _stop_fast(self) -> None:
        self._recv = self._recv_wait = _nothing

    def _start_fast(self) -> None:
        self._recv = self._core.recv_soon
        self._recv_wait = self._core.recv_wait if self._may_wait_inside() else self._core.recv_soon

    async def coro_recv(self) -> Any:
        """Receive the next structure.

        Returns:
            What was sent: fresh containers, and tensors that lie in the pipe's memory.

        Raises:
            PipeClosed: the writer has closed the pipe and everything has been received.
            PipeBroken: the writer's process has ended without closing it; the text names it.
            StateError: another call waits on this end, or it belongs to another process.
            LoopClosedError: no event loop is running.
            Exception: what the writer gave to `throw`.
        """
        value = self._recv()
        return value if value is not NotImplemented else await self._recv_later()

    def recv(self, timeout: float | None = None) -> Any:
        """Receive the next structure, blocking this thread.

        Args:
            timeout: how long to wait, in seconds; None for ever.

        Raises:
            PipeTimeout: nothing came in time.
            PipeClosed: as in `coro_recv`, as are all others.
        """
        value = (self._recv_wait if timeout is None else self._recv)()
        return value if value is not NotImplemented else self._recv_blocking(timeout)

    async def _recv_later(self) -> Any:
        self._enter()
        try:
            while (value := self._next()) is NotImplemented:
                await self._pause()
            return value
        finally:
            self._leave()

    def _recv_blocking(self, timeout: float | None) -> Any:
        deadline = deadline_of(timeout)
        self._enter()
        try:
            while (value := self._next()) is NotImplemented:
                self._block(deadline)
            return value
        finally:
            self._leave()

    def _next(self) -> Any:
        """Return the next structure, NotImplemented if none has come; raise what comes instead."""
        while not self._closed:
            value = self._core.recv()
            if value is not NotImplemented:
                return value
            entry = self._core.peek()
            if entry:
                found = self._special(entry)
                if found:
                    return found[0]
                value = self._core.recv()
                if value is NotImplemented:
                    raise PipeBroken(f"message {entry:#x} of the writer cannot be read")
                return value
            reason = self._reason()
            if reason is None:
                return NotImplemented
            if not self._core.peek():  # nothing was sent between the two looks
                raise reason
        raise PipeClosed("this reader is closed")

    def _special(self, entry: int) -> tuple[Any, ...]:
        """Do what comes before or instead of a structure; return (structure,) if that is complete now."""
        kind, slot, count = entry & 0xFF, entry >> 8 & 0xFF, entry >> 32
        while self._frames.count != count:
            frame = self._frames.take()
            if frame is None:
                raise PipeBroken("the writer is gone: a message is incomplete")
            self._apply(frame)
        self._core.frames = count
        if kind == c.FAILURE:
            self._core.skip()
            self._control.put(self.side, c.FAILURES, self._control.get(self.side, c.FAILURES) + 1)
            raise pickle.loads(self._payload).restore("the writer's process")
        if kind == c.OBJECT:
            self._core.skip(slot)
            return (foreign.load(self._payload),)
        if slot in self._unreadable:
            self._core.skip(slot)
            raise self._unreadable[slot]
        return ()

    def _apply(self, frame: Frame) -> None:
        try:
            if frame.kind == LAYOUT:
                self._lay_out(frame)
            elif frame.kind == SHARE:
                self._core.set_shared(frame.number, frame.fd, frame.size)
            elif frame.kind == FORGET:
                self._core.forget_shared(frame.number)
            else:
                self._payload = os.pread(frame.fd, frame.size, 0)
        except OSError as error:
            self._frames.put_back(frame)  # what comes with it can be received when there is room again
            raise refused("memory of a message in a tensor pipe", error) from error
        if frame.fd >= 0:
            os.close(frame.fd)

    def _lay_out(self, frame: Frame) -> None:
        self._unreadable.pop(frame.number, None)
        try:
            self._core.set_slot(frame.number, frame.fd, frame.size, read_outline(frame.fd))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            self._cannot_read(frame.number, error)
        except Exception as error:  # whatever unpickling somebody's dataclass raises
            self._cannot_read(frame.number, error)

    def _cannot_read(self, slot: int, error: Exception) -> None:
        self._unreadable[slot] = error
        self._core.unset_slot(slot)

    @property
    def received(self) -> int:
        """How many structures have been received."""
        return 0 if self._core is None else int(self._core.received)

    @property
    def exhausted(self) -> bool:
        """Whether what has been received and is still in use takes all slots, so that the writer has to wait."""
        words = self._control.words
        in_use = all(words[c.SLOTS_AT + 8 * slot] for slot in range(self._control.slots))
        # in this order: the writer fills a slot, then says so
        return in_use and words[c.HEAD] == words[c.TAIL]

    def __iter__(self) -> TensorPipeReader:
        return self

    def __next__(self) -> Any:
        try:
            return self.recv()
        except PipeClosed:
            raise StopIteration from None

    def __aiter__(self) -> TensorPipeReader:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.coro_recv()
        except PipeClosed:
            raise StopAsyncIteration from None


def _nothing() -> Any:
    return NotImplemented
