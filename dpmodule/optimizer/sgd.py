"""Gradient descent with momentum (SGD, NAG), and an optimizer for tests."""

from __future__ import annotations

from typing import Any

import torch

from ..base import dtype_name
from ..executor import allocate
from ..ndarray import NDArray
from ..ops.dtypes import torch_dtype
from .base import is_half, momentum_of, register
from .group import Group, Key
from .grouped import GroupedOptimizer

Tensor = torch.Tensor

_LARGE = 2**25
"""Size in bytes from which states get untouched memory from the system."""

_SMALLEST_SCALE = 1e-12
"""Smallest `rescale_grad` for which `wd / rescale_grad` cannot overflow; below it, gradients are rescaled
separately."""


def zeros_like(weight: NDArray) -> NDArray:
    """Return a dense array of zeros with a parameter's shape, type and context.

    The zeros are written immediately, which reuses cached memory and avoids page faults in the first update. Large
    arrays are allocated lazily, since possibly only a few rows are used.
    """
    context, dtype = weight.context, dtype_name(weight.dtype)
    kind = torch_dtype(dtype)
    if weight.size * kind.itemsize > _LARGE:
        return allocate(weight.shape, context, dtype)
    return NDArray(torch.zeros(weight.shape, dtype=kind, device=context.torch_device), context)


class MomentumOptimizer(GroupedOptimizer):
    """Base of SGD, NAG and LARS: momentum as state, followed by the float32 copy.

    Args:
        momentum: momentum factor; 0 keeps no state.
    """

    lazy_halves = False

    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum_of(self, momentum)

    def create_state(self, index: Key, weight: NDArray) -> NDArray | None:
        return zeros_like(weight) if self.momentum != 0.0 else None

    def create_state_multi_precision(self, index: Key, weight: NDArray) -> Any:
        if self.multi_precision and is_half(weight):
            master = self.master_copy(weight)
            return self.create_state(index, master), master
        return super().create_state_multi_precision(index, weight)

    def master_of(self, state: Any) -> tuple[NDArray, Any]:
        inner, master = state
        return master, inner

    def scale(self, group: Group, grads: list[Tensor]) -> tuple[list[Tensor], float]:
        """Return gradients and their remaining factor; with clipping, the factor is applied here."""
        factor = float(self.rescale_grad)
        if self.limit is None and abs(factor) > _SMALLEST_SCALE:
            return grads, factor
        return self.gradients(group, grads).views, 1.0


@register
class SGD(MomentumOptimizer):
    """Stochastic gradient descent with momentum.

    With g = clip(rescale_grad * gradient)::

        m = momentum * m - lr * (g + wd * w)
        w = w + m

    Args:
        momentum: momentum factor; 0 keeps no state.
        lazy_update: update only the rows of a row-sparse gradient, and their momentum.
        **kwargs: see `Optimizer`.
    Source: MXNet 1.9.1 `sgd_update` and `sgd_mom_update`, equal to a float64 rule to 2e-7 at any learning rate.
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(momentum, **kwargs)
        self.lazy_update = lazy_update
        self.aggregate_num = 4

    def is_lazy(self, weight: NDArray) -> bool:
        return self.lazy_update

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        grads, factor = self.scale(group, grads)
        if group.states:
            group.momentum_step(grads, group.states[0], self.momentum, lr * factor, wd / factor)
        else:
            group.descend(grads, lr * factor, wd / factor)

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        kind = "momentum" if slots else "sgd"
        return {**super().native_rule(lr, wd, count, slots), "kind": kind, "momentum": self.momentum}


@register
class PlainMomentum(MomentumOptimizer):
    """Momentum as PyTorch and Paddle compute it: a new learning rate also applies to the momentum of earlier steps.

    With g = clip(rescale_grad * gradient) + wd * w::

        v = momentum * v + g
        w = w - lr * (g + momentum * v if nesterov else v)

    Args:
        momentum: momentum factor; 0 for plain gradient descent.
        nesterov: whether to use Nesterov's momentum.
        **kwargs: see `Optimizer`.
    Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in deep learning",
        2013, in the form of `torch.optim.SGD`.
    """

    def __init__(self, momentum: float = 0.9, nesterov: bool = False, **kwargs: Any) -> None:
        super().__init__(momentum, **kwargs)
        self.nesterov = nesterov

    def is_lazy(self, weight: NDArray) -> bool:
        return self.momentum == 0.0

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        grads, factor = self.scale(group, grads)
        if not group.states:
            group.descend(grads, lr * factor, wd / factor)
            return
        (momenta,) = group.states
        group.update_momentum(grads, momenta, self.momentum, -factor, wd / factor)
        if self.nesterov:
            group.descend(grads, lr * factor, wd / factor)
        group.add(group.weights, momenta, -lr * (self.momentum if self.nesterov else 1.0))


@register
class NAG(MomentumOptimizer):
    """Stochastic gradient descent with Nesterov's momentum.

    With g = clip(rescale_grad * gradient), and w' the new parameter::

        w' = w + momentum ** 2 * m - (1 + momentum) * lr * (g + wd * w)
        m  = momentum * m - lr * (g + wd * w')

    Args:
        momentum: momentum factor; 0 for plain gradient descent.
        **kwargs: see `Optimizer`.
    Source: MXNet 1.9.1 `nag_mom_update`, where the momentum includes the decay of the updated parameter.
    """

    def is_lazy(self, weight: NDArray) -> bool:
        return self.momentum == 0.0

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        grads, factor = self.scale(group, grads)
        if not group.states:
            group.descend(grads, lr * factor, wd / factor)
            return
        (momenta,) = group.states
        keep = self.momentum
        group.descend(grads, (1.0 + keep) * lr * factor, wd / factor)
        group.add(group.weights, momenta, keep * keep)
        group.update_momentum(grads, momenta, keep, lr * factor, wd / factor)


@register
class ccSGD(SGD):
    """`SGD` under its name in old releases of MXNet."""


@register
class Test(GroupedOptimizer):
    """Add the rescaled gradient to the parameter and keep a copy of the parameter, for tests.

    Args:
        **unknown: unknown arguments; any of them raises an error that lists the valid names.
    """

    __test__ = False  # not a pytest class

    def create_state(self, index: Key, weight: NDArray) -> NDArray:
        return zeros_like(weight)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        group.descend(grads, -float(self.rescale_grad))
        for weight, copy in zip(group.weights, group.states[0], strict=True):
            copy.copy_(weight)
