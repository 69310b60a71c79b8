"""Optimizers over running means of gradients and their sizes: AdaDelta, Adamax and Nadam."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..ndarray import NDArray
from .base import register
from .group import Group
from .grouped import GroupedOptimizer
from .sgd import zeros_like

if TYPE_CHECKING:
    from .counts import Key

Tensor = torch.Tensor


class _TwoSlots(GroupedOptimizer):
    """What the three share: two arrays per parameter."""

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)


@register
class AdaDelta(_TwoSlots):
    """AdaDelta, which has no learning rate.

    With g = clip(rescale_grad * gradient)::

        h = rho * h + (1 - rho) * g ** 2
        s = sqrt(d + epsilon) / sqrt(h + epsilon) * g
        d = rho * d + (1 - rho) * s ** 2
        w = w - s - wd * w

    Args:
        rho: how slowly the means of squares forget.
        epsilon: keeps the quotient finite, and starts the first steps.
        **kwargs: see `Optimizer`; `learning_rate` has no effect.
    Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, in the form of MXNet 1.9.1.
    """

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        history, travel = group.states
        moves, roots, work = self.gradients(group, grads), group.scratch(1), group.scratch(2)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.mix(history, work.views, 1.0 - self.rho)
        roots.fill(travel).add_(self.epsilon)
        roots.flat.div_(work.fill(history).add_(self.epsilon)).sqrt_()
        moves.flat.mul_(roots.flat)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.mix(travel, work.views, 1.0 - self.rho)
        group.descend(moves.views, 1.0, wd)


@register
class Adamax(_TwoSlots):
    """Adamax: Adam with the largest gradient in place of the mean square.

    With g = clip(rescale_grad * gradient + wd * w) and t the number of updates::

        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, abs(g))
        w = w - lr / (1 - beta1 ** t) * m / (u + 1e-8)

    Args:
        beta1: how slowly the mean m forgets.
        beta2: how slowly the maximum u shrinks.
        **kwargs: see `Optimizer`.
    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014, section 7.1, in the form of MXNet 1.9.1.
    """

    uses_count = True

    def __init__(
        self, learning_rate: float | None = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        means, tops = group.states
        moves, sizes = self.gradients(group, grads, wd), group.scratch(1)
        group.mix(means, moves.views, 1.0 - self.beta1)
        sizes.fill(tops).mul_(self.beta2)
        torch.maximum(sizes.flat, moves.flat.abs_(), out=sizes.flat)
        sizes.write(tops)
        moves.fill(means).div_(sizes.flat.add_(group.visible(1e-8)))
        group.descend(moves.views, lr / (1.0 - self.beta1**count))


@register
class Nadam(_TwoSlots):
    """Nadam: Adam with Nesterov's momentum on a schedule.

    With g = clip(rescale_grad * gradient + wd * w), t the number of updates and
    k(t) = beta1 * (1 - 0.5 * 0.96 ** (t * schedule_decay))::

        p = p * k(t)                                  (one number for all parameters)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2
        b = (1 - k(t)) * g / (1 - p) + k(t + 1) * m / (1 - p * k(t + 1))
        w = w - lr * b / (sqrt(v / (1 - beta2 ** t)) + epsilon)

    Args:
        beta1: how slowly the mean m forgets.
        beta2: how slowly the mean square v forgets.
        schedule_decay: how fast the momentum grows.
        **kwargs: see `Optimizer`.

    Attributes:
        m_schedule: the product p.

    Source: Dozat, "Incorporating Nesterov Momentum into Adam", 2016, in the form of MXNet 1.9.1, whose product p
        advances with every parameter, not with every batch; their order therefore matters.
    """

    uses_count = True
    in_order = True

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def unshared(self) -> str:
        return "it remembers m_schedule, the product over all updates"

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        here, ahead = self._momentum(count), self._momentum(count + 1)
        self.m_schedule *= here
        means, squares = group.states
        moves, work = self.gradients(group, grads, wd), group.scratch(1)
        group.mix(means, moves.views, 1.0 - self.beta1)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.mix(squares, work.views, 1.0 - self.beta2)
        moves.flat.mul_((1.0 - here) / (1.0 - self.m_schedule))
        moves.flat.add_(work.fill(means), alpha=ahead / (1.0 - self.m_schedule * ahead))
        work.fill(squares).div_(1.0 - self.beta2**count).sqrt_().add_(group.visible(self.epsilon))
        moves.flat.div_(work.flat)
        group.descend(moves.views, lr)

    def _momentum(self, count: int) -> float:
        return float(self.beta1 * (1.0 - 0.5 * 0.96 ** (count * self.schedule_decay)))
