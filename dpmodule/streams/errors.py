"""Errors of streams, pipes, pools and processes; each also derives from the matching built-in type.

::

    MXNetError
    ├── StreamStopped                 `put` after `stop`, or a second iteration
    ├── LoopClosedError               the event loop to wake is closed
    ├── PoolClosedError               a job was sent to a pool that is not open
    ├── FunctorError                  a C++ functor threw; the text is the exception's
    ├── StructureError [TypeError]    not a nested structure of tensors
    ├── PipeClosed [EOFError]         the other end closed the pipe, all was read
    ├── PipeBroken [ConnectionError]  the other end's process is gone; the text names the side
    ├── WorkerDied                    a child process ended without an exception; names worker, pid, signal
    ├── WorkerStuck [TimeoutError]    a child process did not answer in time; the text has its Python stack
    ├── WorkerError                   a child process raised an exception that cannot be pickled; the text is its
    │                                 traceback
    └── UnpicklableError [pickle.PicklingError]  something that cannot be sent to another process
"""

from __future__ import annotations

import errno
import pickle

from .._core import lazy
from ..base import FileError, MXNetError
from ..native.errors import FunctorError as FunctorError
from ..native.errors import LoopClosedError as LoopClosedError
from ..native.errors import PoolClosedError as PoolClosedError


def refused(what: str, error: OSError) -> FileError:
    """Return the error for a system call that failed, usually for lack of descriptors or memory."""
    hint = ""
    if error.errno == errno.EMFILE:
        hint = (
            "; this process has reached its limit of open files: close some, or raise the limit (ulimit -n)"
        )
    elif error.errno in (errno.ENOMEM, errno.ENOSPC):
        hint = "; there is no memory for it: send less at a time, or use fewer slots"
    return FileError(error.errno, f"{what}: {error.strerror}{hint}")


class StreamStopped(MXNetError):
    """The stream has been stopped, or is already being iterated."""


class StructureError(MXNetError, TypeError):
    """The value is not a nested structure of tensors."""


class PipeClosed(MXNetError, EOFError):
    """The other end closed the pipe, and everything it sent has been received."""


class PipeBroken(MXNetError, ConnectionError):
    """The process at the other end of a pipe is gone; the message names the side."""


class PipeTimeout(MXNetError, TimeoutError):
    """A pipe had nothing to receive, or no slot to send in, before its timeout."""


class WorkerDied(MXNetError):
    """A child process ended without raising an exception; the text names worker, process and signal.

    Attributes:
        index: number of the worker; None if it has none.
        exitcode: its exit status; minus the signal's number if one killed it, None if unknown.
    """

    index: int | None = None
    name: str | None = None
    pid: int | None = None
    exitcode: int | None = None


class WorkerStuck(MXNetError, TimeoutError):
    """A child process did not answer in time; the text has its work and its Python stack."""


class WorkerError(MXNetError):
    """A child process raised an exception that cannot be pickled; the text has its name and traceback."""


class UnpicklableError(MXNetError, pickle.PicklingError):
    """A function or an argument cannot be sent to another process; the text names it and the remedy."""


class RemoteTraceback(Exception):
    """Traceback of an exception in another process, set as the cause of the exception raised here.

    Args:
        text: the traceback as Python prints it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\n{self.text}"


__all__ = [*lazy.own_names(vars()), "FunctorError", "LoopClosedError", "PoolClosedError"]
lazy.publish(__name__, __all__)
