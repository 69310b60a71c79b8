"""The sending end of a tensor pipe."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from ...base import ArgumentError, StateError
from .. import nested
from ..errors import PipeBroken, StructureError
from ..messages import RemoteError
from . import backend
from . import control as c
from .control import CHECK, FOREIGN, FULL, LAYOUT, PAYLOAD, SENT
from .end import EndParts, PipeEnd, deadline_of
from .external_memory import SharedBlocks, dump_foreign
from .layout import Leaf, Slots, StructureSpec

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
