"""Structures with tensors on a CUDA device: they go by CUDA IPC, whatever is on the CPU beside them by value."""

from __future__ import annotations

import io
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from ..errors import StructureError

__all__ = ["dump", "load"]

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


def dump(value: Any, leaves: list[torch.Tensor]) -> bytes:
    """Return a structure as bytes, after all that its devices still had to compute has been computed."""
    for device in {leaf.device for leaf in leaves if leaf.device.type == "cuda"}:
        torch.cuda.current_stream(device).synchronize()
    file = io.BytesIO()
    file.write(os.getpid().to_bytes(_HEAD, "little"))
    _DevicePickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def load(data: bytes) -> Any:
    """Return the structure.

    Raises:
        StructureError: this process sent it. CUDA memory cannot be opened by IPC where it was allocated; the attempt
            would crash the process.
    """
    if int.from_bytes(data[:_HEAD], "little") == os.getpid():
        raise StructureError(
            "a CUDA tensor was received in the process that sent it: CUDA memory can only be opened by another "
            "process; pass the tensor itself, or receive in a child process"
        )
    return pickle.loads(data[_HEAD:])
