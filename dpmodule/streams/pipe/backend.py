"""Which of the two cores a pipe uses: the extension's, or the one in Python."""

from __future__ import annotations

from typing import Any

import torch

from ... import native
from ...base import StateError
from .. import nested
from . import control as c
from .layout import DLPACK, DTYPES
from .python_reader import ReaderCore
from .python_writer import Find, WriterCore

__all__ = ["protocol", "reader_core", "writer_core"]


def protocol() -> int:
    """Return what pipes made in this process speak."""
    has_core = native.core is not None and hasattr(native.core, "PipeWriter")
    return c.NATIVE if has_core and _exchange() is not None else c.PYTHON


def _exchange() -> Any:
    """Return torch's table of functions that take tensors apart and make them, None in an older torch."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def _core(control: c.Control) -> Any:
    if control.protocol == c.PYTHON:
        return None
    if protocol() != c.NATIVE:
        why = native.error or "this torch has no __dlpack_c_exchange_api__"
        raise StateError(
            f"the pipe was made by a process that uses the native extension, which this one does not: {why}; "
            "set DPMODULE_NATIVE=0 in both or in neither"
        )
    return native.core


def writer_core(control: c.Control, fd: int, own: c.Signal, other: c.Signal, find: Find) -> Any:
    """Return the hot part of a writer.

    Raises:
        StateError: the pipe needs the extension, and this process has none.
    """
    core = _core(control)
    if core is None:
        return WriterCore(control, own, other, find)
    return core.PipeWriter(_table(), fd, own.read, other.write, find)


def reader_core(control: c.Control, fd: int, own: c.Signal, other: c.Signal) -> Any:
    """Return the hot part of a reader.

    Raises:
        StateError: the pipe needs the extension, and this process has none.
    """
    core = _core(control)
    if core is None:
        return ReaderCore(control, own, other)
    return core.PipeReader(_table(), fd, own.read, other.write)


def _table() -> Any:
    methods = (torch.Tensor, torch.nn.Parameter, torch.Tensor.is_neg, torch.Tensor.is_conj, _plain)
    return _exchange(), DLPACK, DTYPES, methods


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return an ordinary tensor with these values; it shares their memory if that holds them as they are."""
    nested.check_tensor(tensor)
    return tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
