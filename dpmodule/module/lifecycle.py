"""How far a module has come, and the guard that says which call is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ..base import StateError

__all__ = ["Stage", "Staged", "needs", "too_early"]

F = TypeVar("F", bound=Callable[..., Any])


class Stage(IntEnum):
    """Steps of a module's life, in order."""

    CREATED = 0
    BOUND = 1
    INITIALIZED = 2
    READY = 3


class Staged(Protocol):
    """What has a life in these steps."""

    @property
    def stage(self) -> Stage:
        """How far it has come."""


_MISSING = {
    Stage.BOUND: "bind(data_shapes=..., label_shapes=...)",
    Stage.INITIALIZED: "init_params()",
    Stage.READY: "init_optimizer()",
}


def too_early(module: Staged, method: str) -> StateError:
    """Return the error of a method that was called too early; it names the call that has to come first."""
    missing = _MISSING[Stage(module.stage + 1)]
    return StateError(f"{type(module).__name__}.{method}: call {missing} first")


def needs(stage: Stage) -> Callable[[F], F]:
    """Guard a method: it may run once the module has reached a stage.

    Args:
        stage: the stage; the module tells its own through the property `stage`.

    Raises:
        StateError: (in the method) names the call that has to come first.
    """

    def guard(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Staged, *args: Any, **kwargs: Any) -> Any:
            if self.stage < stage:
                raise too_early(self, method.__name__.lstrip("_"))
            return method(self, *args, **kwargs)

        return guarded  # type: ignore[return-value]

    return guard
