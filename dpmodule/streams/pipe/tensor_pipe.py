"""Sending nested structures of tensors to another process, without copies for tensors in shared memory.

A pipe has a fixed number of slots; each is a block of shared memory for one message. The writer copies a structure into
a free slot, or fills it in place; the reader gets tensors in the slot's memory. The slot is free again when the last of
these tensors is gone; while no slot is free, the writer waits. The processes at the two ends must trust each other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from collections.abc import Callable
from typing import Any

from ...base import ArgumentError
from ..errors import PipeBroken, PipeClosed, refused
from . import backend
from . import control as c
from .control import FORGET, LAYOUT, SHARE, PipeFrame, PipeFrames
from .end import EndParts, PipeEnd, deadline_of, link_ends
from .external_memory import load_foreign
from .layout import read_outline
from .writer import PipeStats as PipeStats
from .writer import TensorPipeWriter as TensorPipeWriter


class TensorPipeReader(PipeEnd):
    """The receiving end of a pipe; made by `tensor_pipe`.

    A received structure stays valid, and its slot is not reused, as long as any of its tensors or their views exists.
    Iteration with ``for`` or ``async for`` ends when the writer has closed the pipe.

    Args:
        parts: memory and sockets of the pipe.
    """

    def __init__(self, parts: EndParts) -> None:
        super().__init__(c.READER, parts, backend.reader_core)
        self._recv: Callable[[], Any] = _nothing
        self._recv_wait: Callable[[], Any] = _nothing
        self._unreadable: dict[int, Exception] = {}
        self._payload = b""

    def _stop_fast(self) -> None:
        self._recv = self._recv_wait = _nothing

    def _start_fast(self) -> None:
        core = self._core
        self._recv = core.recv_soon
        self._recv_wait = core.recv_wait if self._can_wait_inside else core.recv_soon

    async def coro_recv(self) -> Any:
        """Receive the next structure.

        Returns:
            The structure: new containers, and tensors in the memory of the pipe.

        Raises:
            PipeClosed: the writer has closed the pipe and everything has been received.
            PipeBroken: the writer's process ended without closing the pipe; the message names the process.
            StateError: another call waits on this end, or the end belongs to another process.
            LoopClosedError: no event loop is running.
            Exception: the exception that the writer passed to `throw`.
        """
        value = self._recv()
        return value if value is not NotImplemented else await self._recv_later()

    def recv(self, timeout: float | None = None) -> Any:
        """Receive the next structure, blocking this thread.

        Args:
            timeout: most seconds to wait; None for no limit.

        Raises:
            PipeTimeout: nothing arrived in time.
            PipeClosed: as in `coro_recv`, like all others.
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
        """Return the next structure, NotImplemented if none has arrived; raise errors that precede it."""
        core = self._core
        while not self._closed:
            value = core.recv()
            if value is not NotImplemented:
                return value
            entry = core.peek()
            if entry:
                complete = self._special(entry)
                if complete:
                    return complete[0]
                value = core.recv()
                if value is NotImplemented:
                    raise PipeBroken(f"message {entry:#x} of the writer cannot be read")
                return value
            reason = self._reason()
            if reason is None:
                return NotImplemented
            if not core.peek():  # nothing was sent since the last peek
                try:
                    raise reason
                finally:
                    del reason  # otherwise its traceback would refer to it and to the locals of the callers
        raise PipeClosed("this reader is closed")

    def _special(self, entry: int) -> tuple[Any, ...]:
        """Handle frames, failures and objects before the next structure; return (structure,) if it is complete."""
        kind, slot, count = entry & 0xFF, entry >> 8 & 0xFF, entry >> 32
        frames, core, control = self._frames, self._core, self._control
        while frames.count != count:
            frame = frames.take()
            if frame is None:
                raise PipeBroken("the writer is gone: a message is incomplete")
            self._apply(frame)
        core.frames = count
        if kind == c.FAILURE:
            core.skip()
            control.put(c.READER, c.FAILURES, control.get(c.READER, c.FAILURES) + 1)
            raise pickle.loads(self._payload).restore("the writer's process")
        if kind == c.OBJECT:
            core.skip(slot)
            return (load_foreign(self._payload),)
        if slot in self._unreadable:
            core.skip(slot)
            raise self._unreadable[slot]
        return ()

    def _apply(self, frame: PipeFrame) -> None:
        core = self._core
        try:
            if frame.kind == LAYOUT:
                self._lay_out(frame)
            elif frame.kind == SHARE:
                core.set_shared(frame.number, frame.fd, frame.size)
            elif frame.kind == FORGET:
                core.forget_shared(frame.number)
            else:
                self._payload = os.pread(frame.fd, frame.size, 0)
        except OSError as error:
            # the message can be received later, when resources are available
            self._frames.put_back(frame)
            raise refused("memory of a message in a tensor pipe", error) from error
        if frame.fd >= 0:
            os.close(frame.fd)

    def _lay_out(self, frame: PipeFrame) -> None:
        self._unreadable.pop(frame.number, None)
        try:
            self._core.set_slot(frame.number, frame.fd, frame.size, read_outline(frame.fd))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            self._cannot_read(frame.number, error)
        except Exception as error:  # unpickling a user's dataclass may raise anything
            self._cannot_read(frame.number, error)

    def _cannot_read(self, slot: int, error: Exception) -> None:
        self._unreadable[slot] = error
        self._core.unset_slot(slot)

    @property
    def received(self) -> int:
        """Number of structures received."""
        core = self._core
        return 0 if core is None else int(core.received)

    @property
    def exhausted(self) -> bool:
        """True if received structures still use all slots, so that the writer has to wait."""
        control = self._control
        words = control.words
        in_use = all(words[c.SLOTS_AT + 8 * slot] for slot in range(control.slots))
        # in this order: the writer fills a slot before it advances the head
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


def tensor_pipe(slots: int = 2, slack: float = 1.5) -> tuple[TensorPipeReader, TensorPipeWriter]:
    """Make a pipe for nested structures of tensors; either end may be passed to another process.

    An end belongs to the process that first uses it. A forked child uses its copy; a spawned child gets the end as an
    argument of `multiprocessing.Process`. Both ends may also stay in one process.

    Args:
        slots: number of messages that may be in transit or in use by the reader, 1 to 64. With 2, the writer fills one
            slot while the reader uses the other. With 1, the writer waits until the reader has dropped the last
            message: a loop must end with ``del value`` before it receives the next one.
        slack: factor, at least 1, by which a leaf that outgrows its memory gets more bytes than it needs.

    Raises:
        ArgumentError: `slots` or `slack` is out of range.
        FileError: too few descriptors are left; a pipe needs 9 in total, 4 of them for either end.

    Example:
        >>> import torch
        >>> reader, writer = tensor_pipe()
        >>> writer.send({"data": torch.arange(3), "label": None})
        >>> reader.recv()
        {'data': tensor([0, 1, 2]), 'label': None}
        >>> writer.close()
        >>> list(reader)
        []
        >>> reader.close()
    """
    if type(slots) is not int or not 1 <= slots <= c.MAX_SLOTS:
        raise ArgumentError(f"slots must be an int in 1..{c.MAX_SLOTS}, got {slots!r}")
    if not isinstance(slack, (int, float)) or not 1.0 <= slack <= 16.0:
        raise ArgumentError(f"slack must be a number in 1..16, got {slack!r}")
    try:
        reader, writer = _ends(slots, float(slack))
    except OSError as error:
        raise refused("a tensor pipe", error) from error
    link_ends(reader, writer)
    return reader, writer


def _ends(slots: int, slack: float) -> tuple[TensorPipeReader, TensorPipeWriter]:
    # an end owns its descriptors once it exists; until then, they are closed here on failure
    with contextlib.ExitStack() as left, contextlib.ExitStack() as right:
        control = c.Control.create(backend.protocol(), slots)
        left.callback(os.close, control)
        data = left.enter_context(contextlib.closing(c.Signal.create()))
        credit = left.enter_context(contextlib.closing(c.Signal.create()))
        near, far = c.socket_pair()
        left.enter_context(near)
        right.enter_context(far)
        own = right.enter_context(contextlib.closing(credit.copy()))
        other = right.enter_context(contextlib.closing(data.copy()))
        copy = os.dup(control)
        right.callback(os.close, copy)
        reader = TensorPipeReader(EndParts(control, data, credit, PipeFrames(near)))
        left.pop_all()
        writer = TensorPipeWriter(EndParts(copy, own, other, PipeFrames(far)), slack)
        right.pop_all()
    return reader, writer
