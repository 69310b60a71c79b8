"""Recomputing results in backward instead of keeping them from forward (gradient checkpointing).

A step wrapped in `Recomputed` keeps only its inputs. If a later operator saves one of its results for backward, a
reference to the call is saved instead; the first access runs the call again. Inputs that are such results are replaced
by references, too.

Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._core import torch_private


class _RecomputedCall:
    """A call of a step that can be repeated."""

    __slots__ = ("_repeated", "_fixed", "_function", "_generator", "_inputs", "_state", "_wants", "number")

    def __init__(
        self,
        function: Callable[..., Any],
        fixed: tuple[Any, ...],
        inputs: list[torch.Tensor | _Result],
        wants: list[bool],
        number: int,
        random: bool,
    ) -> None:
        self._function, self._fixed, self._inputs, self._wants = function, fixed, inputs, wants
        self.number = number
        self._generator: torch.Generator | None = fixed[1].generator if random else None
        self._state = None if self._generator is None else self._generator.get_state()
        self._repeated: tuple[list[torch.Tensor], tuple[Any, ...]] | None = None

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Call the step and return its results."""
        result = self._function(*self._fixed, *tensors)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def results(self) -> tuple[Any, ...]:
        """Return the results with their history, recomputed if necessary."""
        waiting, needed = [self], dict[int, _RecomputedCall]()
        while waiting:  # a loop, since a long chain would exceed the recursion limit
            call = waiting.pop()
            if call._repeated is None and call.number not in needed:
                needed[call.number] = call
                waiting += [value[0] for value in call._inputs if isinstance(value, tuple)]
        for number in sorted(needed):
            needed[number]._repeat()
        return self._repeated[1]  # type: ignore[index]

    def _repeat(self) -> None:
        """Recompute the results from the inputs, all of which are available."""
        tensors = []
        for value, wanted in zip(self._inputs, self._wants):
            tensor = value[0].results()[value[1]] if isinstance(value, tuple) else value
            tensors.append(tensor.detach().requires_grad_(wanted))
        now = None if self._generator is None else self._generator.get_state()
        try:
            if self._generator is not None and self._state is not None:
                self._generator.set_state(self._state)
            with torch.enable_grad():
                self._repeated = tensors, self.run(tensors)
        finally:
            if self._generator is not None and now is not None:
                self._generator.set_state(now)

    def gradients(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of the inputs, and drop the results."""
        results = self.results()
        tensors = self._repeated[0] if self._repeated is not None else []
        pairs = [(r, g) for r, g in zip(results, grads) if g is not None and r.requires_grad]
        leaves = [t for t in tensors if t.requires_grad]
        self._repeated = None
        if not pairs or not leaves:
            return [None] * len(tensors)
        grads_of_leaves = iter(torch_private.run_backward(*zip(*pairs), inputs=tuple(leaves)))
        return [next(grads_of_leaves) if t.requires_grad else None for t in tensors]


_Result = tuple[_RecomputedCall, int]
"""A call, and the index of one of its results."""


class _Recomputed(torch.autograd.Function):
    """Runs a call without history; backward repeats it with history."""

    @staticmethod
    def forward(ctx: Any, call: _RecomputedCall, *tensors: torch.Tensor) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        ctx.call = call
        return call.run(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return (None, *ctx.call.gradients(grads))


class _SavedCalls:
    """The calls of a run that made each tensor."""

    def __init__(self) -> None:
        self._calls: dict[Any, tuple[weakref.ref[torch.Tensor], _Result]] = {}
        self._count = 0

    @staticmethod
    def _key(tensor: torch.Tensor) -> Any:
        return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

    def find(self, tensor: torch.Tensor) -> _Result | None:
        """Return the call that made a tensor; None if the tensor must be kept.

        Address, shape and stride identify a result: while it lives, only a tensor of the same values can share them.
        """
        entry = self._calls.get(self._key(tensor))
        return None if entry is None or entry[0]() is None else entry[1]

    def run(self, function: Callable[..., Any], fixed: tuple[Any, ...], tensors: Any, random: bool) -> Any:
        """Run a step, and record the call of its results."""
        self._count += 1
        inputs = [self.find(t) or t.detach() for t in tensors]
        call = _RecomputedCall(
            function, fixed, inputs, [t.requires_grad for t in tensors], self._count, random
        )
        results: tuple[Any, ...] = _Recomputed.apply(call, *tensors)  # type: ignore[no-untyped-call]
        for i, result in enumerate(results):
            if isinstance(result, torch.Tensor) and result.requires_grad:
                self._calls[self._key(result)] = weakref.ref(result), (call, i)
        return results if len(results) > 1 else results[0]

    def pack(self, tensor: torch.Tensor) -> Any:
        """Return the call to save in place of a tensor, or the tensor."""
        return self.find(tensor) or tensor

    @staticmethod
    def unpack(kept: Any) -> torch.Tensor:
        """Return the saved tensor, or recompute it."""
        if isinstance(kept, torch.Tensor):
            return kept
        result: torch.Tensor = kept[0].results()[kept[1]].detach()
        return result


class _CurrentCalls(threading.local):
    calls: _SavedCalls | None = None


_current = _CurrentCalls()


def mirrored(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs `function`, so that backward recomputes the results of its `Recomputed` steps."""

    def run(*arguments: Any) -> Any:
        before, _current.calls = _current.calls, _SavedCalls()
        try:
            with torch.autograd.graph.saved_tensors_hooks(_current.calls.pack, _current.calls.unpack):
                return function(*arguments)
        finally:
            _current.calls = before

    return run


class Recomputed:
    """A step's function whose results backward recomputes."""

    def __init__(self, function: Callable[..., Any], takes_env: bool, random: bool) -> None:
        self._function, self._leading, self._random = function, 2 * takes_env, random
        self.__name__ = getattr(function, "__name__", "run")

    def __call__(self, *arguments: Any) -> Any:
        """Run the function; without recomputation outside `mirrored` and if nothing is recorded."""
        calls = _current.calls
        tensors = arguments[self._leading :]
        if calls is None or not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return self._function(*arguments)
        return calls.run(self._function, arguments[: self._leading], tensors, self._random)
