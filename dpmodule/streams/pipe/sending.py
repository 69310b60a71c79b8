"""How a writer sends: the way of a message that the core cannot send by itself."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ...base import StateError
from .. import nested
from ..errors import PipeBroken, StructureError
from ..remote import RemoteError
from . import backend, foreign
from . import control as c
from .codes import FOREIGN, FULL, LOOK, SENT
from .connection import Parts, PipeEnd
from .frames import LAYOUT, PAYLOAD
from .layout import Leaf
from .shared import SharedBlocks
from .storage import Slots

__all__ = ["SendingEnd"]

_MAX_FAILURES = 64
_TRIES = 4
_ENDING_S = 0.5
"""How long a process may take to end after its socket is closed, in seconds."""


class SendingEnd(PipeEnd):
    """The writer's end without its public calls."""

    side = c.WRITER

    def __init__(self, parts: Parts, slack: float = 1.5) -> None:
        super().__init__(parts)
        self._slack = slack
        self._send: Callable[[Any], int] = _not_yet
        self._send_wait: Callable[[Any], int] = _not_yet
        self._blocks = SharedBlocks(self._frames)
        self._slots = Slots(self._control.slots, slack)
        self._queued = self._failures = self._foreign = 0
        self._leased: int | None = None

    def _options(self) -> dict[str, Any]:
        return {"slack": self._slack}

    def _make_core(self) -> Any:
        parts = self._parts
        return backend.writer_core(self._control, parts.control, parts.own, parts.other, self._blocks.find)

    def _needed(self, leaf: torch.Tensor) -> int:
        """Return how many bytes of a slot a tensor takes: none if the reader can see it where it lies."""
        found = self._blocks.find(leaf) if leaf.numel() and not (leaf.is_conj() or leaf.is_neg()) else None
        if found is None:
            return leaf.nbytes
        self._core.know(leaf.data_ptr() - found[1], found[2])
        return 0

    def _stop_fast(self) -> None:
        self._send = self._send_wait = _not_yet

    def _start_fast(self) -> None:
        if self._leased is None:
            self._send = self._core.send_soon
            self._send_wait = self._core.send_wait if self._may_wait_inside() else self._core.send_soon

    def _check(self) -> None:
        """Raise if the reader is gone."""
        self._look()
        reason = self._reason()
        if reason is not None:
            raise reason

    def _reader_is_there(self) -> None:
        if self._core.busy:
            raise StateError("another thread is sending; one task or thread may use a writer at a time")
        self._check_peer()
        self._check()

    def _try(self, value: Any, status: int = FULL) -> bool:
        """Send if a slot is free; False if none is.

        Args:
            value: what to send.
            status: what the core said before. It asks for a look at the reader only once in a while.
        """
        if status == LOOK:
            self._reader_is_there()
        for _ in range(_TRIES):
            status = self._core.send(value)
            if status == SENT:
                return True
            if status == LOOK:
                self._reader_is_there()
                continue
            self._check()
            if status == FULL:
                return False
            shape, leaves = nested.flatten(value)
            if status == FOREIGN or any(leaf.device.type != "cpu" for leaf in leaves):
                self._send_foreign(value, leaves)
                return True
            self._lay_out(shape, [self._needed(leaf) for leaf in leaves], leaves)
        raise StructureError("the structure changes while it is being sent")

    def _lay_out(self, shape: Any, needed: list[int], leaves: Sequence[torch.Tensor | Leaf]) -> int:
        """Give a free slot memory for such a structure; return the slot."""
        plan = self._slots.plan(self._core.free_slots(), shape, needed, leaves)
        fd = c.anonymous_file(plan.size)
        try:
            os.pwrite(fd, plan.head, 0)
            self._core.set_slot(plan.slot, fd, plan.size, shape)
            self._slots.use(plan)
            self._tell(LAYOUT, plan.slot, plan.size, fd)
        except BaseException:  # the reader knows nothing of it
            self._slots.forget(plan.slot)
            self._core.unset_slot(plan.slot)
            raise
        finally:
            os.close(fd)
        self._blocks.purge()
        self._core.frames = self._frames.count
        self._queued += 1
        return plan.slot

    def _tell(self, kind: int, number: int, size: int, fd: int) -> None:
        try:
            self._frames.send(kind, number, size, fd)
        except OSError as error:
            self._lost(error)
        self._core.frames = self._frames.count

    def _lost(self, error: OSError) -> NoReturn:
        """Raise why nobody takes what is sent; a killed process closes its socket a moment before it has ended."""
        late = time.monotonic() + _ENDING_S
        while time.monotonic() < late:
            self._check_peer()
            self._check()
            time.sleep(0.002)
        raise PipeBroken("the reader is gone: nobody is at the other end of the pipe") from error

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
        self._post(c.OBJECT, foreign.dump(value, leaves), self._core.free_slots()[0])
        self._foreign += 1
        self._queued += 1

    def _post_failure(self, error: BaseException) -> None:
        if self._failures - self._control.get(c.READER, c.FAILURES) >= _MAX_FAILURES:
            raise StateError(
                f"{_MAX_FAILURES} failures that were given to throw() wait unread; close the pipe"
            )
        self._post(c.FAILURE, pickle.dumps(RemoteError.of(error)))
        self._failures += 1


def _not_yet(value: Any) -> int:
    return LOOK
