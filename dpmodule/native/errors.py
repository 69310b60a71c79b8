"""Errors of pools and buses, which the extension raises too; `dpmodule.streams.errors` draws the whole family."""

from __future__ import annotations

from ..base import MXNetError


class LoopClosedError(MXNetError):
    """The event loop that a completion should wake is closed."""


class PoolClosedError(MXNetError):
    """A job for a pool that is not open."""


class FunctorError(MXNetError):
    """A C++ functor threw an exception; the text is the exception's."""
