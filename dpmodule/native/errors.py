"""Errors of pools and buses, which the extension also raises; see `dpmodule.streams.errors`."""

from __future__ import annotations

from ..base import MXNetError


class LoopClosedError(MXNetError):
    """The event loop that a finished job would wake is closed."""


class PoolClosedError(MXNetError):
    """A job was sent to a pool that is closed."""


class FunctorError(MXNetError):
    """A C++ functor threw an exception; the text is the exception's."""
