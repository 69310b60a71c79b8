"""Groups of parameters that one call of a rule updates, and the plan that forms them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

from .. import native
from .._core import torch_private
from ..base import ArgumentError, DTypeError, ShapeError, StateError
from ..context import Context, cpu
from ..ndarray import NDArray
from ..ops.write_tracking import count_write

if TYPE_CHECKING:
    from ..ndarray import NDArray

Tensor = torch.Tensor

_raw = attrgetter("raw")
_STYPE = attrgetter("stype")

HALF = (torch.float16, torch.bfloat16)
"""The 16-bit floating types."""

_FUSED_TYPES = (torch.float32, torch.float64)
"""Dtypes of fused calls; torch 2.13's fused SGD skips most of a 16-bit tensor on the CPU."""

_FIXED = {"nesterov": False, "maximize": False, "is_first_step": False}
"""Arguments of torch's SGD kernel that are always the same."""


def is_fusable(weight: Tensor, states: Sequence[Tensor]) -> bool:
    """Return True if a parameter and its states may use fused calls, which ignore strides and dtypes on the CPU."""
    return weight.dtype in _FUSED_TYPES and all(
        t.is_contiguous()
        and t.dtype == weight.dtype
        and t.shape == weight.shape
        and t.device == weight.device
        for t in (weight, *states)
    )


class Scratch:
    """A flat buffer, and views of it in the shapes of the parameters.

    Elementwise steps run on `flat` in one call for all parameters.

    Args:
        likes: tensors with the shapes, dtype and device of the views.
    """

    __slots__ = ("flat", "views")

    def __init__(self, likes: Sequence[Tensor]) -> None:
        self.flat = likes[0].new_empty(sum(like.numel() for like in likes))
        ends = itertools.accumulate(like.numel() for like in likes)
        self.views = [self.flat[end - like.numel() : end].view(like.shape) for end, like in zip(ends, likes)]

    def fill(self, sources: Sequence[Tensor]) -> Tensor:
        """Copy tensors into the views, converting their dtype, and return the flat buffer."""
        torch_private.foreach_copy(self.views, sources)
        return self.flat

    def write(self, targets: Sequence[Tensor]) -> None:
        """Copy the views to tensors, converting their dtype."""
        torch_private.foreach_copy(targets, self.views)


class Group:
    """Parameters of one dtype, device, learning rate and weight decay, with their states.

    Args:
        weights: the parameters, or their float32 copies.
        states: state tensors of each parameter, the same number for each.
        halves: the 16-bit parameters of which `weights` are copies; None without copies.

    Attributes:
        cache: data that a rule keeps for the next batch; None initially.
    """

    __slots__ = (
        "_scratch",
        "_shapes",
        "context",
        "fused",
        "halves",
        "cache",
        "keys",
        "records",
        "states",
        "weights",
    )

    def __init__(
        self,
        weights: list[Tensor],
        states: Sequence[Sequence[Tensor]],
        halves: list[Tensor] | None = None,
        fused: bool = True,
        keys: Sequence[Any] = (),
        context: Context | None = None,
        records: Sequence[Any] = (),
    ) -> None:
        self.weights = weights
        self.states: list[list[Tensor]] = [list(slot) for slot in zip(*states, strict=True)]
        self.halves = halves
        self.fused = fused
        self.keys = tuple(keys)
        self.context = cpu() if context is None else context
        self.records = list(records)
        self.cache: Any = None
        self._shapes = [w.shape for w in weights]
        self._scratch: dict[int, Scratch] = {}

    def subset(self, positions: Sequence[int]) -> Group:
        """Return a group of some of the parameters, which shares their memory."""
        halves = None if self.halves is None else [self.halves[p] for p in positions]
        states = [[slot[p] for slot in self.states] for p in positions]
        keys = [self.keys[p] for p in positions]
        return Group([self.weights[p] for p in positions], states, halves, self.fused, keys, self.context)

    def scratch(self, number: int = 0) -> Scratch:
        """Return a reusable buffer of this group, whose values are lost between calls of the rule."""
        found = self._scratch.get(number)
        if found is None:
            found = self._scratch[number] = Scratch(self.weights)
        return found

    def prepare(self, grads: list[Tensor]) -> list[Tensor]:
        """Return contiguous gradients after checking their shapes, dtypes and devices.

        Strided and 16-bit gradients are copied; the originals are not changed.
        """
        stored = self.weights if self.halves is None else self.halves
        dtype, device = stored[0].dtype, stored[0].device
        plain = True
        for grad, shape in zip(grads, self._shapes):
            if grad.shape != shape:
                raise ShapeError(f"gradient has shape {tuple(grad.shape)}, its parameter {tuple(shape)}")
            if grad.dtype is not dtype or grad.device != device:
                raise DTypeError(
                    f"gradient is {grad.dtype} on {grad.device}, its parameter {dtype} on {device}; convert one"
                )
            plain = plain and grad.is_contiguous()
        if self.halves is not None:
            buffer = self.scratch(0)
            buffer.fill(grads)
            return buffer.views
        return grads if plain else [grad.contiguous() for grad in grads]

    def scaled(self, grads: Sequence[Tensor], scale: float) -> Scratch:
        """Return the scaled gradients in a buffer that the rule may modify."""
        buffer = self.scratch(0)
        if grads is not buffer.views:
            buffer.fill(grads)
        if scale != 1.0:
            buffer.flat.mul_(scale)
        return buffer

    def norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the Euclidean norms of tensors as one vector, in float32 for 16-bit tensors."""
        dtype = torch.float32 if self.weights[0].dtype in HALF else None  # squares could overflow
        return torch.stack(list(torch_private.foreach_norm(tensors, 2, dtype=dtype)))

    def representable(self, smallest: float) -> float:
        """Return an epsilon of at least the smallest normal number of the parameters' dtype."""
        return max(smallest, torch.finfo(self.weights[0].dtype).smallest_normal)

    def finish(self) -> None:
        """Copy the float32 copies back to the 16-bit parameters."""
        if self.halves is not None:
            torch_private.foreach_copy(self.halves, self.weights)

    # The methods below use torch's SGD kernel, which reads and writes each element once, and on small tensors costs a
    # quarter of a `_foreach_` call.

    def descend(self, grads: Sequence[Tensor], rate: float, decay: float = 0.0) -> None:
        """Compute ``w -= rate * (grad + decay * w)``."""
        _sgd(self.fused, self.weights, grads, (), rate, decay, 0.0, 0.0)

    def momentum_step(
        self, grads: Sequence[Tensor], momenta: list[Tensor], keep: float, rate: float, decay: float
    ) -> None:
        """Compute ``m = keep * m - rate * (grad + decay * w)``, then ``w += m``."""
        _sgd(self.fused and keep != 0.0, self.weights, grads, momenta, -1.0, decay, keep, 1.0 + rate)

    def update_momentum(
        self, grads: Sequence[Tensor], momenta: list[Tensor], keep: float, rate: float, decay: float
    ) -> None:
        """Compute ``m = keep * m - rate * (grad + decay * w)`` without changing w."""
        _sgd(self.fused and keep != 0.0, self.weights, grads, momenta, 0.0, decay, keep, 1.0 + rate)

    def add(self, targets: list[Tensor], sources: Sequence[Tensor], factor: float) -> None:
        """Compute ``target += factor * source`` on states."""
        _sgd(self.fused, targets, sources, (), -factor, 0.0, 0.0, 0.0)

    def interpolate(self, targets: list[Tensor], sources: Sequence[Tensor], share: float) -> None:
        """Compute ``target = (1 - share) * target + share * source`` on states."""
        _sgd(self.fused, targets, sources, (), -share, -1.0, 0.0, 0.0)


def _sgd(
    fused: bool,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momenta: Sequence[Tensor],
    lr: float,
    decay: float,
    keep: float,
    dampening: float,
) -> None:
    call = (
        torch_private.fused_sgd if fused else torch_private.plain_sgd
    )  # the fused kernel ignores buffers at momentum 0
    call(params, grads, momenta, weight_decay=decay, momentum=keep, lr=lr, dampening=dampening, **_FIXED)
    if fused:
        count_write(params)


def are_dense(arrays: Iterable[NDArray]) -> bool:
    """Return True if no array is sparse."""
    return set(map(_STYPE, arrays)) <= {"default"}


def slots_of(state: Any) -> tuple[NDArray, ...]:
    """Return the arrays of one parameter's state, which may be None, an NDArray or a tuple."""
    if state is None or isinstance(state, dict):  # the rule handles arrays by name
        return ()
    return (state,) if isinstance(state, NDArray) else tuple(slot for slot in state if slot is not None)


class UpdateRule(Protocol):
    """Interface of optimizers used by a plan; see `GroupedOptimizer`."""

    idx2name: dict[Any, str]
    in_order: ClassVar[bool]
    lr_mult: dict[Any, float]
    multi_precision: bool
    param_dict: Mapping[Any, Any]
    uses_count: ClassVar[bool]
    wd: float
    wd_mult: dict[Any, float]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""

    def advance(self, indices: Sequence[Any]) -> list[int]:
        """Count an update of each parameter and return the new counts."""

    def multipliers(self, index: Key) -> tuple[float, float]:
        """Return the multipliers of a parameter's learning rate and weight decay."""

    def master_of(self, state: Any) -> tuple[NDArray, Any]:
        """Return the float32 copy of a 16-bit parameter and the inner state."""

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        """Update one group in place."""


class _GroupMember(NamedTuple):
    """A member of a group: position in the call, updated tensor, state tensors, and state."""

    position: int
    target: Tensor
    slots: list[Tensor]
    record: Any


class UpdatePlan:
    """The grouping of parameters, reused from batch to batch.

    Args:
        halves: True if 16-bit parameters have float32 copies.
    """

    __slots__ = (
        "_decays",
        "_groups",
        "_halves",
        "_indices",
        "_lr_mult",
        "_multipliers",
        "_names",
        "_optimizer",
        "_states",
        "_tensors",
        "_wd_mult",
    )

    def __init__(
        self,
        optimizer: UpdateRule,
        indices: Sequence[Any],
        weights: Sequence[NDArray],
        states: Sequence[Any],
        halves: bool,
    ) -> None:
        if not len(indices) == len(weights) == len(states):
            raise ArgumentError(
                f"update: {len(indices)} indices, {len(weights)} weights and {len(states)} states"
            )
        self._optimizer = optimizer
        self._indices = tuple(indices)
        self._tensors = [w.raw for w in weights]
        self._states = list(states)
        self._halves = halves
        self._lr_mult = dict(optimizer.lr_mult)
        self._wd_mult = dict(optimizer.wd_mult)
        self._decays = optimizer.wd != 0.0
        self._names = optimizer.idx2name
        self._multipliers = self._current_multipliers()
        self._groups = self._sort(weights)

    def is_current(
        self, optimizer: UpdateRule, weights: Sequence[NDArray], states: Mapping[Any, Any]
    ) -> bool:
        """Return True if tensors, states, multipliers and precision are unchanged."""
        if (
            optimizer is not self._optimizer
            or (
                (optimizer.param_dict or self._multipliers)
                and self._current_multipliers() != self._multipliers
            )
            or optimizer.multi_precision is not self._halves
            or optimizer.idx2name is not self._names
            or optimizer.lr_mult != self._lr_mult
            or optimizer.wd_mult != self._wd_mult
            or (optimizer.wd != 0.0) is not self._decays
            or len(weights) != len(self._tensors)
        ):
            return False
        same_tensors = all(map(is_, map(_raw, weights), self._tensors))
        return same_tensors and all(map(is_, map(states.get, self._indices), self._states))

    def _current_multipliers(self) -> list[tuple[float, float]] | None:
        """Return the multipliers that objects of `param_dict` have now; None if it is empty."""
        optimizer = self._optimizer
        return list(map(optimizer.multipliers, self._indices)) if optimizer.param_dict else None

    def run(self, grads: Sequence[NDArray]) -> None:
        """Count the update and apply the rule to every group."""
        if len(grads) != len(self._tensors):
            raise ArgumentError(f"update: {len(grads)} gradients for {len(self._tensors)} parameters")
        optimizer = self._optimizer
        counts = optimizer.advance(self._indices)
        together = not optimizer.uses_count or counts.count(counts[0]) == len(counts)
        lr, wd = optimizer.learning_rate, optimizer.wd
        for positions, lr_mult, wd_mult, group in self._groups:
            found = group.prepare([grads[p].raw for p in positions])
            rates = lr * lr_mult, wd * wd_mult
            if together:
                optimizer.step(group, found, *rates, counts[0])
            else:
                self._run_parts(group, found, rates, [counts[p] for p in positions])
            group.finish()

    def run_one(self, grad: NDArray, lr: float, wd: float, count: int) -> None:
        """Apply the rule to the only parameter with given rates, without counting."""
        ((_, _, _, group),) = self._groups
        self._optimizer.step(group, group.prepare([grad.raw]), lr, wd, count)
        group.finish()

    def _run_parts(
        self, group: Group, grads: list[Tensor], rates: tuple[float, float], counts: list[int]
    ) -> None:
        """Apply the rule to subsets of a group with equal counts."""
        for count in sorted(set(counts)):
            chosen = [p for p, c in enumerate(counts) if c == count]
            self._optimizer.step(group.subset(chosen), [grads[p] for p in chosen], *rates, count)

    def _sort(self, weights: Sequence[NDArray]) -> list[tuple[list[int], float, float, Group]]:
        """Group the parameters by all properties that must agree within a group."""
        sorted_by: dict[Any, list[_GroupMember]] = {}
        for position, (index, weight, state) in enumerate(zip(self._indices, weights, self._states)):
            half = self._halves and weight.raw.dtype in HALF
            master, inner = self._optimizer.master_of(state) if half else (weight, state)
            slots = slots_of(inner)
            for array in (*slots, *((master,) if half else ())):
                array.pinned = True  # the groups keep its tensor, which must not be replaced
            target, kept = master.raw, [slot.raw for slot in slots]
            fits = is_fusable(target, kept) and (not half or weight.raw.is_contiguous())
            lr_mult, wd_mult = self._optimizer.multipliers(index)
            key = (
                lr_mult,
                wd_mult if self._decays else 1.0,  # without decay, weights and biases share a group
                weight.raw.dtype,
                target.dtype,
                weight.context,
                len(slots),
                position if self._optimizer.in_order else None,
                fits,
            )
            sorted_by.setdefault(key, []).append(_GroupMember(position, target, kept, inner))
        return [self._group(key, members) for key, members in sorted_by.items()]

    def _group(
        self, key: tuple[Any, ...], members: list[_GroupMember]
    ) -> tuple[list[int], float, float, Group]:
        positions = [member.position for member in members]
        targets = [member.target for member in members]
        stored = [self._tensors[p] for p in positions]
        group = Group(
            targets,
            [member.slots for member in members],
            halves=stored if any(a is not b for a, b in zip(stored, targets)) else None,
            fused=key[-1],
            keys=[self._indices[p] for p in positions],
            context=key[4],
            records=[member.record for member in members],
        )
        return positions, key[0], key[1], group


# update counts in shared memory, for the workers of one parameter store

Key: TypeAlias = Any
"""Key of a parameter: a position (Module) or a name (kvstore)."""

KeyOrList: TypeAlias = "Key | Sequence[Key]"
"""A key, or several."""

ArrayOrList: TypeAlias = "NDArray | Sequence[NDArray]"
"""An array, or several."""


class SharedCounts(MutableMapping[Any, int]):
    """Update counts of parameters, shared by processes; replaces the dict of `Optimizer`.

    Shape:
        memory: (P,), int64, one count per parameter and context.

    Args:
        positions: index of the count of each key.
    """

    __slots__ = ("_address", "_counts", "_memory", "_positions")

    def __init__(self, memory: torch.Tensor, positions: Mapping[Any, int]) -> None:
        self._memory = memory  # keeps the memory of `_address` mapped
        self._counts: np.ndarray[Any, np.dtype[np.int64]] = memory.numpy()
        self._address = memory.data_ptr()
        self._positions = dict(positions)

    def __getitem__(self, key: Key) -> int:
        return int(self._counts[self._positions[key]])

    def __setitem__(self, key: Key, count: int) -> None:
        self._counts[self._position(key)] = count

    def __delitem__(self, key: Key) -> None:
        raise StateError(
            f"the count of parameter {key!r} is shared with other processes and cannot be removed"
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def _position(self, key: Key) -> int:
        found: int | None = self._positions.get(key)
        if found is None:
            raise StateError(f"parameter {key!r} has no count in the shared store; {_has(self._positions)}")
        return found

    def advance(self, keys: Sequence[Any]) -> list[int]:
        """Count an update of each parameter and return the new counts.

        With the extension, counting is atomic. Without it, one of two simultaneous updates may be lost.
        """
        positions = [self._position(key) for key in keys]
        if native.core is not None:
            counted: list[int] = native.core.count_updates(self._address, len(self._counts), positions)
            return counted
        self._counts[positions] += 1
        return [int(count) for count in self._counts[positions]]

    def largest(self) -> int:
        """Return the largest count."""
        found: int = self._counts.max(initial=0).item()
        return found


def _has(positions: Mapping[Any, int]) -> str:
    return f"it has {', '.join(map(repr, positions)) or 'none'}"
