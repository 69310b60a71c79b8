"""How far a module has come, and the guard that says which call is missing."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ..base import StateError

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


def missing_call(module: Staged, method: str) -> StateError:
    """Return the error of a method that was called too early; it names the call that has to come first."""
    missing = _MISSING[Stage(module.stage + 1)]
    return StateError(f"{type(module).__name__}.{method}: call {missing} first")


def needs(stage: Stage) -> Callable[[F], F]:
    """Guard a method: it may run once the module has reached a stage.

    Args:
        stage: the stage; the module tells its own through the property `stage`.
    """

    def guard(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Staged, *args: Any, **kwargs: Any) -> Any:
            if self.stage < stage:
                raise missing_call(self, method.__name__.lstrip("_"))
            return method(self, *args, **kwargs)

        return guarded  # type: ignore[return-value]

    return guard


class InUse(Protocol):
    """What runs in one thread at a time."""

    in_use: threading.RLock  # held while a thread is inside a method


def concurrent_use(module: InUse, method: str) -> StateError:
    """Return the error of a method that was called while another thread is inside one of the same module."""
    name = type(module).__name__
    return StateError(
        f"{name}.{method}: another thread is running this {name}, and results would be mixed up; make one for each "
        "thread, which may share parameters by bind(shared_module=), or take turns with a lock"
    )


def exclusive(method: F) -> F:
    """Guard a method that leaves results for the next call: it may run while no other thread is inside such a one."""

    @functools.wraps(method)
    def guarded(self: InUse, *args: Any, **kwargs: Any) -> Any:
        if not self.in_use.acquire(blocking=False):
            raise concurrent_use(self, method.__name__)
        try:
            return method(self, *args, **kwargs)
        finally:
            self.in_use.release()

    return guarded  # type: ignore[return-value]
