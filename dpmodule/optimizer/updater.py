"""`Updater`, which applies an optimizer to parameters by index, and states shared by processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from .._devices.shared_memory import Segment
from ..base import ArgumentError, FileFormatError, StateError
from ..context import Context
from ..executor.sparse_arrays import is_sparse
from ..ndarray import NDArray
from .base import Optimizer
from .group import Key, KeyOrList, SharedCounts, UpdatePlan, are_dense
from .grouped import GroupedOptimizer

_MOST_PLANS = 64


class Updater:
    """An optimizer with the states of its parameters.

    Attributes:
        optimizer: the rule.
        states: state by index: None, an NDArray or a tuple, as returned by `create_state`.
        states_synced: by index, False if a loaded state has yet to be copied to its parameter's context.
        shared: states shared with other processes, or None.

    Example:
        >>> update = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=0.1))
        >>> weight = mx.nd.ones((2,))
        >>> update(0, mx.nd.ones((2,)), weight)
        >>> weight.asnumpy()
        array([0.9, 0.9], dtype=float32)

    Source: MXNet 1.9.1 `optimizer.Updater`.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.states: dict[Any, Any] = {}
        self.states_synced: dict[Any, bool] = {}
        self.aggregate_updates = optimizer.aggregate_num > 0
        self._plans: dict[tuple[Any, ...], UpdatePlan] = {}
        self.shared: SharedStates | None = None
        self._replaced: Any = None

    def __call__(self, index: KeyOrList, grad: Any, weight: Any) -> None:
        """Update one parameter, or a list of them, in place."""
        if isinstance(index, (list, tuple)):
            self.update_all(index, grad, weight)
            return
        self._check_replaced()
        self.optimizer.use_device(weight.context.device_id)
        state = self.state_of(index, weight)
        self.optimizer.update_multi_precision(index, weight, grad, state)

    def update_all(
        self, indices: Sequence[Any], grads: Sequence[NDArray], weights: Sequence[NDArray]
    ) -> None:
        """Update parameters of one device in place, grouped by learning rate and dtype.

        The grouping is reused for the next batch unless arrays, states or multipliers have changed. The gradients may
        be different tensors each time.

        Raises:
            ArgumentError: the lists have different lengths.
            ShapeError: the shapes of a gradient and its parameter differ.
            DTypeError: the dtypes or devices of a gradient and its parameter differ.
            StateError: the shared states were replaced, or a parameter has none.
        """
        if not indices:
            return
        optimizer = self.optimizer
        if self._replaced is not None:
            self._check_replaced()
        optimizer.use_device(weights[0].context.device_id)
        if not isinstance(optimizer, GroupedOptimizer) or not optimizer.is_grouped:
            self._update_each(indices, grads, weights)
            return
        if not are_dense([*weights, *grads]):
            indices, grads, weights = self._update_sparse(optimizer, indices, grads, weights)
            if not indices:
                return
        key = tuple(indices)
        plan = self._plans.get(key)
        if plan is None or not plan.is_current(optimizer, weights, self.states):
            plan = self._plan(optimizer, key, weights)
        plan.run(grads)

    def _check_replaced(self) -> None:
        """Raise an error if the shared states were replaced."""
        if self._replaced is not None and self._replaced[0]:
            raise StateError(
                "the store's shared optimizer states were replaced by init_optimizer(force_init=True) in the process "
                "that shared it; send the store again, bind to it and call init_optimizer()"
            )

    def _plan(
        self, optimizer: GroupedOptimizer, key: tuple[Any, ...], weights: Sequence[NDArray]
    ) -> UpdatePlan:
        _check_lengths(key, weights, "weights")
        states = [self.state_of(index, weight) for index, weight in zip(key, weights)]
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        plan = self._plans[key] = UpdatePlan(optimizer, key, weights, states, optimizer.multi_precision)
        return plan

    def _update_sparse(
        self,
        optimizer: GroupedOptimizer,
        indices: Sequence[Any],
        grads: Sequence[NDArray],
        weights: Sequence[NDArray],
    ) -> tuple[list[Any], ...]:
        """Update parameters that are sparse or have sparse gradients, and return the others.

        Returns:
            Indices, gradients and weights of the others; empty if the order of parameters matters.
        """
        _check_lengths(indices, weights, "weights")
        _check_lengths(indices, grads, "gradients")
        parts: dict[bool, list[tuple[Any, NDArray, NDArray]]] = {True: [], False: []}
        for one in zip(indices, grads, weights):
            parts[not optimizer.in_order and are_dense(one[1:])].append(one)
        self._update_each(*map(list, zip(*parts[False])))
        found = tuple(map(list, zip(*parts[True])))
        return found or ([], [], [])

    def _update_each(
        self, indices: Sequence[Any], grads: Sequence[NDArray], weights: Sequence[NDArray]
    ) -> None:
        """Call an optimizer with its own `update`, with tuples if `aggregate_num` is positive, as in MXNet."""
        _check_lengths(indices, weights, "weights")
        _check_lengths(indices, grads, "gradients")
        states = [self.state_of(index, weight) for index, weight in zip(indices, weights)]
        update: Callable[..., None] = self.optimizer.update_multi_precision
        width = self.optimizer.aggregate_num
        if width <= 0:
            for index, weight, grad, state in zip(indices, weights, grads, states):
                update(index, weight, grad, state)
            return
        by_type: dict[Any, list[int]] = {}
        for position, weight in enumerate(weights):
            by_type.setdefault(weight.dtype, []).append(position)
        for positions in by_type.values():
            for start in range(0, len(positions), width):
                chosen = positions[start : start + width]
                columns = [[column[p] for p in chosen] for column in (indices, weights, grads, states)]
                update(*map(tuple, columns[:3]), columns[3])

    def state_of(self, index: Key, weight: NDArray) -> Any:
        """Return the state of a parameter, created on first use, and copied to its context after loading.

        Args:
            index: number or name of the parameter.
            weight: the parameter, which determines shape, dtype and context of the state.

        Raises:
            StateError: the shared store has no state, or the loaded state belongs to another optimizer.
        """
        if index not in self.states:
            if self.shared is not None:
                raise StateError(
                    f"parameter {index!r} has no state in the shared store, and a new state would not be "
                    "shared"
                )
            self.states[index] = self.optimizer.create_state_multi_precision(index, weight)
            self.states_synced[index] = True
        elif not self.states_synced.get(index, True):
            if isinstance(self.optimizer, GroupedOptimizer):
                _check_kind(index, self.states[index], self.optimizer, weight)
            self.states[index] = self.sync_state_context(self.states[index], weight.context)
            self.states_synced[index] = True
        return self.states[index]

    def share(self, shared: SharedStates, keys: Mapping[Any, StateKey], devices: Iterable[int]) -> None:
        """Use states and counts shared with other processes.

        Args:
            shared: the states, which must match the optimizer, see `SharedStates.check`.
            keys: key of the state, by index.
            devices: numbers of the parameters' devices.
        """
        found = shared.states()
        self.states = {index: found[key] for index, key in keys.items()}
        self.states_synced = dict.fromkeys(self.states, True)
        self.optimizer.count_in(shared.table(keys), devices)
        self.shared, self._replaced = shared, shared.replaced.numpy()
        self._plans.clear()

    def sync_state_context(self, state: Any, context: Context) -> Any:
        """Copy the arrays of a state to a context.

        Args:
            state: None, an NDArray, or lists, tuples and dicts of them.
            context: context of the parameter.
        """
        if isinstance(state, NDArray):
            return state.as_in_context(context)
        if isinstance(state, (tuple, list)):
            return type(state)(self.sync_state_context(part, context) for part in state)
        if isinstance(state, dict):
            return {name: self._sync_named(part, context) for name, part in state.items()}
        return state

    def _sync_named(self, part: Any, context: Context) -> Any:
        """Copy a named part of a state to a context; scalars, such as counts, stay on the host."""
        if isinstance(part, NDArray) and part.ndim == 0:
            return part.copy()
        return self.sync_state_context(part, context)

    def get_states(self, dump_optimizer: bool = False, without: Collection[Key] = ()) -> bytes:
        """Return the states as bytes that MXNet 1.9.1 can read.

        Args:
            dump_optimizer: include the optimizer, with its rates and counts.
            without: parameters whose states are left out.
        """
        from .states import dump_states

        states = {key: state for key, state in self.states.items() if key not in without}
        return dump_states(states, self.optimizer if dump_optimizer else None)

    def set_states(self, states: bytes) -> None:
        """Replace the states, and the optimizer if included; shared states are overwritten in place.

        Args:
            states: result of `get_states`, here or in MXNet; nothing in it is executed.

        Raises:
            FileFormatError: the bytes are not valid states.
            StateError: the states do not match the shared ones.
        """
        from .states import load_states

        found, optimizer = load_states(states)
        if self.shared is not None:
            self._overwrite(found, optimizer)
            return
        self.states = found
        if optimizer is not None:
            self.optimizer = optimizer
            self.aggregate_updates = optimizer.aggregate_num > 0
        self.states_synced = dict.fromkeys(self.states, False)
        self._plans.clear()

    def _overwrite(self, states: Mapping[Any, Any], optimizer: Optimizer | None) -> None:
        """Write states, and the counts of an optimizer, to the shared memory."""
        for index, state in states.items():
            here, given = describe_state(self.states.get(index)), describe_state(state)
            if here != given:
                raise StateError(
                    f"the loaded state of parameter {index!r} is {given}, but the shared state is {here}: it was "
                    "saved by another optimizer, with other options, or for another network"
                )
        for index, state in states.items():
            _copy(state, self.states[index])
        if optimizer is not None:
            for index, table in ((i, self.optimizer._index_update_count) for i in self.states):
                table[index] = optimizer.count_of(index)

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Replace the states by those in a file; see `set_states`.

        Args:
            fname: path of the file.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: the file is damaged or has another format.
            StateError: the states do not match the shared ones.
        """
        from .._files import read_committed

        try:
            self.set_states(read_committed(fname))
        except FileFormatError as error:
            raise FileFormatError(f"{os.fspath(fname)}: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without cached plans; a copy does not share its states."""
        return {**self.__dict__, "_plans": {}, "shared": None, "_replaced": None}


def get_updater(optimizer: Optimizer) -> Updater:
    """Return an `Updater` for an optimizer.

    Source: MXNet 1.9.1 `optimizer.get_updater`.
    """
    return Updater(optimizer)


def _check_lengths(indices: Sequence[Any], arrays: Sequence[NDArray], what: str) -> None:
    if len(indices) != len(arrays):
        raise ArgumentError(f"update: {len(indices)} indices, but {len(arrays)} {what}")


def _check_kind(index: Key, state: Any, optimizer: GroupedOptimizer, weight: NDArray) -> None:
    """Check that a loaded state has the structure of the optimizer's states."""
    here, fresh = describe_state(state), describe_state(optimizer.create_state_multi_precision(index, weight))
    if here != fresh:
        raise StateError(
            f"the loaded state of parameter {index!r} is {here}, but {type(optimizer).__name__} expects {fresh}: it "
            "was saved by another optimizer, with other options such as momentum, or for another network"
        )


def _copy(source: Any, target: Any) -> None:
    """Copy the arrays of a state to another state of the same structure."""
    if isinstance(source, NDArray):
        target.raw.copy_(source.raw)
    elif source is not None:
        for part, own in zip(source, target, strict=True):
            _copy(part, own)


# `SharedStates`: optimizer states in shared memory

StateKey = tuple[str, int]
"""A parameter's name and the index of the context."""


class SharedStates:
    """States and update counts of one optimizer for all parameters of a store.

    The memory remains shared when sent through `torch.multiprocessing` or inherited by a fork.

    Attributes:
        keys: keys of the states, in the order of the counts.
    """

    __slots__ = ("_counts", "_templates", "_places", "_segments", "keys", "rule")

    def __init__(
        self, optimizer: Optimizer, states: Mapping[StateKey, Any], counts: Mapping[StateKey, int]
    ) -> None:
        check_shareable(optimizer)
        self.rule = type(optimizer).__name__
        self.keys = tuple(states)
        arrays: list[NDArray] = []
        self._templates = [_template(state, arrays, self.rule, key[0]) for key, state in states.items()]
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
        """Number of updates of each of `keys`.

        Shape:
            returns: (P,), int64, the shared memory, to which other processes add atomically.
        """
        return self._counts.tensors()[0]

    @property
    def replaced(self) -> torch.Tensor:
        """Non-zero if the states were replaced: (1,), int64, the shared memory."""
        return self._counts.tensors()[1]

    def states(self) -> dict[StateKey, Any]:
        """Return the states by key, as arrays in shared memory."""
        tensors = [segment.tensors() for segment in self._segments]
        arrays = [NDArray(tensors[which][position], ctx, True) for which, position, ctx in self._places]
        return {
            key: _fill_template(form, arrays) for key, form in zip(self.keys, self._templates, strict=True)
        }

    def table(self, keys: Mapping[Any, StateKey]) -> SharedCounts:
        """Return the counts by an optimizer's indices of the parameters."""
        position = {key: i for i, key in enumerate(self.keys)}
        return SharedCounts(self.counts, {index: position[key] for index, key in keys.items()})

    def check(self, optimizer: Optimizer, weights: Mapping[StateKey, NDArray]) -> None:
        """Raise an error if an optimizer cannot use these states."""
        check_shareable(optimizer)
        missing = [name for name, _ in weights if name not in {name for name, _ in self.keys}]
        if missing:
            raise StateError(
                f"the shared store has no optimizer state of {', '.join(map(repr, missing))}: they were not "
                "initialized by init_optimizer() before the store was sent"
            )
        if type(optimizer).__name__ != self.rule:
            raise StateError(
                f"the shared store has the states of {self.rule}, not of {type(optimizer).__name__}; all processes "
                "must use one optimizer"
            )
        states = self.states()
        smallest: dict[Any, StateKey] = {}  # one state per dtype suffices, and small ones are fast to create
        for key in sorted(weights, key=lambda key: weights[key].size):
            smallest.setdefault(weights[key].dtype, key)
        for key in smallest.values():
            fresh = describe_state(optimizer.create_state_multi_precision(key[0], weights[key]))
            if fresh != describe_state(states[key]):
                raise StateError(
                    f"the shared state of {key[0]!r} is {describe_state(states[key])}, but this {self.rule} keeps "
                    f"{fresh}: give all processes the same options, such as momentum and multi_precision"
                )


def check_shareable(optimizer: Optimizer) -> None:
    """Raise an error for an optimizer with data that cannot be shared."""
    reason = optimizer.unshared()
    if reason is not None:
        raise StateError(
            f"{type(optimizer).__name__} cannot update a shared store: {reason}, which other processes cannot see"
        )


def describe_state(state: object) -> str:
    """Describe the structure of a state in words."""
    if isinstance(state, NDArray):
        return f"an array {state.shape}"
    if isinstance(state, (tuple, list)):
        return f"({', '.join(map(describe_state, state))})"
    return "a dict" if isinstance(state, dict) else "nothing"


def _template(state: object, arrays: list[NDArray], rule: str, name: str) -> Any:
    """Replace the arrays of a state by their indices in a list, to which they are added."""
    if state is None:
        return None
    if isinstance(state, NDArray) and not is_sparse(state):
        arrays.append(state)
        return len(arrays) - 1
    if isinstance(state, (tuple, list)):
        return type(state)(_template(part, arrays, rule, name) for part in state)
    kind = f"{state.stype} array" if isinstance(state, NDArray) else type(state).__name__
    raise StateError(
        f"{rule} cannot update a shared store: its state of {name!r} holds a {kind}, and only None, dense arrays and "
        "tuples or lists of them can be shared"
    )


def _fill_template(form: Any, arrays: list[NDArray]) -> Any:
    """Return a state from its template."""
    if form is None:
        return None
    return (
        arrays[form] if isinstance(form, int) else type(form)(_fill_template(part, arrays) for part in form)
    )
