"""Settings of the C library's allocator for large freed blocks: return them to the operating system, or keep them.

Both act on the whole process. glibc requests every block above a threshold, at most 32 MB, from the operating system
and returns it when it is freed; smaller freed blocks stay in its heap. Fresh pages cost about as much time as filling
them with numbers; kept blocks cost memory.

Source: glibc's ``mallopt`` and ``malloc_trim``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Numbers of glibc's settings, from its malloc.h."""

_BLOCK_BYTES = 31 * 2**20
"""Bytes of the block that raises glibc's threshold, which never exceeds 32 MB."""

_MIN_RESULT_BYTES = 2**19
"""Networks with smaller results and gradients leave the threshold alone."""

_keeps = _threshold_raised = False


@cache
def _function(name: str) -> Callable[..., int] | None:
    """Return a glibc function; None with other C libraries."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  others have functions of these names that do nothing
        function: Any = getattr(library, name)
    except (AttributeError, OSError, TypeError):
        return None
    return function  # type: ignore[no-any-return]


def raise_mmap_threshold(size: int) -> None:
    """Make the C library keep freed blocks of up to 32 MB in its heap, once a network is large enough to need them.

    glibc raises its threshold whenever a larger mapped block is freed: blocks up to that size then stay in the heap,
    and so does free memory of twice that size at the heap's end. Before that, a network of many mid-sized results has
    the end of the heap trimmed and extended in every batch. Freeing one block that is never written raises the
    threshold.

    Args:
        size: bytes of all results and gradients of a network; a small size changes nothing.
    """
    global _threshold_raised
    if not _threshold_raised and size >= _MIN_RESULT_BYTES and _function("malloc_trim") is not None:
        _threshold_raised = True
        torch.empty(_BLOCK_BYTES, dtype=torch.uint8)


def trim_heap() -> None:
    """Return the free parts of the C library's heap to the operating system, if the library supports it.

    glibc keeps freed blocks of up to 32 MB for later ones of the same size; blocks whose sizes differ a little between
    buckets then add up instead of replacing each other. Takes some milliseconds per 100 MB returned, and three times as
    much when the memory is needed again. Does nothing after `keep_large_blocks`.
    """
    trim = None if _keeps else _function("malloc_trim")
    if trim is not None:
        trim(0)


def keep_large_blocks() -> bool:
    """Make the C library keep all freed memory for later use, for the whole process and until it ends.

    Training of large layers on the CPU gets faster when temporary results take many megabytes; the
    process then holds on to the most memory it has ever used. Call it before the first large computation. The
    environment variable DPMODULE_MALLOC=keep, set before the import, does the same.

    Returns:
        True if the C library is glibc; other C libraries ignore the call.

    Example:
        >>> import dpmodule as mx
        >>> kept = mx.util.keep_large_blocks()
    """
    global _keeps
    mallopt = _function("mallopt")
    if mallopt is None:
        return False
    _keeps = bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
    return _keeps


def keeps_blocks() -> bool:
    """Return True if `keep_large_blocks` is in effect."""
    return _keeps


if os.environ.get("DPMODULE_MALLOC") == "keep":
    keep_large_blocks()
