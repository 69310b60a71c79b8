"""Memory of executors: arrays allocated, cut from a shared pool, or used again."""

from __future__ import annotations

import logging
import mmap
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import torch

from .._core import torch_private
from ..base import DTypeError, OutOfMemoryError, dtype_name
from ..context import Context
from ..ndarray import NDArray
from ..ops.dtypes import torch_dtype
from ..ops.shapes import prod
from ..ops.write_tracking import mark_owned

_ALIGNMENT = 64
"""Where arrays begin, in bytes; vector instructions like it more than NumPy's own 16."""

_OWN_PAGES = 2**20
"""Arrays from this size, in bytes, get pages of their own; smaller ones are cut from a slab."""

_SLAB = 2**21
"""Bytes of a slab: too few for large pages, which would be made as a whole when one of its arrays is written."""

_HUGE_PAGES = 2**22
"""Arrays from this size, in bytes, are better off with large pages, as NumPy's own are."""


def _own_pages(size: int) -> mmap.mmap:
    """Return zeros straight from the operating system, which are made when they are first written."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _zeros(size: int) -> np.ndarray:
    """Return as many bytes, aligned."""
    if hasattr(mmap, "MAP_ANONYMOUS"):
        return np.frombuffer(_own_pages(size), np.uint8)
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return memory[start : start + size]


class _Slab(threading.local):
    """Zeros of a thread that small arrays are cut from; an array's part is not given out again.

    Attributes:
        memory: the bytes, which live as long as one of the arrays; another slab's once they are used up.
    """

    memory = np.zeros(0, np.uint8)
    used = 0

    def cut(self, size: int) -> np.ndarray:
        """Return as many bytes, aligned."""
        if self.used + size > len(self.memory):
            self.memory, self.used = _zeros(_SLAB), 0
        start = self.used
        self.used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return self.memory[start : start + size]


_slab = _Slab()


def allocate(shape: tuple[int, ...], ctx: Context, dtype: str, what: str = "an array") -> NDArray:
    """Return a new array of zeros, which on the CPU takes no memory before it is written.

    torch writes its zeros at once, and the C library those that it takes from its heap; the operating system hands
    out untouched ones for nothing. Gradients and outputs are replaced before anybody writes them.

    Shape:
        returns: `shape`.

    Args:
        shape: its shape.
        dtype: dtype name.
    """
    if ctx.torch_device.type != "cpu" or dtype == "bfloat16":
        try:
            return NDArray(torch.zeros(shape, dtype=torch_dtype(dtype), device=ctx.torch_device), ctx)
        except RuntimeError as error:
            raise OutOfMemoryError.of(f"{what} of shape {shape}", error) from error
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    try:
        memory = _zeros(size) if size >= _OWN_PAGES else _slab.cut(size)
    except (OSError, MemoryError, OverflowError) as error:
        raise OutOfMemoryError.of(f"{what} of shape {shape}", error) from error
    return NDArray(mark_owned(torch.from_numpy(memory.view(kind).reshape(shape))), ctx)


_UNKNOWN = (0, 0, 0, 0)


def _holders(array: NDArray) -> tuple[int, int, int, int]:
    """Return how many hold an array's tensor and its storage, counted for Python and for torch.

    All are 0 if that is not known, or other processes may have the memory as well.
    """
    tensor, storage = array.raw, array.raw.untyped_storage()
    uses = torch_private.storage_uses(storage._cdata), torch_private.tensor_uses(tensor)
    if storage.is_shared() or not all(uses):
        return _UNKNOWN
    return sys.getrefcount(tensor), sys.getrefcount(storage), *uses


@cache
def _alone() -> tuple[int, int, int, int]:
    """Return what `_holders` finds where nothing but the array holds the tensor, and nothing else its memory."""
    return _holders(NDArray(torch.empty(1), Context("cpu")))


def reusable(output: NDArray) -> torch.Tensor | None:
    """Return memory that an output may be computed in instead of memory from the C library; None if that is as good.

    It is that of the output's last values if nobody can see them any more: the array's memory was not handed out,
    and no other tensor shares it. Else new memory is returned, if much is needed: pages that come straight from
    the operating system, large ones where possible, cost less than those of the C library.

    Shape:
        returns: as the output.

    Args:
        output: an output, whose handle is going to show the new values.
    """
    if not output.raw.is_cpu:
        return None
    if not output.pinned and output.raw.is_contiguous() and _holders(output) == _alone() != _UNKNOWN:
        return output.raw
    if output.size * output.raw.element_size() < _OWN_PAGES:
        return None
    return allocate(output.shape, output.context, dtype_name(output.dtype)).raw


def from_pool(
    pool: dict[str, NDArray],
    name: str,
    shape: tuple[int, ...],
    ctx: Context,
    dtype: str,
    logger: Any = logging,
) -> NDArray:
    """Return an array that shares the memory kept under `name`, growing that memory if it is too small.

    Shape:
        returns: `shape`.

    Args:
        pool: arrays by name; gets the new array when one has to be made.
        shape: wanted shape; a smaller one is a view of the head of the pooled array.
        dtype: dtype name.
        logger: gets a warning when memory that exists is too small and is replaced.
    """
    pooled = pool.get(name)
    if pooled is not None:
        if dtype_name(pooled.dtype) != dtype:
            raise DTypeError(
                f"{name}: the shared array is {dtype_name(pooled.dtype)}, this executor needs {dtype}"
            )
        if pooled.shape == shape:
            return pooled
        if pooled.size >= prod(shape):
            return pooled.head_view(shape)
        logger.warning(
            'bucketing: "%s" of shape %s does not fit into the memory of shape %s shared so far and gets new '
            "memory; let default_bucket_key be the bucket with the largest input, so that all share its memory",
            name,
            shape,
            pooled.shape,
        )
    pool[name] = allocate(shape, ctx, dtype, name)
    return pool[name]
