"""How far a module has come, and the guard that says which call is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from ..base import StateError

__all__ = ["Stage", "needs"]

F = TypeVar("F", bound=Callable[..., Any])


class Stage(IntEnum):
    """Steps of a module's life, in order."""

    CREATED = 0
    BOUND = 1
    INITIALIZED = 2
    READY = 3


_MISSING = {
    Stage.BOUND: "bind(data_shapes=..., label_shapes=...)",
    Stage.INITIALIZED: "init_params()",
    Stage.READY: "init_optimizer()",
}


def needs(stage: Stage) -> Callable[[F], F]:
    """Guard a method: it may run once the module has reached a stage.

    Args:
        stage: the stage; the module tells its own through the property `stage`.

    Raises:
        StateError: (in the method) names the call that has to come first.
    """

    def guard(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
            have = self.stage
            if have < stage:
                missing = _MISSING[Stage(have + 1)]
                raise StateError(f"{type(self).__name__}.{method.__name__.lstrip('_')}: call {missing} first")
            return method(self, *args, **kwargs)

        return guarded  # type: ignore[return-value]

    return guard
