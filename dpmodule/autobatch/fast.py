"""Functions in C in front of functions in Python.

A fast function adds its node at once where the native engine has a kernel for the operands, and calls the function in
Python with the same arguments in all other cases: minibatches, matrices, keyword arguments, wrong shapes, another
engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .. import native

__all__ = ["fast", "fast_form", "uses_native"]

F = TypeVar("F", bound=Callable[..., Any])


def uses_native() -> bool:
    """Say whether the native extension is here."""
    return native.core is not None


def fast(name: str, slow: F) -> F:
    """Return the fast form of a function, or the function itself where there is no native extension.

    Args:
        name: what the extension calls the operation.
        slow: the function in Python.
    """
    core = native.core
    if core is None:
        return slow
    found = core.AutobatchFunction(name, slow)
    for each in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(found, each, getattr(slow, each))
    return found  # type: ignore[no-any-return]


def fast_form(slow: F) -> F:
    """Return the fast form of a function that the extension knows by its name; see `fast`."""
    return fast(slow.__name__, slow)
