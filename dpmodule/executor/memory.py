"""Memory of executors: allocating arrays, sharing a pool, and reusing output memory."""

from __future__ import annotations

import logging
import mmap
import operator
import sys
import threading
from collections.abc import Iterable, Sequence
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
"""Alignment of arrays in bytes, for vector instructions; NumPy's is 16."""

LARGE = 2**16
"""Bytes from which computing in memory that is in the processor's cache saves more than freeing it first costs."""

_OWN_PAGES = 2**20
"""Arrays of at least this size in bytes get their own pages; smaller ones are cut from a slab."""

_SLAB = 2**21
"""Bytes of a slab: too few for huge pages, which the first write to any of its arrays would populate."""

_HUGE_PAGES = 2**22
"""Arrays of at least this size in bytes use huge pages, as NumPy's do."""


def _zeros(size: int) -> np.ndarray:
    """Return aligned zeroed memory of a size; the operating system populates it on first write."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        memory = np.zeros(size + _ALIGNMENT, np.uint8)
        start = -memory.__array_interface__["data"][0] % _ALIGNMENT
        return memory[start : start + size]
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel may lack them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


class _Slab(threading.local):
    """Zeroed memory of a thread from which small arrays are cut; no part is used twice.

    Attributes:
        memory: the bytes of the current slab, which live as long as one of its arrays.
    """

    memory = np.zeros(0, np.uint8)
    used = 0

    def cut(self, size: int) -> np.ndarray:
        """Return aligned zeroed memory of a size."""
        if self.used + size > len(self.memory):
            self.memory, self.used = _zeros(_SLAB), 0
        start = self.used
        self.used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return self.memory[start : start + size]


_slab = _Slab()


def allocate(shape: tuple[int, ...], ctx: Context, dtype: str, what: str = "an array") -> NDArray:
    """Return a new array of zeros, which takes no memory on the CPU before it is written.

    torch and the C library's heap write zeros immediately, while untouched pages of the operating system cost nothing.
    Gradients and outputs are often replaced before they are written.

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
    """Return the reference counts of an array's tensor and storage, in Python and in torch.

    All are 0 if they are unknown, or if other processes may share the memory.
    """
    tensor, storage = array.raw, array.raw.untyped_storage()
    uses = torch_private.storage_uses(storage._cdata), torch_private.tensor_uses(tensor)
    if storage.is_shared() or not all(uses):
        return _UNKNOWN
    return sys.getrefcount(tensor), sys.getrefcount(storage), *uses


@cache
def _alone() -> tuple[int, int, int, int]:
    """Return the result of `_holders` for an array with no other reference to its tensor or memory."""
    return _holders(NDArray(torch.empty(1), Context("cpu")))


def kept_tensors(tensors: Sequence[torch.Tensor], before: Sequence[tuple[int, int, int, int]]) -> list[bool]:
    """Return True for each tensor whose memory autograd, or an operator, holds since `count_holders` was called."""
    kept = []
    for tensor, old, new in zip(tensors, before, count_holders(tensors)):
        growth = tuple(map(operator.sub, new, old))
        # autograd holds a leaf once, to accumulate its gradient; some versions of torch also count it in Python
        free = [(0, 0, 0, 0), (0, 0, 0, 1), (1, 0, 0, 1)] if tensor.requires_grad else [(0, 0, 0, 0)]
        kept.append(old == _UNKNOWN or growth not in free)
    return kept


def count_holders(tensors: Iterable[torch.Tensor]) -> list[tuple[int, int, int, int]]:
    """Return the result of `_holders` for each tensor."""
    return [_holders(NDArray(tensor, Context("cpu"))) for tensor in tensors]


def nothing(tensor: torch.Tensor) -> torch.Tensor:
    """Return zeros of the shape of a tensor, which take no memory."""
    return tensor.new_zeros(()).expand(tensor.shape)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return True if the elements of a tensor fill its memory, with the axes in any order."""
    # the layout of most images, which torch finds faster than the loop
    if tensor.is_contiguous(memory_format=torch.channels_last):
        return True
    size = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape)):
        if length > 1 and stride != size:
            return False
        size *= length
    return True


def unshared(array: NDArray) -> torch.Tensor | None:
    """Return the tensor of an array on the CPU, or None if something else refers to its memory."""
    if not (array.raw.is_cpu and array.raw.is_contiguous()) or array.pinned:
        return None
    return array.raw if _holders(array) == _alone() != _UNKNOWN else None


def reusable(output: NDArray) -> torch.Tensor | None:
    """Return memory for computing an output, or None to use the C library's.

    The memory of the output's last values is reused if nothing else refers to it. Otherwise a large output gets new
    pages from the operating system, huge ones if possible, which cost less than the C library's.

    Shape:
        returns: as the output.

    Args:
        output: an output, whose handle will hold the new values.
    """
    memory = unshared(output)
    if memory is not None:
        return memory
    if not output.raw.is_cpu or output.raw.nbytes < _OWN_PAGES:
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
        pool: arrays by name; a new array is added to it.
        shape: wanted shape; a smaller one is a view of the head of the pooled array.
        dtype: dtype name.
        logger: receives a warning if existing memory is too small and is replaced.
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
            'bucketing: "%s" of shape %s does not fit into the memory of shape %s that is shared so far, and gets new '
            "memory; set default_bucket_key to the bucket with the largest input, so that all share its memory",
            name,
            shape,
            pooled.shape,
        )
    pool[name] = allocate(shape, ctx, dtype, name)
    return pool[name]
