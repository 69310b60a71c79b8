"""Optimizers that update whole lists of parameters in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from operator import attrgetter
from typing import Any, ClassVar

import torch

from .. import native
from ..base import ShapeError
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ops.write_tracking import count_write
from .base import Optimizer, is_half
from .group import ArrayOrList, Group, Key, KeyOrList, Scratch, UpdatePlan, are_dense, is_fusable, slots_of

Tensor = torch.Tensor

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
"""Members that define the rule."""


class GroupedOptimizer(Optimizer):
    """Base of the optimizers of this package; subclasses define `create_state` and `step`.

    Subclasses that override `update` or the computation of rates are called for each parameter separately.

    Args:
        **unknown: unknown arguments; any of them raises an error that lists the valid names.
    """

    uses_count: ClassVar[bool] = False
    """True if `step` uses `count`; otherwise parameters with different counts share a call."""

    in_order: ClassVar[bool] = False
    """True if the order of the parameters matters, so that each forms its own group."""

    lazy_halves: ClassVar[bool] = True
    """True if lazy updates also apply to float32 copies of 16-bit parameters."""

    is_grouped: ClassVar[bool] = True
    """True if `update` is not overridden, so that `Updater.update_all` may update all parameters together."""

    is_native: ClassVar[bool] = False
    """True if `native_rule` is equivalent to `step`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "native_rule" in vars(cls):
            cls.is_native = True
        elif not vars(cls).keys().isdisjoint(_RULE):  # the rule differs from the inherited `native_rule`
            cls.is_native = False
        cls.is_grouped = all(getattr(cls, hook) is getattr(GroupedOptimizer, hook) for hook in _HOOKS)

    def is_lazy(self, weight: NDArray) -> bool:
        """Return True if a row-sparse gradient updates only its own rows; otherwise missing rows count as zeros.

        Args:
            weight: the parameter, whose storage type may matter.
        """
        return False

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        """Update one group in place.

        Args:
            grads: contiguous gradients with the parameters' shapes and dtypes; must not be modified, since users see
                them.
            lr: learning rate of the group.
            wd: weight decay of the group.
            count: number of updates, including this one.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no update rule")

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        """Return the fields of the native `UpdateRule` that differ from plain gradient descent.

        Args:
            count: number of updates, including this one.
            slots: number of arrays in the state.
        """
        return {"lr": lr, "wd": wd, "rescale_grad": self.rescale_grad, "clip_gradient": self.limit or 0.0}

    def gradients(self, group: Group, grads: list[Tensor], wd: float = 0.0) -> Scratch:
        """Return clip(rescale_grad * gradient + wd * w) in a buffer that the rule may modify.

        Args:
            group: the parameters.
            grads: their gradients.
            wd: weight decay to add; 0 if the rule adds it itself.
        """
        buffer = group.scaled(grads, float(self.rescale_grad))
        if wd != 0.0:
            group.add(buffer.views, group.weights, wd)
        limit = self.limit
        if limit is not None:
            buffer.flat.clamp_(-limit, limit)
        return buffer

    def update(self, index: KeyOrList, weight: ArrayOrList, grad: ArrayOrList, state: Any) -> None:
        self._update(index, weight, grad, state, halves=False)

    def update_multi_precision(
        self, index: KeyOrList, weight: ArrayOrList, grad: ArrayOrList, state: Any
    ) -> None:
        if type(self).update is GroupedOptimizer.update:
            self._update(index, weight, grad, state, halves=self.multi_precision)
        else:
            for one in zip(*_listed(index, weight, grad, state), strict=True):
                super().update_multi_precision(*one)

    def _update(
        self, index: KeyOrList, weight: ArrayOrList, grad: ArrayOrList, state: Any, halves: bool
    ) -> None:
        columns = _listed(index, weight, grad, state)
        if not are_dense([*columns[1], *columns[2]]):
            for one, target, slope, memory in zip(*columns, strict=True):
                self._update_sparse(one, target, slope, memory, halves)
        elif self.is_grouped:
            UpdatePlan(self, columns[0], columns[1], columns[3], halves).run(columns[2])
        else:
            for one, target, slope, memory in zip(*columns, strict=True):
                rates = self._next_rates(one)
                UpdatePlan(self, [one], [target], [memory], halves).run_one(slope, *rates)

    def _next_rates(self, index: Key) -> tuple[float, float, int]:
        """Count an update of a parameter and return its learning rate, weight decay and count."""
        self._update_count(index)
        return self._get_lr(index), self._get_wd(index), self._index_update_count[index]

    def _update_sparse(self, index: Key, weight: NDArray, grad: NDArray, state: Any, halves: bool) -> None:
        """Update one parameter if it or its gradient is row-sparse."""
        with written_back(weight) as target:
            half = halves and is_half(target)
            by_rows = self.is_lazy(weight) and half <= self.lazy_halves
            if not isinstance(grad, RowSparseNDArray) or not (
                by_rows or (not half and self._fits(target, grad, state))
            ):
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
        self, index: Key, weight: NDArray, grad: RowSparseNDArray, state: Any, all_rows: bool = False
    ) -> None:
        """Update the rows of a row-sparse gradient in a dense parameter, or all rows in native code."""
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
    """Return the arguments of an update as lists."""
    return (index, *columns) if isinstance(index, (list, tuple)) else tuple([x] for x in (index, *columns))


# row-sparse gradients: lazy updates of their rows, or dense gradients

_RAW = attrgetter("raw")


@contextmanager
def written_back(weight: NDArray) -> Iterator[NDArray]:
    """Yield a dense array for a parameter, and write it back afterwards.

    Args:
        weight: the parameter. If a row-sparse parameter stores all rows, the array shares their memory.
    """
    if weight.stype == "default":
        yield weight
        return
    if isinstance(weight, RowSparseNDArray):
        rows, values = weight.parts()
        if rows.numel() == weight.shape[0]:
            yield NDArray(values, weight.context)
            return
    dense = NDArray(weight.raw.clone(), weight.context)
    yield dense
    weight.overwrite(dense.raw)


def densified(grad: NDArray) -> NDArray:
    """Convert a gradient to a dense array."""
    return grad if grad.stype == "default" else NDArray(grad.raw, grad.context)


class RowUpdate:
    """A group of the rows of one parameter, and of its states, that a row-sparse gradient updates."""

    def __init__(self, index: Key, weight: NDArray, slots: Iterable[NDArray], grad: RowSparseNDArray) -> None:
        self._rows, values = grad.parts()
        self._sources = [weight.raw, *(slot.raw for slot in slots)]
        self._before = [source.index_select(0, self._rows) for source in self._sources]
        target, *kept = [rows.clone() for rows in self._before]
        self.group = Group(
            [target], [kept], fused=is_fusable(target, kept), keys=[index], context=weight.context
        )
        self.grads = self.group.prepare([values])

    def finish(self) -> None:
        """Add the changes to the rows, which another process may have updated meanwhile."""
        after = [self.group.weights[0], *(slot[0] for slot in self.group.states)]
        for source, old, new in zip(self._sources, self._before, after, strict=True):
            source.index_add_(0, self._rows, new.sub_(old))


def fits_native(weight: NDArray, slots: Sequence[NDArray], grad: RowSparseNDArray) -> bool:
    """Return True if native code supports a parameter: contiguous float32 on the CPU."""
    target, rows = weight.raw, grad.values
    shape = target.shape
    return (
        native.core is not None
        and all(map(_is_plain, (target, *map(_RAW, slots)), repeat(shape)))
        and _is_plain(rows, (len(rows), *shape[1:]))
        and grad.shape == shape
    )


def update_in_place(
    rule: Mapping[str, float | str],
    weight: NDArray,
    slots: Sequence[NDArray],
    grad: RowSparseNDArray,
    all_rows: bool,
) -> None:
    """Update rows in native code, in one pass over the elements.

    Args:
        all_rows: also update the other rows, with a gradient of 0.
    """
    core, target = native.core, weight.raw
    if core is None or not target.numel():
        return
    rows, values = grad.parts()
    rows = rows.contiguous()
    table = len(target), target.numel() // len(target)
    changes = rows.data_ptr(), len(rows), values.data_ptr()
    tensors = [target, *map(_RAW, slots)]
    where, *states = map(Tensor.data_ptr, tensors)
    core.update_rows(rule, where, *table, *changes, all_rows, *states)
    count_write(tensors)


def _is_plain(tensor: Tensor, shape: Sequence[int]) -> bool:
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.is_contiguous()
        and tensor.shape == torch.Size(shape)
    )
