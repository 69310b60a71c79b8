"""Exceptions on their way from a child process to its parent."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass

from .errors import RemoteTraceback, WorkerError


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An exception in a form that always can be sent.

    Args:
        pickled: the exception, None if it cannot be pickled and read again.
    """

    pickled: bytes | None
    name: str
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, skip: int = 0) -> RemoteError:
        """Describe an exception.

        Args:
            skip: how many outermost calls to leave out of the traceback.
        """
        trace = error.__traceback__
        for _ in range(skip):
            trace = trace.tb_next if trace is not None else None
        text = "".join(traceback.format_exception(type(error), error, trace))
        return cls(_pickled(error), type(error).__qualname__, _text(error), text)

    def restore(self, who: str) -> BaseException:
        """Return the exception, its cause being the traceback it had; a WorkerError where that is impossible."""
        error: BaseException | None = None
        if self.pickled is not None:
            try:
                error = pickle.loads(self.pickled)
            except Exception:  # of its own code, which may depend on modules that only the child has
                error = None
        if not isinstance(error, BaseException):
            error = WorkerError(f"{who} raised {self.name}, which cannot be pickled: {self.text}")
        error.__cause__ = RemoteTraceback(self.trace)
        return error


def _pickled(error: BaseException) -> bytes | None:
    """Return the pickle of an exception if it gives the exception again."""
    try:
        data = pickle.dumps(error)
        again = pickle.loads(data)
    except Exception:  # whatever its own code raises
        return None
    return data if type(again) is type(error) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # whatever its own code raises
        return "its text cannot be made"
