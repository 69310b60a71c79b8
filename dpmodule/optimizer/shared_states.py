"""`SharedStates`: what an optimizer remembers of its parameters, in memory that several processes have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..base import StateError
from ..context import Context
from ..devices.shared_memory import Segment
from ..executor.sparse_arrays import is_sparse
from ..ndarray import NDArray
from .base import Optimizer
from .counts import CommonCounts

StateKey = tuple[str, int]
"""A parameter's name and the position of the context."""


class SharedStates:
    """States of one optimizer for all parameters of a store, and the counts of their updates.

    Sent through `torch.multiprocessing`, or inherited by a fork, they are the same memory.

    Attributes:
        keys: whose states they are; the counts are in this order.
    """

    __slots__ = ("_counts", "_forms", "_places", "_segments", "keys", "rule")

    def __init__(
        self, optimizer: Optimizer, states: Mapping[StateKey, Any], counts: Mapping[StateKey, int]
    ) -> None:
        check_shareable(optimizer)
        self.rule = type(optimizer).__name__
        self.keys = tuple(states)
        arrays: list[NDArray] = []
        self._forms = [_form(state, arrays, self.rule, key[0]) for key, state in states.items()]
        by_device: dict[torch.device, list[int]] = {}
        for number, array in enumerate(arrays):
            by_device.setdefault(array.raw.device, []).append(number)
        self._segments = [Segment([arrays[n].raw for n in numbers]) for numbers in by_device.values()]
        self._places: list[tuple[int, int, Context]] = [(0, 0, array.context) for array in arrays]
        for which, numbers in enumerate(by_device.values()):
            for position, number in enumerate(numbers):
                self._places[number] = which, position, arrays[number].context
        every = torch.tensor([counts[key] for key in states], dtype=torch.int64)
        self._counts = Segment([every, torch.zeros(1, dtype=torch.int64)])

    @property
    def counts(self) -> torch.Tensor:
        """How many updates each of `keys` has received.

        Shape:
            returns: (P,), int64, the shared memory itself; other processes add to it atomically.
        """
        return self._counts.tensors()[0]

    @property
    def retired(self) -> torch.Tensor:
        """Whether other states have taken the place of these: (1,), int64, the shared memory itself."""
        return self._counts.tensors()[1]

    def states(self) -> dict[StateKey, Any]:
        """Return the states by key, as arrays that are the shared memory."""
        tensors = [segment.tensors() for segment in self._segments]
        arrays = [NDArray(tensors[which][position], ctx, True) for which, position, ctx in self._places]
        return {key: _filled(form, arrays) for key, form in zip(self.keys, self._forms, strict=True)}

    def table(self, keys: Mapping[Any, StateKey]) -> CommonCounts:
        """Return the counts by an optimizer's own numbers of the parameters."""
        position = {key: i for i, key in enumerate(self.keys)}
        return CommonCounts(self.counts, {index: position[key] for index, key in keys.items()})

    def check(self, optimizer: Optimizer, weights: Mapping[StateKey, NDArray]) -> None:
        """Complain unless an optimizer can go on from these states."""
        check_shareable(optimizer)
        missing = [name for name, _ in weights if name not in {name for name, _ in self.keys}]
        if missing:
            raise StateError(
                f"the shared store has no optimizer state of {', '.join(map(repr, missing))}: they were not trained "
                "where init_optimizer() was called before the store was sent"
            )
        if type(optimizer).__name__ != self.rule:
            raise StateError(
                f"the shared store has the states of {self.rule}, not of {type(optimizer).__name__}; all processes "
                "must use one optimizer"
            )
        states = self.states()
        smallest: dict[Any, StateKey] = {}  # states of one type are alike, and large ones take long to make
        for key in sorted(weights, key=lambda key: weights[key].size):
            smallest.setdefault(weights[key].dtype, key)
        for key in smallest.values():
            fresh = outline(optimizer.create_state_multi_precision(key[0], weights[key]))
            if fresh != outline(states[key]):
                raise StateError(
                    f"the shared state of {key[0]!r} is {outline(states[key])}, but this {self.rule} keeps {fresh}: "
                    "give all processes the same options, such as momentum and multi_precision"
                )


def check_shareable(optimizer: Optimizer) -> None:
    """Complain about an optimizer that remembers what cannot be shared."""
    reason = optimizer.unshared()
    if reason is not None:
        raise StateError(
            f"{type(optimizer).__name__} cannot update a shared store: {reason}, which no other process would see"
        )


def outline(state: object) -> str:
    """Describe the arrays of a state in words."""
    if isinstance(state, NDArray):
        return f"an array {state.shape}"
    if isinstance(state, (tuple, list)):
        return f"({', '.join(map(outline, state))})"
    return "a dict" if isinstance(state, dict) else "nothing"


def _form(state: object, arrays: list[NDArray], rule: str, name: str) -> Any:
    """Return a state with numbers in the place of its arrays, which are added to a list."""
    if state is None:
        return None
    if isinstance(state, NDArray) and not is_sparse(state):
        arrays.append(state)
        return len(arrays) - 1
    if isinstance(state, (tuple, list)):
        return type(state)(_form(part, arrays, rule, name) for part in state)
    kind = f"{state.stype} array" if isinstance(state, NDArray) else type(state).__name__
    raise StateError(
        f"{rule} cannot update a shared store: its state of {name!r} holds a {kind}, and only None, dense arrays and "
        "tuples or lists of them can be shared"
    )


def _filled(form: Any, arrays: list[NDArray]) -> Any:
    """Return a state from its form."""
    if form is None:
        return None
    return arrays[form] if isinstance(form, int) else type(form)(_filled(part, arrays) for part in form)
