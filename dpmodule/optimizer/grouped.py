"""Optimizers that update whole lists of parameters in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ..base import ShapeError
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from .base import Optimizer, is_half
from .group import Group, Scratch, UpdatePlan, are_dense, slots_of
from .rows import RowUpdate, densified, fits_native, update_in_place, written_back

if TYPE_CHECKING:
    from .counts import ArrayOrList, Key, KeyOrList

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
        **unknown: nothing else is taken; what is given raises, with the names there are.
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
        """Say whether a row-sparse gradient updates its own rows only; else the rows it lacks count as zeros.

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
