"""`StringHandle`: bytes shared between Python, C++ and other processes without copies."""

from __future__ import annotations

import weakref
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import native
from .._devices.shared_memory import shared_bytes
from ..native import string_handle as stand_in

_BY_VALUE_BYTES = 1 << 14
"""Up to this size, what is not in shared memory goes to other processes by value: a descriptor costs more."""

if TYPE_CHECKING or native.core is None:
    from ..native.string_handle import StringHandle as StringHandle
else:
    StringHandle = native.core.StringHandle
    StringHandle.__doc__ = stand_in.StringHandle.__doc__


def _reduce(handle: StringHandle) -> tuple[Any, ...]:
    """Say how multiprocessing passes a handle to another process."""
    source: Any = handle.source
    if isinstance(source, torch.Tensor) and source.is_shared():  # type: ignore[no-untyped-call]
        return StringHandle, (source.detach().reshape(-1)[handle.offset : handle.offset + len(handle)],)
    if len(handle) <= _BY_VALUE_BYTES:
        return StringHandle, (bytes(handle),)
    shared = shared_bytes("StringHandle", len(handle))
    shared.numpy()[:] = np.frombuffer(memoryview(handle), np.uint8)
    process: Any = get_spawning_popen()
    if process is not None:  # it passes on the descriptor itself, later
        weakref.finalize(process, _let_go, shared)
    return StringHandle, (shared,)


def _let_go(memory: torch.Tensor) -> None:
    pass


ForkingPickler.register(StringHandle, _reduce)
