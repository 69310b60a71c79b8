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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from ...base import ArgumentError, StateError
from .. import nested
from ..errors import PipeBroken, PipeClosed, StructureError, refused
from ..messages import RemoteError
from . import backend
from . import control as c
from .control import CHECK, FOREIGN, FORGET, FULL, LAYOUT, PAYLOAD, SENT, SHARE, PipeFrame, PipeFrames
from .end import EndParts, PipeEnd, deadline_of, link_ends
from .external_memory import SharedBlocks, dump_foreign, load_foreign
from .layout import Leaf, Slots, StructureSpec, read_outline

_MAX_FAILURES = 64
_TRIES = 4
_ENDING_S = 0.5
"""Most seconds that a process may take to end after its socket is closed."""


@dataclass(frozen=True)
class PipeStats:
    """Statistics of a writer.

    Attributes:
        sent: number of structures sent.
        zero_copy: number of tensors that were sent without a copy.
        copied: number of tensors that were copied into a slot.
        queued: number of structures that needed new memory, which is slower to send.
    """

    sent: int = 0
    zero_copy: int = 0
    copied: int = 0
    queued: int = 0


class TensorPipeWriter(PipeEnd):
    """The sending end of a pipe; made by `tensor_pipe`.

    As a context manager, it closes the pipe; an exception of the block is raised in the reader.

    Args:
        parts: memory and sockets of the pipe.
        slack: factor by which a slot that is too small grows beyond the size needed.
    """

    def __init__(self, parts: EndParts, slack: float = 1.5) -> None:
        blocks = SharedBlocks(parts.frames)
        super().__init__(
            c.WRITER,
            parts,
            lambda control, fd, own, other: backend.writer_core(control, fd, own, other, blocks.find),
        )
        self._slack = slack
        self._slots = Slots(self._control.slots, slack)
        self._blocks = blocks
        self._queued = self._foreign = self._failures = 0
        self._send: Callable[[Any], int] = _not_yet
        self._send_wait: Callable[[Any], int] = _not_yet
        self._leased: int | None = None

    def __reduce__(self) -> Any:
        rebuild, args = super().__reduce__()
        return rebuild, (*args, self._slack)

    def _stop_fast(self) -> None:
        self._send = self._send_wait = _not_yet

    def _start_fast(self) -> None:
        if self._leased is None:
            core = self._core
            self._send = core.send_soon
            self._send_wait = core.send_wait if self._can_wait_inside else core.send_soon

    # --- sending

    async def coro_send(self, value: Any) -> None:
        """Send a nested structure of tensors, waiting while all slots are in use.

        Tensors in shared memory are sent as references to it, all others by value.

        Args:
            value: None, a tensor, or a list, tuple, dict or dataclass of these.

        Raises:
            StructureError: `value` has an unsupported part, which the message names; nothing was sent.
            PipeClosed: the reader has closed the pipe, or this end is closed.
            PipeBroken: the reader's process has ended; the message names the process.
            StateError: another call waits on this end, an acquired slot is not committed yet, or the end belongs to
                another process.
            LoopClosedError: no event loop is running.
        """
        status = self._send(value)
        if status:
            await self._send_later(value, status)

    def send(self, value: Any, timeout: float | None = None) -> None:
        """Send a nested structure of tensors, blocking this thread while all slots are in use.

        Args:
            value: None, a tensor, or a list, tuple, dict or dataclass of these.
            timeout: most seconds to wait; None for no limit.

        Raises:
            PipeTimeout: no slot became free in time.
            StructureError: as in `coro_send`, like all others.
        """
        status = (self._send_wait if timeout is None else self._send)(value)
        if status:
            self._send_blocking(value, timeout, status)

    async def _send_later(self, value: Any, status: int) -> None:
        self._enter_unleased()
        try:
            if not self._try_send(value, status):
                self._validate(value)
                while not self._try_send(value):
                    await self._pause()
        finally:
            self._leave()

    def _send_blocking(self, value: Any, timeout: float | None, status: int = CHECK) -> None:
        deadline = deadline_of(timeout)
        self._enter_unleased()
        try:
            if not self._try_send(value, status):
                self._validate(value)
                while not self._try_send(value):
                    self._block(deadline)
        finally:
            self._leave()

    def _enter_unleased(self) -> None:
        if self._leased is not None:
            raise StateError(
                "the slot that acquire() returned is not sent yet: call commit() or release() first"
            )
        self._enter()

    def _validate(self, value: Any) -> None:
        """Raise if the value cannot be sent, before waiting."""
        if not self._core.fits(value):
            nested.flatten(value)

    # --- values that the core cannot send on its own

    def _needed(self, leaf: torch.Tensor) -> int:
        """Return the bytes of a slot that a tensor needs: 0 if the reader can map its memory."""
        location = None
        if leaf.numel() and not (leaf.is_conj() or leaf.is_neg()):
            location = self._blocks.find(leaf)
        if location is None:
            return leaf.nbytes
        self._core.add_shared_range(leaf.data_ptr() - location[1], location[2])
        return 0

    def _check_reader(self) -> None:
        """Raise if the reader is gone or another thread is sending."""
        if self._core.busy:
            raise StateError("another thread is sending; one task or thread may use a writer at a time")
        self._check_peer()
        self._check()

    def _try_send(self, value: Any, status: int = FULL) -> bool:
        """Send if a slot is free; return False if none is.

        Args:
            status: the core's last status. It requests a check of the reader only at intervals.
        """
        if status == CHECK:
            self._check_reader()
        for _ in range(_TRIES):
            status = self._core.send(value)
            if status == SENT:
                return True
            if status == CHECK:
                self._check_reader()
                continue
            self._check()
            if status == FULL:
                return False
            shape, leaves = nested.flatten(value)
            if status == FOREIGN or any(leaf.device.type != "cpu" for leaf in leaves):
                self._send_foreign(value, leaves)
                return True
            self._lay_out(shape, [self._needed(leaf) for leaf in leaves], leaves)
        raise StructureError("the structure changed while it was being sent")

    def _lay_out(self, shape: Any, needed: list[int], leaves: Sequence[torch.Tensor | Leaf]) -> int:
        """Allocate memory for such a structure to a free slot, and return the slot."""
        core = self._core
        plan = self._slots.plan(core.free_slots(), shape, needed, leaves)
        fd = c.anonymous_file(plan.size)
        try:
            os.pwrite(fd, plan.head, 0)
            core.set_slot(plan.slot, fd, plan.size, shape)
            self._slots.use(plan)
            self._tell(LAYOUT, plan.slot, plan.size, fd)
        except BaseException:  # the reader does not know the new memory
            self._slots.forget(plan.slot)
            core.unset_slot(plan.slot)
            raise
        finally:
            os.close(fd)
        self._blocks.purge()
        core.frames = self._frames.count
        self._queued += 1
        return plan.slot

    def _tell(self, kind: int, number: int, size: int, fd: int) -> None:
        frames = self._frames
        try:
            frames.send(kind, number, size, fd)
        except OSError as error:
            self._lost(error)
        self._core.frames = frames.count

    def _lost(self, error: OSError) -> NoReturn:
        """Raise the error for a lost reader; the socket of a killed process closes shortly before the process ends."""
        late = time.monotonic() + _ENDING_S
        while time.monotonic() < late:
            self._check_peer()
            self._check()
            time.sleep(0.002)
        raise PipeBroken("the reader is gone: no process has the other end of the pipe") from error

    def _post(self, kind: int, data: bytes, slot: int = -1) -> None:
        """Send a message that carries bytes."""
        fd = c.anonymous_file(len(data))
        try:
            os.pwrite(fd, data, 0)
            self._tell(PAYLOAD, 0, len(data), fd)
        finally:
            os.close(fd)
        self._core.publish(kind, slot)

    def _send_foreign(self, value: Any, leaves: list[torch.Tensor]) -> None:
        self._post(c.OBJECT, dump_foreign(value, leaves), self._core.free_slots()[0])
        self._foreign += 1
        self._queued += 1

    # --- filling a slot in place

    async def coro_acquire(self, like: Any = None) -> Any:
        """Take a free slot, waiting while all slots are in use, and return its structure to be filled in place.

        Args:
            like: a structure with the outline, shapes and dtypes to use; its values are not read, so that tensors may
                be on the meta device. None for the last one acquired with `like`, or sent in new memory.

        Returns:
            The structure, with contiguous tensors in the slot's memory. After `commit` they belong to the reader.

        Raises:
            StateError: `like` is None and no structure is known, an acquired slot is not committed yet, or as in
                `coro_send`.
            PipeClosed: as in `coro_send`, like all others.
        """
        self._enter_unleased()
        try:
            pattern = self._slots.pattern(like)
            while not self._core.free_slots():
                self._check()
                await self._pause()
            return self._lease(pattern)
        finally:
            self._leave()

    def acquire(self, like: Any = None, timeout: float | None = None) -> Any:
        """Take a free slot to be filled in place, blocking this thread while all slots are in use.

        Args:
            like: as in `coro_acquire`.
            timeout: most seconds to wait; None for no limit.

        Raises:
            PipeTimeout: no slot became free in time.
            StateError: as in `coro_acquire`, like all others.
        """
        deadline = deadline_of(timeout)
        self._enter_unleased()
        try:
            pattern = self._slots.pattern(like)
            while not self._core.free_slots():
                self._check()
                self._block(deadline)
            return self._lease(pattern)
        finally:
            self._leave()

    def _lease(self, pattern: StructureSpec) -> Any:
        self._check_peer()  # a writer that only fills slots in place has no other check
        self._check()
        core = self._core
        slot = self._slots.fitting(core.free_slots(), pattern)
        if slot is None:
            needed = [leaf.nbytes for leaf in pattern.leaves]
            slot = self._lay_out(pattern.outline, needed, pattern.leaves)
        core.shape(slot, pattern.leaves)
        value = core.lease(slot)
        self._leased = slot
        self._slots.acquired(pattern)
        return value

    def commit(self, value: Any = None) -> None:
        """Send the slot that `acquire` returned; never waits.

        Args:
            value: a structure of the same outline to send instead of the acquired one. Its tensors in the slot,
                including views and slices, are not copied; all others are.

        Raises:
            StateError: no slot is acquired.
            StructureError: `value` is not a nested structure of tensors; the slot stays acquired.
        """
        slot, core = self._need_lease(), self._core
        if value is None:
            core.commit(slot)
        elif not self._commit_other(self._apart(value), slot):
            shape, leaves = nested.flatten(value)
            value = nested.unflatten(shape, [leaf.clone() for leaf in leaves])
            core.unlease(slot)
            self._leased = None
            self._send_blocking(value, 0.0)  # does not wait, because the slot is free
        self._leased = None
        self._start_fast()

    def _commit_other(self, value: Any, slot: int) -> bool:
        """Send another structure in the slot if it fits; return False if it does not."""
        core = self._core
        status = core.send(value, slot)
        if status == CHECK:
            self._check_reader()
            status = core.send(value, slot)
        return bool(status == SENT)

    def _apart(self, value: Any) -> Any:
        """Copy leaves in another leaf's memory of the slot, if any leaf will be copied into the slot."""
        shape, leaves = nested.flatten(value)
        indices = self._core.leaf_indices(leaves, self._leased)
        return nested.unflatten(shape, self._slots.without_overlaps(indices, leaves))

    def release(self) -> None:
        """Free the acquired slot without sending it; its tensors must not be used afterwards.

        Raises:
            StateError: no slot is acquired.
        """
        slot = self._need_lease()
        self._core.unlease(slot)
        self._leased = None
        self._start_fast()

    def _need_lease(self) -> int:
        self._claim()
        if self._leased is None:
            raise StateError("no slot is acquired: call acquire() first")
        return self._leased

    # --- the end

    def throw(self, error: BaseException) -> None:
        """Send an exception, which the reader raises after it has received everything sent before; never waits.

        Args:
            error: the exception; its traceback is sent as text.

        Raises:
            ArgumentError: `error` is not an exception.
            StateError: the reader has not received the last 64 exceptions.
            PipeClosed: the reader has closed the pipe, or this end is closed.
            PipeBroken: the reader's process has ended.
        """
        if not isinstance(error, BaseException):
            raise ArgumentError(f"throw: error is {error!r}, expected an exception object")
        self._claim()
        self._check()
        if self._failures - self._control.get(c.READER, c.FAILURES) >= _MAX_FAILURES:
            raise StateError(
                f"the reader has not received the last {_MAX_FAILURES} exceptions of throw(); close the pipe"
            )
        self._post(c.FAILURE, pickle.dumps(RemoteError.of(error)))
        self._failures += 1

    @property
    def stats(self) -> PipeStats:
        """Statistics so far."""
        core = self._core
        if core is None:
            return PipeStats()
        return PipeStats(core.sent + self._foreign, core.zero_copy, core.copied, self._queued)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not self.closed:
            with contextlib.suppress(PipeBroken, EOFError, StateError):  # there is no reader to notify
                self.throw(error)
        elif error is not None and not self.closed:
            self._finish(
                c.DROPPED
            )  # cancelled or interrupted: the reader must not take this for the end of the data
            return
        self.close()


def _not_yet(value: Any) -> int:
    return CHECK


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
