"""Stages of a module's life cycle, and guards that name the missing call."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from ..base import StateError

F = TypeVar("F", bound=Callable[..., Any])


class Stage(IntEnum):
    """Stages of a module's life cycle, in order."""

    CREATED = 0
    BOUND = 1
    INITIALIZED = 2
    READY = 3


class Staged(Protocol):
    """An object with a life-cycle stage."""

    @property
    def stage(self) -> Stage:
        """The stage reached."""


_MISSING = {
    Stage.BOUND: "bind(data_shapes=..., label_shapes=...)",
    Stage.INITIALIZED: "init_params()",
    Stage.READY: "init_optimizer()",
}


def missing_call(module: Staged, method: str) -> StateError:
    """Return the error of a method that was called too early; it names the call that must come first."""
    missing = _MISSING[Stage(module.stage + 1)]
    return StateError(f"{type(module).__name__}.{method}: call {missing} first")


def needs(stage: Stage) -> Callable[[F], F]:
    """Decorate a method that may run once the module has reached a stage.

    Args:
        stage: the required stage, compared with the property `stage` of the module.
    """

    def guard(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Staged, *args: Any, **kwargs: Any) -> Any:
            if self.stage < stage:
                raise missing_call(self, method.__name__.lstrip("_"))
            return method(self, *args, **kwargs)

        return guarded  # type: ignore[return-value]

    return guard


class SingleThreaded(Staged, Protocol):
    """A staged object that one thread at a time may use."""

    in_use: threading.RLock  # held while a thread is inside a method


def concurrent_use(module: SingleThreaded, method: str) -> StateError:
    """Return the error of a method that was called while another thread uses the same module."""
    name = type(module).__name__
    return StateError(
        f"{name}.{method}: another thread is running this {name}, and their results would mix; make one for each "
        "thread, which may share parameters by bind(shared_module=), or use a lock"
    )


def exclusive(stage: Stage = Stage.CREATED) -> Callable[[F], F]:
    """Decorate a method whose results the next call reads, so that only one thread at a time runs such methods.

    Args:
        stage: as in `needs`.
    """

    def guard(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: SingleThreaded, *args: Any, **kwargs: Any) -> Any:
            if not self.in_use.acquire(blocking=False):
                raise concurrent_use(self, method.__name__)
            try:
                if self.stage < stage:
                    raise missing_call(self, method.__name__)
                return method(self, *args, **kwargs)
            finally:
                self.in_use.release()

        return guarded  # type: ignore[return-value]

    return guard
