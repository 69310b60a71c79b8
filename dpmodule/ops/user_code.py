"""Errors of users' own code inside operators: they reach the caller as they are, type and traceback kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["is_users", "user_code"]

_MARK = "_dpmodule_user_code"


@contextmanager
def user_code() -> Iterator[None]:
    """Mark what is raised inside the block, so that nobody above wraps it in an error of this package."""
    try:
        yield
    except BaseException as error:
        setattr(error, _MARK, True)
        raise


def is_users(error: BaseException | None) -> bool:
    """Say whether an error was raised by users' code."""
    return getattr(error, _MARK, False)
