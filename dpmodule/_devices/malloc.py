"""Settings of the C library's allocator for large freed blocks: return them to the operating system, or keep them.

Both act on the whole process. glibc requests a block above a threshold, at most 32 MB, from the operating system if its
heap has no room for it, and returns it when it is freed; other freed blocks stay in the heap. Fresh pages cost about as
much time as filling them with numbers; kept blocks cost memory.

Source: glibc's ``mallopt`` and ``malloc_trim``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Numbers of glibc's settings, from its malloc.h."""

_SET_BY_USER = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_"
"""Environment variables of glibc. A process that has one keeps its settings."""

_MAX_SETTING, _MAX_MMAP_THRESHOLD, _DEFAULT_MMAP_MAX = 2**31 - 1, 2**25, 2**16
_MIN_RESULT_BYTES = 2**19
"""Networks with smaller results and gradients leave the allocator alone."""

_keeps = False
_kept_bytes = 0


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


def keep_freed(size: int) -> None:
    """Make the C library keep as much freed memory as a network needs in every batch.

    glibc returns a freed block of more than 32 MB, and the free memory at the heap's end above twice the largest block
    returned. A large network gets fresh pages in every batch then. This raises the second limit, and extends the heap:
    its free end serves blocks of every size, and takes no memory before it is written.

    Args:
        size: bytes of all results and gradients of a network. A size below the largest so far changes nothing.
    """
    global _kept_bytes
    mallopt = _function("mallopt")
    if _keeps or mallopt is None or size < _MIN_RESULT_BYTES or size <= _kept_bytes:
        return
    _kept_bytes = size
    if any(name in os.environ for name in _SET_BY_USER):
        return
    size = min(max(size, _MAX_MMAP_THRESHOLD), _MAX_SETTING // 8)
    mallopt(_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD)
    mallopt(_TRIM_THRESHOLD, 8 * size)
    mallopt(_MMAP_MAX, 0)
    with suppress(RuntimeError):  # the process has a limit
        torch.empty(6 * size, dtype=torch.uint8)
    mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)


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
    _keeps = bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _MAX_SETTING))
    return _keeps


def keeps_blocks() -> bool:
    """Return True if `keep_large_blocks` is in effect."""
    return _keeps


if os.environ.get("DPMODULE_MALLOC") == "keep":
    keep_large_blocks()
