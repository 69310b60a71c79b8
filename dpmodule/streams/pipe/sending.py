"""Sending what the core cannot send by itself: new and shared memory, failures, tensors on a device."""

from __future__ import annotations

import io
import os
import pickle
import time
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, NoReturn

import torch
from torch.multiprocessing.reductions import reduce_tensor

from ...base import StateError
from ...compat import torch_private
from .. import nested
from ..errors import PipeBroken, StructureError
from ..messages import RemoteError
from . import control as c
from .connection import Connection
from .control import FOREIGN, FORGET, FULL, LAYOUT, LOOK, PAYLOAD, SENT, SHARE, PipeFrames
from .layout import Leaf, Slots

_MAX_FAILURES = 64
_TRIES = 4
_ENDING_S = 0.5
"""How long a process may take to end after its socket is closed, in seconds."""


class Sender:
    """Sends what the core cannot send by itself.

    Args:
        blocks: tensors in shared memory that the reader sees where they lie.
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
        self._post(c.OBJECT, dump_foreign(value, leaves), self._connection.core.free_slots()[0])
        self.foreign += 1
        self.queued += 1

    def send_failure(self, error: BaseException) -> None:
        """Send an exception."""
        if self._failures - self._connection.control.get(c.READER, c.FAILURES) >= _MAX_FAILURES:
            raise StateError(
                f"{_MAX_FAILURES} failures that were given to throw() wait unread; close the pipe"
            )
        self._post(c.FAILURE, pickle.dumps(RemoteError.of(error)))
        self._failures += 1


# tensors in shared memory of torch's own, which the reader maps once and then sees without copies

MAX_BLOCKS = 64

# torch gives them no types
_is_shared: Any = torch.Tensor.is_shared
_strategy: Any = torch.multiprocessing.get_sharing_strategy


Found = tuple[int, int, int, int]
"""Number of a block, byte offset in it, its bytes, and how many frames have been sent when the reader knows it."""


class _Block(NamedTuple):
    number: int
    size: int
    watch: Any


class SharedBlocks:
    """Which blocks of shared memory the reader knows, by their address here.

    A block is known by a weak reference to its storage: it does not keep the user's memory alive, and memory that
    comes to lie at the same address later is not taken for it. While 64 are known, tensors in others are copied.
    """

    def __init__(self, frames: PipeFrames) -> None:
        self._frames = frames
        self._blocks: dict[int, _Block] = {}
        self._next = 0

    def find(self, tensor: torch.Tensor) -> Found | None:
        """Return where a tensor lies if the reader can see it there, None if it must be copied."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        block = self._blocks.get(start)
        if block is None or block.watch.cdata != storage._cdata:
            block = self._add(storage, start) if _is_shared(tensor) else None
        if block is None:
            return None
        return block.number, tensor.data_ptr() - start, block.size, self._frames.count

    def purge(self) -> None:
        """Tell the reader to let go of blocks that no longer exist here."""
        for start in [start for start, block in self._blocks.items() if block.watch.expired()]:
            self._forget(start)

    def _add(self, storage: torch.UntypedStorage, start: int) -> _Block | None:
        watch = torch_private.storage_watch(storage)
        if watch is None or _strategy() != "file_descriptor":
            return None
        fd, size = torch_private.share_descriptor(storage)[:2]  # it stays the storage's
        if fd < 0:
            return None
        if start in self._blocks:
            self._forget(start)
        self.purge()
        if len(self._blocks) >= MAX_BLOCKS:
            return None
        block = self._blocks[start] = _Block(self._next, size, watch)
        self._next += 1
        self._frames.send(SHARE, block.number, size, fd)
        return block

    def _forget(self, start: int) -> None:
        block = self._blocks.pop(start)
        self._frames.send(FORGET, block.number, 0)


# tensors on a CUDA device: they go by CUDA IPC, and CPU tensors beside them by value

_HEAD = 8


class _DevicePickler(ForkingPickler):
    """Torch's own handles for tensors on a device; bytes for those on the CPU."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            plain = value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            return _from_bytes, (data, plain.dtype, tuple(plain.shape))
        return _reduce(value.detach()) if isinstance(value, torch.Tensor) else NotImplemented


_reduce: Any = reduce_tensor  # torch gives it no types


def _from_bytes(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).view(shape)


def dump_foreign(value: Any, leaves: list[torch.Tensor]) -> bytes:
    """Return a structure as bytes, after all that its devices still had to compute has been computed."""
    for device in {leaf.device for leaf in leaves if leaf.device.type == "cuda"}:
        torch.cuda.current_stream(device).synchronize()
    file = io.BytesIO()
    file.write(os.getpid().to_bytes(_HEAD, "little"))
    _DevicePickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def load_foreign(data: bytes) -> Any:
    """Return the structure."""
    if int.from_bytes(data[:_HEAD], "little") == os.getpid():
        raise StructureError(
            "a CUDA tensor was received in the process that sent it: CUDA memory can only be opened by another "
            "process; pass the tensor itself, or receive in a child process"
        )
    return pickle.loads(data[_HEAD:])
