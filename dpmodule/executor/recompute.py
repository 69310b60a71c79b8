"""Results that are computed again in backward instead of being kept from forward.

A step wrapped in `Recomputed` keeps its inputs only. What later operators save of its results for their own backward
is replaced by a note of the call that made it; the first one to ask runs the call again. Inputs that are such results
themselves are not kept either, but noted likewise.

Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..compat import torch_private


class _RecomputedCall:
    """One call of a step, which can be repeated."""

    __slots__ = ("_again", "_fixed", "_function", "_generator", "_inputs", "_state", "_wants", "number")

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
        self._again: tuple[list[torch.Tensor], tuple[Any, ...]] | None = None

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Call the step and return its results."""
        found = self._function(*self._fixed, *tensors)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    def results(self) -> tuple[Any, ...]:
        """Return the results with their history, computed again unless they are at hand."""
        waiting, needed = [self], dict[int, _RecomputedCall]()
        while waiting:  # not by recursion: a long chain would be too deep
            call = waiting.pop()
            if call._again is None and call.number not in needed:
                needed[call.number] = call
                waiting += [each[0] for each in call._inputs if isinstance(each, tuple)]
        for number in sorted(needed):
            needed[number]._repeat()
        if self._again is None:
            self._repeat()
        return self._again[1]  # type: ignore[index]

    def _repeat(self) -> None:
        """Compute the results again from the inputs, all of which are at hand."""
        tensors = []
        for value, wanted in zip(self._inputs, self._wants):
            tensor = value[0].results()[value[1]] if isinstance(value, tuple) else value
            tensors.append(tensor.detach().requires_grad_(wanted))
        now = None if self._generator is None else self._generator.get_state()
        try:
            if self._generator is not None and self._state is not None:
                self._generator.set_state(self._state)
            with torch.enable_grad():
                self._again = tensors, self.run(tensors)
        finally:
            if self._generator is not None and now is not None:
                self._generator.set_state(now)

    def gradients(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of the inputs, and forget the results."""
        results = self.results()
        tensors = self._again[0] if self._again is not None else []
        pairs = [(r, g) for r, g in zip(results, grads) if g is not None and r.requires_grad]
        leaves = [t for t in tensors if t.requires_grad]
        self._again = None
        if not pairs or not leaves:
            return [None] * len(tensors)
        found = iter(torch_private.run_backward(*zip(*pairs), inputs=tuple(leaves)))
        return [next(found) if t.requires_grad else None for t in tensors]


_Result = tuple[_RecomputedCall, int]
"""A call, and which of its results."""


class _Recomputed(torch.autograd.Function):
    """Runs a call without history; backward runs it again with one."""

    @staticmethod
    def forward(ctx: Any, call: _RecomputedCall, *tensors: torch.Tensor) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        ctx.call = call
        return call.run(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return (None, *ctx.call.gradients(grads))


class _SavedCalls:
    """Which calls of a run have made which tensors."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[weakref.ref[torch.Tensor], _Result]] = {}
        self._count = 0

    @staticmethod
    def _key(tensor: torch.Tensor) -> Any:
        return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

    def find(self, tensor: torch.Tensor) -> _Result | None:
        """Return what made a tensor, None if it is to be kept.

        Memory and form tell: while the result lives nobody else has them, unless it is the same numbers.
        """
        found = self._made.get(self._key(tensor))
        return None if found is None or found[0]() is None else found[1]

    def run(self, function: Callable[..., Any], fixed: tuple[Any, ...], tensors: Any, random: bool) -> Any:
        """Run a step, and note its results."""
        self._count += 1
        inputs = [self.find(t) or t.detach() for t in tensors]
        call = _RecomputedCall(
            function, fixed, inputs, [t.requires_grad for t in tensors], self._count, random
        )
        found: tuple[Any, ...] = _Recomputed.apply(call, *tensors)  # type: ignore[no-untyped-call]
        for i, result in enumerate(found):
            if isinstance(result, torch.Tensor) and result.requires_grad:
                self._made[self._key(result)] = weakref.ref(result), (call, i)
        return found if len(found) > 1 else found[0]

    def pack(self, tensor: torch.Tensor) -> Any:
        """Return what to keep in place of a tensor that an operator saves."""
        return self.find(tensor) or tensor

    @staticmethod
    def unpack(kept: Any) -> torch.Tensor:
        """Return the tensor."""
        if isinstance(kept, torch.Tensor):
            return kept
        result: torch.Tensor = kept[0].results()[kept[1]].detach()
        return result


class _CurrentCalls(threading.local):
    notes: _SavedCalls | None = None


_current = _CurrentCalls()


@contextmanager
def mirroring() -> Iterator[None]:
    """Let the steps that say so be computed again in backward, of what runs inside the block."""
    before, _current.notes = _current.notes, _SavedCalls()
    try:
        with torch.autograd.graph.saved_tensors_hooks(_current.notes.pack, _current.notes.unpack):
            yield
    finally:
        _current.notes = before


def mirrored(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is run inside `mirroring`."""

    def run(*arguments: Any) -> Any:
        with mirroring():
            return function(*arguments)

    return run


class Recomputed:
    """A step's function whose results backward computes again."""

    def __init__(self, function: Callable[..., Any], takes_env: bool, random: bool) -> None:
        self._function, self._leading, self._random = function, 2 * takes_env, random
        self.__name__ = getattr(function, "__name__", "run")

    def __call__(self, *arguments: Any) -> Any:
        """Run the function; outside `mirroring`, and where nothing is recorded, as it is."""
        notes = _current.notes
        tensors = arguments[self._leading :]
        if notes is None or not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return self._function(*arguments)
        return notes.run(self._function, arguments[: self._leading], tensors, self._random)
