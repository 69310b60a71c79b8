"""Tensors that a writer does not copy into a slot: those in torch's shared memory, and those on a device."""

from __future__ import annotations

import io
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import reduce_tensor

from ..._core import torch_private
from ..errors import StructureError
from .control import FORGET, SHARE, PipeFrames

# tensors in torch's shared memory, which the reader maps once and then reads without copies

MAX_BLOCKS = 64

# torch does not annotate them
_is_shared: Any = torch.Tensor.is_shared
_strategy: Any = torch.multiprocessing.get_sharing_strategy


Location = tuple[int, int, int, int]
"""Block number, byte offset in the block, its size in bytes, and number of frames after which the reader knows it."""


class _Block(NamedTuple):
    number: int
    size: int
    watch: Any


class SharedBlocks:
    """Blocks of shared memory that the reader knows, by their address in this process.

    Each block has a weak reference to its storage: this does not keep the user's memory alive, and later memory at the
    same address is not confused with it. While 64 blocks are known, tensors in other blocks are copied.
    """

    def __init__(self, frames: PipeFrames) -> None:
        self._frames = frames
        self._blocks: dict[int, _Block] = {}
        self._next = 0

    def find(self, tensor: torch.Tensor) -> Location | None:
        """Return the location of a tensor that the reader can map, None if the tensor must be copied."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        block = self._blocks.get(start)
        if block is None or block.watch.cdata != storage._cdata:
            block = self._add(storage, start) if _is_shared(tensor) else None
        if block is None:
            return None
        return block.number, tensor.data_ptr() - start, block.size, self._frames.count

    def purge(self) -> None:
        """Make the reader release blocks that no longer exist here."""
        for start in [start for start, block in self._blocks.items() if block.watch.expired()]:
            self._forget(start)

    def _add(self, storage: torch.UntypedStorage, start: int) -> _Block | None:
        watch = torch_private.storage_watch(storage)
        if watch is None or _strategy() != "file_descriptor":
            return None
        fd, size = torch_private.share_descriptor(storage)[:2]  # the storage keeps the descriptor
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


# tensors on a CUDA device: they are sent by CUDA IPC, and CPU tensors of the same structure by value

_HEAD = 8


class _DevicePickler(ForkingPickler):
    """Pickler that uses torch's handles for tensors on a device, and bytes for tensors on the CPU."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            plain = value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
            return _from_bytes, (data, plain.dtype, tuple(plain.shape))
        return _reduce(value.detach()) if isinstance(value, torch.Tensor) else NotImplemented


_reduce: Any = reduce_tensor  # torch does not annotate it


def _from_bytes(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).view(shape)


def dump_foreign(value: Any, leaves: list[torch.Tensor]) -> bytes:
    """Return a structure as bytes after synchronizing with its CUDA devices."""
    for device in {leaf.device for leaf in leaves if leaf.device.type == "cuda"}:
        torch.cuda.current_stream(device).synchronize()
    file = io.BytesIO()
    file.write(os.getpid().to_bytes(_HEAD, "little"))
    _DevicePickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def load_foreign(data: bytes) -> Any:
    """Return the structure that `dump_foreign` wrote."""
    if int.from_bytes(data[:_HEAD], "little") == os.getpid():
        raise StructureError(
            "a CUDA tensor was received in the process that sent it: CUDA memory can only be opened by another "
            "process; pass the tensor itself, or receive in a child process"
        )
    return pickle.loads(data[_HEAD:])
