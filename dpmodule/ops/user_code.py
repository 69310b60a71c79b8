"""Errors of users' own code inside operators: they keep their type and traceback, and are MXNetErrors besides."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ..base import MXNetError

_MARK = "_dpmodule_user_code"
_TEXT = "_dpmodule_text"

_KINDS: dict[tuple[type[Exception], type[MXNetError]], Any] = {}


def _joined_class(kind: type[Exception], other: type[MXNetError] = MXNetError) -> Any:
    """Return the class of errors that are of the user's type and of ours, None if Python cannot join them."""
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
    """Return an MXNetError that is like `error`, which may be `error` itself."""
    kind = None if isinstance(error, MXNetError) else _joined_class(type(error))
    if kind is None:
        return error
    return _rebuild_error(kind, error.args, error.__dict__)


def _rebuild_error(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """Return an error without calling its constructor, which may take other things than it passed on."""
    made: Exception = kind.__new__(kind, *args)
    made.args = args
    made.__dict__.update(attributes)
    return made


def _unpickle(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    return _as_mxnet_error(_rebuild_error(kind, args, attributes))


def _reduce(error: Exception) -> tuple[Any, ...]:
    """Let an error of a joined class be pickled by the name of the user's class, which alone can be looked up."""
    return _unpickle, (type(error).__bases__[0], error.args, error.__dict__)


def with_message(error: Exception, kind: type[MXNetError], text: str) -> Exception:
    """Return an error of the type of `error`, with what it carries, that is of `kind` too and shows another text."""
    both = None if isinstance(error, kind) else _joined_class(type(error), kind)
    if both is None:
        return kind(text)
    made = _rebuild_error(both, error.args, error.__dict__)
    setattr(made, _TEXT, text)
    return made


class _UserCode:
    """The block of `user_code`; no generator, through which a StopIteration of the user's would not get."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        made = _as_mxnet_error(error) if isinstance(error, Exception) else error
        setattr(made, _MARK, True)
        if made is not error:
            raise made.with_traceback(error.__traceback__) from error


_BLOCK = _UserCode()


def user_code() -> AbstractContextManager[None]:
    """Mark what is raised inside the block, so that nobody above wraps it in an error of this package.

    Programs written for MXNet catch MXNetError around operators that call users' code, others catch what their code
    raises: what leaves the block is both, and its cause is what was raised.
    """
    return _BLOCK


def is_user_error(error: BaseException | None) -> bool:
    """Return True if an error was raised by users' code."""
    return getattr(error, _MARK, False)
