"""The ranges between which memory is copied, checked; and the copy in NumPy, for programs without the extension."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...base import ArgumentError, BoundsError, DeviceError, DTypeError

Range = np.ndarray[Any, Any]
"""Bytes of a buffer or tensor, which the array keeps alive."""


def range_of(name: str, data: Any, offset: int, count: int | None, write: bool = False) -> Range:
    """Return `count` bytes of a contiguous buffer or tensor, from `offset` on; all that follow if `count` is None."""
    whole = _bytes_of(name, data)
    if write and not whole.flags.writeable:
        raise ArgumentError(f"{name} is {type(data).__name__}, which cannot be written to")
    size = len(whole)
    end = size if count is None else offset + count
    if not 0 <= offset <= end <= size:
        wanted = "the rest" if count is None else f"{count} bytes"
        raise BoundsError(f"{name}: {wanted} from byte {offset} on are not inside its {size} bytes")
    return whole[offset:end]


def _bytes_of(name: str, data: Any) -> Range:
    if isinstance(data, torch.Tensor):
        return _tensor_bytes(name, data)
    try:
        view = memoryview(data)
    except TypeError:
        raise DTypeError(f"{name} is {type(data).__name__}, expected a buffer or a tensor") from None
    if not view.c_contiguous:
        raise ArgumentError(f"{name} is not contiguous")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def _tensor_bytes(name: str, data: torch.Tensor) -> Range:
    if data.device.type != "cpu":
        raise DeviceError(f"{name} is a tensor of {data.device}; functors work in the memory of the CPU")
    if data.layout != torch.strided or not data.is_contiguous():
        raise ArgumentError(f"{name} is a tensor that is not contiguous")
    array: Range = data.detach().reshape(-1).view(torch.uint8).numpy()
    return array


def copy(target: Range, source: Range) -> int:
    """Copy all bytes of `source`; return how many."""
    target[:] = source
    return len(source)
