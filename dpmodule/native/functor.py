"""Functors in Python: what stands in for those in C++ where there is no extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import ArgumentError


class NoopFunctor:
    """A job that does nothing, for measuring; its result is None."""

    reentrant = True

    def run(self) -> None:
        """Do nothing."""

    def __dpmodule_functor__(self) -> NoopFunctor:
        return self


def work_of(functor: Any) -> tuple[Any, Callable[[], Any]]:
    """Return a functor in Python, and what a thread has to call for it.

    Args:
        functor: an object whose method ``__dpmodule_functor__()`` returns one with a method `run`.
    """
    convert = getattr(type(functor), "__dpmodule_functor__", None)
    found = functor if convert is None else convert(functor)
    run = getattr(found, "run", None)
    if callable(run):
        return found, run
    if convert is not None and callable(found):
        return found, found
    if type(found).__name__ == "PyCapsule":
        raise ArgumentError(
            f"{functor!r} is a functor in C++, which runs only with the native extension; "
            "`dpmodule info` says why it is not active"
        )
    raise ArgumentError(
        "expected a functor, that is an object whose __dpmodule_functor__() returns one, "
        f"got {type(functor).__name__}; for a Python function use asyncio.to_thread"
    )
