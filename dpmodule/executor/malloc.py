"""What the C library does with large freed blocks: give them back to the operating system now, or keep them for good.

Both act on the whole process. glibc takes every block above a bound, at most 32 MB, from the operating system and
gives it back when it is freed; below that it keeps what is freed in its heap. Fresh pages cost about as much time as
it takes to fill them with numbers; kept ones cost memory.

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
"""Bytes of the block that glibc learns from: 32 MB are beyond what it learns."""

_MUCH = 2**22
"""Bytes of results from which a network is worth it."""

_keeps = _threshold_raised = False


@cache
def _function(name: str) -> Callable[..., int] | None:
    """Return a function of glibc's; None with other C libraries."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  others have functions of these names that do nothing
        found: Any = getattr(library, name)
    except (AttributeError, OSError, TypeError):
        return None
    return found  # type: ignore[no-any-return]


def raise_mmap_threshold(size: int) -> None:
    """Let the C library keep freed blocks of up to 32 MB in its heap from now on, if there is work for them.

    glibc learns from every block of that size that is freed: blocks like it stay in the heap, and so does free
    memory of twice its size at the heap's end. Until it has seen a large one, a network of many middling results
    has the end of the heap taken away and given back in every batch. A block that nobody writes teaches it at once.

    Args:
        size: bytes of all results of a network; a small one changes nothing.
    """
    global _threshold_raised
    if not _threshold_raised and size >= _MUCH and _function("malloc_trim") is not None:
        _threshold_raised = True
        torch.empty(_BLOCK_BYTES, dtype=torch.uint8)


def trim_heap() -> None:
    """Return the free parts of the C library's heap to the operating system, where the library can do that.

    glibc keeps freed blocks of up to 32 MB for later ones of the same size; blocks that differ a little from one
    bucket to the next then add up instead of taking each other's place. Takes some milliseconds per 100 MB
    returned, and three times as much when they are needed again. Does nothing after `keep_large_blocks`.
    """
    trim = None if _keeps else _function("malloc_trim")
    if trim is not None:
        trim(0)


def keep_large_blocks() -> bool:
    """Let the C library keep all freed memory for later use, for the whole process and until it ends.

    Training of large layers on the CPU gets faster where temporary results of many megabytes come and go; the
    process then holds on to the most memory it has ever used. Call it before the first large computation. The
    environment variable DPMODULE_MALLOC=keep, set before the import, does the same.

    Returns:
        Whether the C library is glibc, which can do that. With others nothing changes.

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
    """Say whether `keep_large_blocks` is in force."""
    return _keeps


if os.environ.get("DPMODULE_MALLOC") == "keep":
    keep_large_blocks()
