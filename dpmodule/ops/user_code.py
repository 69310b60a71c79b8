"""Errors of users' own code inside operators: they keep their type and traceback, and are MXNetErrors besides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..base import MXNetError

__all__ = ["is_users", "user_code"]

_MARK = "_dpmodule_user_code"


_KINDS: dict[type[Exception], Any] = {}


def _both(kind: type[Exception]) -> Any:
    """Return the class of errors that are of the user's type and MXNetErrors, None if Python cannot join them."""
    if kind not in _KINDS:
        body = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        try:
            _KINDS[kind] = type(kind.__name__, (kind, MXNetError), body)
        except TypeError:
            _KINDS[kind] = None
    return _KINDS[kind]


def _joined(error: Exception) -> Exception:
    """Return an MXNetError that is like `error`, which may be `error` itself."""
    kind = None if isinstance(error, MXNetError) else _both(type(error))
    if kind is None:
        return error
    made: Exception = kind.__new__(kind, *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    return made


@contextmanager
def user_code() -> Iterator[None]:
    """Mark what is raised inside the block, so that nobody above wraps it in an error of this package.

    Programs written for MXNet catch MXNetError around operators that call users' code, others catch what their code
    raises: what leaves the block is both, and its cause is what was raised.
    """
    try:
        yield
    except Exception as error:
        made = _joined(error)
        setattr(made, _MARK, True)
        if made is error:
            raise
        raise made.with_traceback(error.__traceback__) from error
    except BaseException as error:
        setattr(error, _MARK, True)
        raise


def is_users(error: BaseException | None) -> bool:
    """Say whether an error was raised by users' code."""
    return getattr(error, _MARK, False)
