"""Errors of streams, pipes, pools and processes; each is also the built-in type that belongs to its kind.

::

    MXNetError
    ├── StreamStopped                 `put` after `stop`, or a second iteration
    ├── LoopClosedError               the event loop that should be woken is closed
    ├── PoolClosedError               a job for a pool that is not open
    ├── FunctorError                  a C++ functor threw; the text is the exception's
    ├── StructureError [TypeError]    not a nested structure of tensors
    ├── PipeClosed [EOFError]         the other end closed the pipe, all was read
    ├── PipeBroken [ConnectionError]  the other end's process is gone; the text names the side
    └── WorkerDied                    a child process ended without saying why; names worker, pid and signal
"""

from __future__ import annotations

from ..base import MXNetError

__all__ = [
    "FunctorError",
    "LoopClosedError",
    "PipeBroken",
    "PipeClosed",
    "PoolClosedError",
    "StreamStopped",
    "StructureError",
    "WorkerDied",
]


class StreamStopped(MXNetError):
    """A call on a stream that has been stopped or is being iterated already."""


class LoopClosedError(MXNetError):
    """The event loop that a completion should wake is closed."""


class PoolClosedError(MXNetError):
    """A job for a pool that is not open."""


class FunctorError(MXNetError):
    """A C++ functor threw an exception; the text is the exception's."""


class StructureError(MXNetError, TypeError):
    """A value that is not a nested structure of tensors."""


class PipeClosed(MXNetError, EOFError):
    """The other end closed the pipe and everything it sent has been received."""


class PipeBroken(MXNetError, ConnectionError):
    """The process at the other end of a pipe is gone; the text says which side."""


class WorkerDied(MXNetError):
    """A child process ended without an exception of its own; the text names worker, process and signal."""
