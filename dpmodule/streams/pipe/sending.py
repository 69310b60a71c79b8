"""The way of a message that the core cannot send by itself: new memory, failures, tensors on a device."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from ...base import StateError
from .. import nested
from ..errors import PipeBroken, StructureError
from ..remote import RemoteError
from . import control as c
from . import foreign
from .codes import FOREIGN, FULL, LOOK, SENT
from .connection import Connection
from .frames import LAYOUT, PAYLOAD
from .layout import Leaf
from .shared import SharedBlocks
from .storage import Slots

__all__ = ["Sender"]

_MAX_FAILURES = 64
_TRIES = 4
_ENDING_S = 0.5
"""How long a process may take to end after its socket is closed, in seconds."""


class Sender:
    """Sends what the core cannot send by itself.

    Args:
        connection: to the reader.
        blocks: tensors in shared memory that the reader sees where they lie.
        slots: the layouts of all slots.

    Attributes:
        queued: how many structures needed new memory.
        foreign: how many had tensors on a device.
    """

    def __init__(self, connection: Connection, blocks: SharedBlocks, slots: Slots) -> None:
        self._connection, self._blocks, self._slots = connection, blocks, slots
        self.queued = self.foreign = self._failures = 0

    def _needed(self, leaf: torch.Tensor) -> int:
        """Return how many bytes of a slot a tensor takes: none if the reader can see it where it lies."""
        found = self._blocks.find(leaf) if leaf.numel() and not (leaf.is_conj() or leaf.is_neg()) else None
        if found is None:
            return leaf.nbytes
        self._connection.core.know(leaf.data_ptr() - found[1], found[2])
        return 0

    def check_reader(self) -> None:
        """Raise if the reader is gone, or another thread is sending."""
        if self._connection.core.busy:
            raise StateError("another thread is sending; one task or thread may use a writer at a time")
        self._connection.check_peer()
        self._connection.check()

    def send(self, value: Any, status: int = FULL) -> bool:
        """Send if a slot is free; False if none is.

        Args:
            value: what to send.
            status: what the core said before. It asks for a look at the reader only once in a while.
        """
        if status == LOOK:
            self.check_reader()
        connection = self._connection
        for _ in range(_TRIES):
            status = connection.core.send(value)
            if status == SENT:
                return True
            if status == LOOK:
                self.check_reader()
                continue
            connection.check()
            if status == FULL:
                return False
            shape, leaves = nested.flatten(value)
            if status == FOREIGN or any(leaf.device.type != "cpu" for leaf in leaves):
                self._send_foreign(value, leaves)
                return True
            self.lay_out(shape, [self._needed(leaf) for leaf in leaves], leaves)
        raise StructureError("the structure changes while it is being sent")

    def lay_out(self, shape: Any, needed: list[int], leaves: Sequence[torch.Tensor | Leaf]) -> int:
        """Give a free slot memory for such a structure; return the slot."""
        core = self._connection.core
        plan = self._slots.plan(core.free_slots(), shape, needed, leaves)
        fd = c.anonymous_file(plan.size)
        try:
            os.pwrite(fd, plan.head, 0)
            core.set_slot(plan.slot, fd, plan.size, shape)
            self._slots.use(plan)
            self._tell(LAYOUT, plan.slot, plan.size, fd)
        except BaseException:  # the reader knows nothing of it
            self._slots.forget(plan.slot)
            core.unset_slot(plan.slot)
            raise
        finally:
            os.close(fd)
        self._blocks.purge()
        core.frames = self._connection.frames.count
        self.queued += 1
        return plan.slot

    def _tell(self, kind: int, number: int, size: int, fd: int) -> None:
        frames = self._connection.frames
        try:
            frames.send(kind, number, size, fd)
        except OSError as error:
            self._lost(error)
        self._connection.core.frames = frames.count

    def _lost(self, error: OSError) -> NoReturn:
        """Raise why nobody takes what is sent; a killed process closes its socket a moment before it has ended."""
        late = time.monotonic() + _ENDING_S
        while time.monotonic() < late:
            self._connection.check_peer()
            self._connection.check()
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
        self._connection.core.publish(kind, slot)

    def _send_foreign(self, value: Any, leaves: list[torch.Tensor]) -> None:
        self._post(c.OBJECT, foreign.dump(value, leaves), self._connection.core.free_slots()[0])
        self.foreign += 1
        self.queued += 1

    def send_failure(self, error: BaseException) -> None:
        """Send an exception.

        Raises:
            StateError: 64 of them wait unread.
        """
        if self._failures - self._connection.control.get(c.READER, c.FAILURES) >= _MAX_FAILURES:
            raise StateError(
                f"{_MAX_FAILURES} failures that were given to throw() wait unread; close the pipe"
            )
        self._post(c.FAILURE, pickle.dumps(RemoteError.of(error)))
        self._failures += 1
