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
"""What a subclass may override to change the rule itself."""


class GroupedOptimizer(Optimizer):
    """Base of the optimizers of this package: a subclass gives `create_state` and `step`.

    A further subclass that overrides `update`, or how rates are found, is called parameter by parameter instead.

    Args:
        **unknown: unknown arguments; any of them raises an error that lists the valid names.
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
        """Return True if a row-sparse gradient updates its own rows only; else the rows it lacks count as zeros.

        Args:
            weight: a parameter, by whose storage type it may depend.
        """
        return False

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        """Update one group in place.

        Args:
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
            count: how many updates it has received, this one included.
            slots: how many arrays its state has.
        """
        return {"lr": lr, "wd": wd, "rescale_grad": self.rescale_grad, "clip_gradient": self.limit or 0.0}

    def gradients(self, group: Group, grads: list[Tensor], wd: float = 0.0) -> Scratch:
        """Return clip(rescale_grad * gradient + wd * w) in a buffer that the rule may write.

        Args:
            group: parameters of one type, device, rate and weight decay.
            grads: their gradients, of the same shapes.
            wd: weight decay that is added; 0 where the rule adds it itself.
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
        """Update one parameter when it or its gradient is row-sparse."""
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
        """Update the rows of a dense parameter that a gradient is about, or natively all of them."""
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


# gradients of some rows only: lazy updates of those rows, and dense gradients for rules that need all

_RAW = attrgetter("raw")


@contextmanager
def written_back(weight: NDArray) -> Iterator[NDArray]:
    """Give a dense array in place of a parameter; what is written to it ends up in the parameter.

    Args:
        weight: the parameter. Of a row-sparse one that stores all its rows, the array is these rows themselves.
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
    """Return a gradient with zeros in place of what it does not store; a dense one as it is."""
    return grad if grad.stype == "default" else NDArray(grad.raw, grad.context)


class RowUpdate:
    """The rows of one parameter and of its states that a gradient is about, gathered into a group."""

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
        """Add to the rows what has changed; another process may have updated them meanwhile."""
        after = [self.group.weights[0], *(slot[0] for slot in self.group.states)]
        for source, old, new in zip(self._sources, self._before, after, strict=True):
            source.index_add_(0, self._rows, new.sub_(old))


def fits_native(weight: NDArray, slots: Sequence[NDArray], grad: RowSparseNDArray) -> bool:
    """Return True if native code can update a parameter in place: float32 numbers on the CPU, one after the other."""
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
    """Update rows natively, each number read, changed and written back at once.

    Args:
        all_rows: update the other rows, too, as if their gradient were 0.
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
