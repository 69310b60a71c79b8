"""Errors of user code inside operators, which keep type and traceback and are MXNetErrors, too."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ..base import MXNetError

_MARK = "_dpmodule_user_code"
_TEXT = "_dpmodule_text"

_KINDS: dict[tuple[type[Exception], type[MXNetError]], Any] = {}


def _joined_class(kind: type[Exception], other: type[MXNetError] = MXNetError) -> Any:
    """Return an error class that inherits from the user's type and ours, or None if Python cannot combine them."""
    if (kind, other) not in _KINDS:
        body: dict[str, Any] = {
            "__module__": kind.__module__,
            "__doc__": kind.__doc__,
            "__reduce__": _reduce,
        }
        if other is not MXNetError:
            body["__str__"] = _text
        try:
            _KINDS[kind, other] = type(kind.__name__, (kind, other), body)
        except TypeError:
            _KINDS[kind, other] = None
    return _KINDS[kind, other]


def _text(error: Exception) -> str:
    return str(getattr(error, _TEXT))


def _as_mxnet_error(error: Exception) -> Exception:
    """Return `error` as an MXNetError, or unchanged if it is one or cannot become one."""
    kind = None if isinstance(error, MXNetError) else _joined_class(type(error))
    if kind is None:
        return error
    return _rebuild_error(kind, error.args, error.__dict__)


def _rebuild_error(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """Return an error without calling its constructor, which may have other parameters."""
    copy: Exception = kind.__new__(kind, *args)
    copy.args = args
    copy.__dict__.update(attributes)
    return copy


def _unpickle(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    return _as_mxnet_error(_rebuild_error(kind, args, attributes))


def _reduce(error: Exception) -> tuple[Any, ...]:
    """Pickle an error of a combined class by the name of the user's class, the only one that can be imported."""
    return _unpickle, (type(error).__bases__[0], error.args, error.__dict__)


def with_message(error: Exception, kind: type[MXNetError], text: str) -> Exception:
    """Return an error with the type and attributes of `error` that is also of `kind` and shows `text`."""
    both = None if isinstance(error, kind) else _joined_class(type(error), kind)
    if both is None:
        return kind(text)
    copy = _rebuild_error(both, error.args, error.__dict__)
    setattr(copy, _TEXT, text)
    return copy


class _UserCode:
    """Context manager of `user_code`; not a generator, which would not let a user's StopIteration through."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        raised = _as_mxnet_error(error) if isinstance(error, Exception) else error
        setattr(raised, _MARK, True)
        if raised is not error:
            raise raised.with_traceback(error.__traceback__) from error


_BLOCK = _UserCode()


def user_code() -> AbstractContextManager[None]:
    """Mark errors raised inside the block, so that callers do not wrap them in an error of this package.

    Programs written for MXNet catch MXNetError around operators that call user code, others catch the errors of their
    own code: an error that leaves the block is both, and its cause is the original error.
    """
    return _BLOCK


def is_user_error(error: BaseException | None) -> bool:
    """Return True if an error was raised by user code."""
    return getattr(error, _MARK, False)
