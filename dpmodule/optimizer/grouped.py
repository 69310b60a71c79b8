"""Optimizers that update whole lists of parameters in one call, and the plan that sorts parameters into lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any, ClassVar, NamedTuple

import torch

from ..base import ArgumentError, ShapeError
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from .base import Optimizer, is_half
from .group import Group, Scratch, is_fusable
from .rows import RowUpdate, densified, fits_native, update_in_place, written_back

__all__ = ["GroupedOptimizer", "Plan", "are_dense", "slots_of"]

Tensor = torch.Tensor

_raw = attrgetter("raw")

_HOOKS = (
    "update",
    "update_multi_precision",
    "advance",
    "multipliers",
    "_get_lr",
    "_get_lrs",
    "_get_wd",
    "_get_wds",
    "_next_rates",
    "_update_count",
)

_RULE = ("step", "gradients", "limit", "scale")
"""What a subclass may override to change the rule itself."""


def are_dense(arrays: Iterable[NDArray]) -> bool:
    """Say whether no array is sparse."""
    return set(map(type, arrays)) == {NDArray} or all(array.stype == "default" for array in arrays)


def slots_of(state: Any) -> tuple[NDArray, ...]:
    """Return the arrays of one parameter's state: None holds none, an NDArray one, a tuple several."""
    if state is None or isinstance(state, dict):  # arrays by name are the rule's own business
        return ()
    return (state,) if isinstance(state, NDArray) else tuple(slot for slot in state if slot is not None)


class GroupedOptimizer(Optimizer):
    """Base of the optimizers of this package: a subclass gives `create_state` and `step`.

    A further subclass that overrides `update`, or how rates are found, is called parameter by parameter instead.
    """

    uses_count: ClassVar[bool] = False
    """Whether `step` reads `count`; if not, parameters with different counts share a call."""

    in_order: ClassVar[bool] = False
    """Whether the order of the parameters matters, so that each is a group of its own."""

    lazy_halves: ClassVar[bool] = True
    """Whether a lazy update of a 16-bit parameter's float32 copy leaves rows alone, too."""

    is_grouped: ClassVar[bool] = True
    """Whether the stock update is in place, so that `Updater.update_all` may hand over all parameters at once."""

    is_native: ClassVar[bool] = False
    """Whether `native_rule` says what `step` does."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "native_rule" in vars(cls):
            cls.is_native = True
        elif not vars(cls).keys().isdisjoint(_RULE):  # another rule than the one that was described
            cls.is_native = False
        cls.is_grouped = all(getattr(cls, hook) is getattr(GroupedOptimizer, hook) for hook in _HOOKS)

    def is_lazy(self, weight: NDArray) -> bool:
        """Say whether a row-sparse gradient updates its own rows only; else the rows it lacks count as zeros."""
        return False

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        """Update one group in place.

        Args:
            group: parameters and states.
            grads: gradients, contiguous and of the parameters' shapes and types; not to be written, as they are the
                arrays that users see.
            lr: learning rate of all of them.
            wd: weight decay of all of them.
            count: how many updates they have received, this one included.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no update rule")

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        """Return the fields of native code's `UpdateRule` in which this rule differs from plain descent.

        Args:
            lr: learning rate of the parameter.
            wd: weight decay of the parameter.
            count: how many updates it has received, this one included.
            slots: how many arrays its state has.
        """
        return {"lr": lr, "wd": wd, "rescale_grad": self.rescale_grad, "clip_gradient": self.limit or 0.0}

    @property
    def limit(self) -> float | None:
        """What gradients are clipped to, None if they are not."""
        limit = self.clip_gradient
        return limit if limit is not None and limit > 0.0 else None

    def gradients(self, group: Group, grads: list[Tensor], wd: float = 0.0) -> Scratch:
        """Return clip(rescale_grad * gradient + wd * w) in a buffer that the rule may write."""
        buffer = group.scaled(grads, float(self.rescale_grad))
        if wd != 0.0:
            group.add(buffer.views, group.weights, wd)
        limit = self.limit
        if limit is not None:
            buffer.flat.clamp_(-limit, limit)
        return buffer

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Update one parameter, or lists of them, in place."""
        self._update(index, weight, grad, state, halves=False)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Update one parameter, or lists of them, in place, 16-bit ones through their float32 copies."""
        if type(self).update is GroupedOptimizer.update:
            self._update(index, weight, grad, state, halves=self.multi_precision)
        else:
            for one in zip(*_listed(index, weight, grad, state), strict=True):
                super().update_multi_precision(*one)

    def _update(self, index: Any, weight: Any, grad: Any, state: Any, halves: bool) -> None:
        columns = _listed(index, weight, grad, state)
        if not are_dense([*columns[1], *columns[2]]):
            for one, target, slope, memory in zip(*columns, strict=True):
                self._update_sparse(one, target, slope, memory, halves)
        elif self.is_grouped:
            Plan(self, columns[0], columns[1], columns[3], halves).run(columns[2])
        else:
            for one, target, slope, memory in zip(*columns, strict=True):
                rates = self._next_rates(one)
                Plan(self, [one], [target], [memory], halves).run_one(slope, *rates)

    def _next_rates(self, index: Any) -> tuple[float, float, int]:
        """Count an update of a parameter and return its learning rate, weight decay and count."""
        self._update_count(index)
        return self._get_lr(index), self._get_wd(index), self._index_update_count[index]

    def _update_sparse(self, index: Any, weight: NDArray, grad: NDArray, state: Any, halves: bool) -> None:
        """Update one parameter when it or its gradient is row-sparse."""
        with written_back(weight) as target:
            half = halves and is_half(target)
            by_rows = self.is_lazy(weight) and half <= self.lazy_halves
            if not isinstance(grad, RowSparseNDArray) or not (by_rows or self._fits(target, grad, state)):
                self._update(index, target, densified(grad), state, halves)
            elif half:
                master, inner = self.master_of(state)
                self._update_rows(index, master, grad.replaced(grad.values.float()), inner)
                target.raw.copy_(master.raw)
            else:
                self._update_rows(index, target, grad, state, all_rows=not by_rows)

    def _fits(self, weight: NDArray, grad: RowSparseNDArray, state: Any) -> bool:
        return self.is_native and fits_native(weight, slots_of(state), grad)

    def _update_rows(
        self, index: Any, weight: NDArray, grad: RowSparseNDArray, state: Any, all_rows: bool = False
    ) -> None:
        """Update the rows of a dense parameter that a gradient is about, or natively all of them.

        Raises:
            ShapeError: the gradient has not its parameter's shape.
        """
        if grad.shape != weight.shape:
            raise ShapeError(f"gradient has shape {grad.shape}, its parameter {weight.shape}")
        rates, slots = self._next_rates(index), slots_of(state)
        if self._fits(weight, grad, state):
            update_in_place(self.native_rule(*rates, len(slots)), weight, slots, grad, all_rows)
            return
        rows = RowUpdate(index, weight, slots, grad)
        if rows.grads[0].numel():
            self.step(rows.group, rows.grads, *rates)
            rows.finish()


def _listed(index: Any, *columns: Any) -> tuple[Any, ...]:
    """Return the arguments of an update as lists, one parameter in lists of one."""
    return (index, *columns) if isinstance(index, (list, tuple)) else tuple([x] for x in (index, *columns))


class _Member(NamedTuple):
    """A parameter on its way into a group: its place in the call, what is written, its state's tensors, its state."""

    position: int
    target: Tensor
    slots: list[Tensor]
    record: Any


class Plan:
    """Which parameters are updated together, kept from batch to batch.

    Args:
        optimizer: the rule.
        indices: keys of the parameters.
        weights: the parameters.
        states: their states, as `create_state_multi_precision` made them.
        halves: whether 16-bit parameters have float32 copies.
    """

    __slots__ = (
        "_decays",
        "_groups",
        "_halves",
        "_indices",
        "_lr_mult",
        "_names",
        "_optimizer",
        "_states",
        "_tensors",
        "_wd_mult",
    )

    def __init__(
        self,
        optimizer: GroupedOptimizer,
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
        self._groups = self._sort(weights)

    def holds(
        self, optimizer: GroupedOptimizer, weights: Sequence[NDArray], states: Mapping[Any, Any]
    ) -> bool:
        """Say whether the plan still fits: same tensors, states, multipliers and precision."""
        if (
            optimizer is not self._optimizer
            or optimizer.param_dict
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
        """Apply the rule to the only parameter, at rates found elsewhere, without counting."""
        ((_, _, _, group),) = self._groups
        self._optimizer.step(group, group.prepare([grad.raw]), lr, wd, count)
        group.finish()

    def _run_parts(
        self, group: Group, grads: list[Tensor], rates: tuple[float, float], counts: list[int]
    ) -> None:
        """Apply the rule to the parts of a group whose counts agree."""
        for count in sorted(set(counts)):
            chosen = [p for p, c in enumerate(counts) if c == count]
            self._optimizer.step(group.part(chosen), [grads[p] for p in chosen], *rates, count)

    def _sort(self, weights: Sequence[NDArray]) -> list[tuple[list[int], float, float, Group]]:
        """Sort the parameters by everything that must agree inside a group."""
        sorted_by: dict[Any, list[_Member]] = {}
        for position, (index, weight, state) in enumerate(zip(self._indices, weights, self._states)):
            half = self._halves and is_half(weight)
            master, inner = self._optimizer.master_of(state) if half else (weight, state)
            slots = slots_of(inner)
            for array in (*slots, *((master,) if half else ())):
                array.pinned = True  # the groups keep its tensor, so nobody may put another in its place
            target, kept = master.raw, [slot.raw for slot in slots]
            fits = is_fusable(target, kept) and (not half or weight.raw.is_contiguous())
            lr_mult, wd_mult = self._optimizer.multipliers(index)
            key = (
                lr_mult,
                wd_mult if self._decays else 1.0,  # without decay, weights and biases go together
                weight.raw.dtype,
                target.dtype,
                weight.context,
                len(slots),
                position if self._optimizer.in_order else None,
                fits,
            )
            sorted_by.setdefault(key, []).append(_Member(position, target, kept, inner))
        return [self._group(key, members) for key, members in sorted_by.items()]

    def _group(self, key: tuple[Any, ...], members: list[_Member]) -> tuple[list[int], float, float, Group]:
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
