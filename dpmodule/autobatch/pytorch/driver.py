"""The event loop of asynchronous programs: all that wait for a value get it from one computation."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from typing import Any, cast

import torch

from ..errors import StateError

_TOGETHER = (
    "an asynchronous program of autobatch may wait for tensors and for other coroutines only; do input and output"
    " before or after it"
)


_DEVICES = ("cpu", "cuda")
_Modes = tuple[bool, tuple[tuple[str, bool, torch.dtype], ...]]
_modes: contextvars.ContextVar[_Modes] = contextvars.ContextVar("modes")


def _modes_of_now() -> _Modes:
    """Return the modes of torch that a program sets with ``with``: gradients and automatic casts."""
    casts = torch._C._is_any_autocast_enabled() and tuple(
        (each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in _DEVICES
    )
    return torch.is_grad_enabled(), casts or ()


def _set_modes(modes: _Modes) -> None:
    has_grad, casts = modes
    torch.set_grad_enabled(has_grad)
    if not casts and torch._C._is_any_autocast_enabled():
        for each in _DEVICES:
            torch.set_autocast_enabled(each, False)
    for each, is_enabled, dtype in casts:
        torch.set_autocast_enabled(each, is_enabled)
        torch.set_autocast_dtype(each, dtype)


class ProgramLoop:
    """An event loop without time, input or output.

    It runs inside another loop too, as in a notebook.

    Args:
        compute: computes a list of values together.
    """

    def __init__(self, compute: Callable[[Sequence[Any]], None]) -> None:
        self._compute = compute
        self._outer = _modes_of_now()
        self._ready: deque[asyncio.Handle] = deque()
        self._waiting: list[tuple[asyncio.Future[None], Any]] = []

    def run(self, programs: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines to their ends; return their results.

        Raises:
            StateError: a program waits for something that is not a tensor or a coroutine.
            Exception: the first error of a program; the others are cancelled.
        """
        outer = asyncio._get_running_loop()
        outer_task = None if outer is None else asyncio.current_task(outer)
        if outer is not None and outer_task is not None:
            # from Python 3.14 on, a thread has one current task, not one for each loop
            asyncio.tasks._leave_task(outer, outer_task)
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, self))
        tasks: list[asyncio.Task[Any]] = [self.create_task(each) for each in programs]
        try:
            self._run_until_idle(tasks)
            for task in tasks:
                if task.done() and task.exception() is not None:
                    task.result()
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            self._run_ready()
            _set_modes(self._outer)
            asyncio._set_running_loop(outer)
            if outer is not None and outer_task is not None:
                asyncio.tasks._enter_task(outer, outer_task)

    def wait_for(self, value: Any) -> Iterator[Any]:
        """Wait until a value is computed."""
        if torch.is_inference_mode_enabled():
            raise StateError(
                "autobatch.map: a program waits in torch.inference_mode, which all programs share; use torch.no_grad"
            )
        future = self.create_future()
        self._waiting.append((future, value))
        yield from future

    def _run_until_idle(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        self._run_ready()
        while not all(task.done() for task in tasks):
            if any(task.done() and task.exception() is not None for task in tasks):
                return
            waiting, self._waiting = [each for each in self._waiting if not each[0].done()], []
            if not waiting:
                raise StateError(f"autobatch.map: {_TOGETHER}")
            self._compute([value for _, value in waiting])
            for future, _ in waiting:
                future.set_result(None)
            self._run_ready()

    def _run_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                self._run_in_its_modes(handle)

    def _run_in_its_modes(self, handle: asyncio.Handle) -> None:
        """Run a part of a program in the modes in which it stopped to wait."""
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]
        modes = context.get(_modes, self._outer)
        if modes is not self._outer:
            _set_modes(modes)
        handle._run()
        after = _modes_of_now()
        if after != modes:
            context.run(_modes.set, after)
        if after != self._outer:
            _set_modes(self._outer)

    # what tasks and futures call

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, cast(asyncio.AbstractEventLoop, self), context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=cast(asyncio.AbstractEventLoop, self), **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore errors of tasks that nothing waits for, as their program has ended."""

    def get_debug(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        raise StateError(f"autobatch.map: {_TOGETHER} (asked for {name})")


def make_tensors_awaitable() -> None:
    """Let ``await tensor`` return the tensor, for programs that run without recording.

    This lasts: to change a class again and again makes Python forget what it knows of its attributes.
    """
    if not hasattr(torch.Tensor, "__await__"):
        torch.Tensor.__await__ = _ready  # type: ignore[attr-defined]


def _ready(tensor: torch.Tensor) -> Generator[Any, None, torch.Tensor]:
    yield from ()
    return tensor
