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
from ..native import string_handle as python_handle

_BY_VALUE_BYTES = 1 << 14
"""Handles of up to this size outside of shared memory are sent by value: a descriptor costs more."""

if TYPE_CHECKING or native.core is None:
    from ..native.string_handle import StringHandle as StringHandle
else:
    StringHandle = native.core.StringHandle
    StringHandle.__doc__ = python_handle.StringHandle.__doc__


def _reduce(handle: StringHandle) -> tuple[Any, ...]:
    """Return the arguments with which multiprocessing rebuilds a handle in another process."""
    source: Any = handle.source
    if isinstance(source, torch.Tensor) and source.is_shared():  # type: ignore[no-untyped-call]
        return StringHandle, (source.detach().reshape(-1)[handle.offset : handle.offset + len(handle)],)
    if len(handle) <= _BY_VALUE_BYTES:
        return StringHandle, (bytes(handle),)
    shared = shared_bytes("StringHandle", len(handle))
    shared.numpy()[:] = np.frombuffer(memoryview(handle), np.uint8)
    process: Any = get_spawning_popen()
    if process is not None:  # it sends the descriptor later
        weakref.finalize(process, _keep_alive, shared)
    return StringHandle, (shared,)


def _keep_alive(memory: torch.Tensor) -> None:
    pass


ForkingPickler.register(StringHandle, _reduce)
