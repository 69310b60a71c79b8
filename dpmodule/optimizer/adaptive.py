"""Adaptive optimizers: Adam, AdaGrad, RMSProp, AdaDelta, Adamax and Nadam."""

from __future__ import annotations

import math
from typing import Any

import torch

from .._core import torch_private
from ..ndarray import NDArray
from ..ops.write_tracking import count_write
from .base import register
from .group import Group, Key
from .grouped import GroupedOptimizer
from .sgd import zeros_like

Tensor = torch.Tensor

_SMALLEST = torch.finfo(torch.float32).smallest_normal
"""Smallest epsilon of native code, which uses float32; see `Group.representable`."""


@register
class Adam(GroupedOptimizer):
    """Adam.

    With g = clip(rescale_grad * gradient + wd * w) and t the number of updates::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2
        w = w - lr * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + epsilon)

    Args:
        beta1: decay rate of the mean m.
        beta2: decay rate of the mean square v.
        lazy_update: update only the rows of a row-sparse gradient, and their means.
        **kwargs: see `Optimizer`.
    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014, as in MXNet 1.9.1, where epsilon is added
    to the uncorrected root.
    """

    uses_count = True

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def is_lazy(self, weight: NDArray) -> bool:
        return self.lazy_update

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        if self.limit is not None:
            grads, wd = self.gradients(group, grads, wd).views, 0.0
        elif self.rescale_grad != 1.0:
            grads = self.gradients(group, grads).views
        means, squares = group.states
        call = torch_private.fused_adam if group.fused else torch_private.plain_adam
        call(
            group.weights,
            grads,
            means,
            squares,
            [],
            _steps(group, count),
            lr=lr,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=wd,
            eps=self.epsilon
            / math.sqrt(1.0 - self.beta2**count),  # torch divides the root by the same factor
            amsgrad=False,
            maximize=False,
        )
        if group.fused:
            count_write(group.weights)

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        lr *= math.sqrt(1.0 - self.beta2**count) / (1.0 - self.beta1**count)
        common = super().native_rule(lr, wd, count, slots)
        own = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        return {**common, **own, "kind": "adam"}


def _steps(group: Group, count: int) -> list[Tensor]:
    """Return the step tensors for torch: the same tensor for every parameter."""
    if group.cache is None:
        group.cache = [torch.zeros((), device=group.weights[0].device)] * len(group.weights)
    steps: list[Tensor] = group.cache
    steps[0].fill_(count)
    return steps


@register
class AdaGrad(GroupedOptimizer):
    """AdaGrad.

    With g = clip(rescale_grad * gradient)::

        h = h + g ** 2
        w = w - lr * (g / sqrt(h + eps) + wd * w)

    Args:
        **kwargs: see `Optimizer`.
    Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
        2011, as in MXNet 1.9.1.
    """

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def is_lazy(self, weight: NDArray) -> bool:
        return True

    def create_state(self, index: Key, weight: NDArray) -> NDArray:
        return zeros_like(weight)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        (history,) = group.states
        moves, roots = self.gradients(group, grads), group.scratch(1)
        torch.mul(moves.flat, moves.flat, out=roots.flat)
        group.add(history, roots.views, 1.0)
        roots.fill(history).add_(group.representable(self.float_stable_eps)).sqrt_()
        moves.flat.div_(roots.flat)
        group.descend(moves.views, lr, wd)

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        common = super().native_rule(lr, wd, count, slots)
        return {**common, "kind": "adagrad", "epsilon": max(self.float_stable_eps, _SMALLEST)}


@register
class PlainAdaGrad(AdaGrad):
    """AdaGrad as PyTorch and Paddle compute it: with weight decay in the gradient, and epsilon outside the root.

    With g = clip(rescale_grad * gradient) + wd * w::

        h = h + g ** 2
        w = w - lr * g / (sqrt(h) + eps)

    Args:
        **kwargs: see `Optimizer`.
    Source: Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization",
        2011.
    """

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        (history,) = group.states
        moves, roots = self.gradients(group, grads), group.scratch(1)
        if wd != 0.0:
            group.add(moves.views, group.weights, wd)
        torch.mul(moves.flat, moves.flat, out=roots.flat)
        group.add(history, roots.views, 1.0)
        roots.fill(history).sqrt_().add_(group.representable(self.float_stable_eps))
        moves.flat.div_(roots.flat)
        group.descend(moves.views, lr)

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        return {**super().native_rule(lr, wd, count, slots), "kind": "plain adagrad"}


@register
class RMSProp(GroupedOptimizer):
    """RMSProp, plain or centered.

    With g = clip(rescale_grad * gradient + wd * w), plain::

        n = gamma1 * n + (1 - gamma1) * g ** 2
        w = w - lr * g / sqrt(n + epsilon)

    and centered::

        n = gamma1 * n + (1 - gamma1) * g ** 2
        b = gamma1 * b + (1 - gamma1) * g
        d = gamma2 * d - lr * g / sqrt(n - b ** 2 + epsilon)
        w = w + d

    Args:
        gamma1: decay rate of the means.
        gamma2: momentum of the centered form.
        centered: True for the centered form.
        clip_weights: clip parameters to [-clip_weights, clip_weights] after the step; None, 0 or a negative number
            disables it.
        **kwargs: see `Optimizer`.
    Source: Tieleman and Hinton, lecture 6.5 of "Neural Networks for Machine Learning", 2012; centered: Graves,
        "Generating Sequences With Recurrent Neural Networks", 2013, eq. 38-45; both as in MXNet 1.9.1.
    """

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.centered = centered
        self.epsilon = epsilon
        self.clip_weights = clip_weights

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, ...]:
        return tuple(zeros_like(weight) for _ in range(3 if self.centered else 1))

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        moves, roots = self.gradients(group, grads, wd), group.scratch(1)
        squares = group.states[0]
        torch.mul(moves.flat, moves.flat, out=roots.flat)
        group.interpolate(squares, roots.views, 1.0 - self.gamma1)
        if self.centered:
            _, means, last = group.states
            group.interpolate(means, moves.views, 1.0 - self.gamma1)
            mean = group.scratch(2).fill(means)
            roots.fill(squares).addcmul_(mean, mean, value=-1.0).add_(
                group.representable(self.epsilon)
            ).sqrt_()
            moves.flat.div_(roots.flat)
            group.momentum_step(moves.views, last, self.gamma2, lr, 0.0)
        else:
            roots.fill(squares).add_(group.representable(self.epsilon)).sqrt_()
            moves.flat.div_(roots.flat)
            group.descend(moves.views, lr)
        limit = self.clip_weights
        if limit is not None and limit > 0.0:
            for weight in group.weights:
                weight.clamp_(-limit, limit)

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        own = {"gamma1": self.gamma1, "gamma2": self.gamma2, "clip_weights": self.clip_weights or 0.0}
        common = {**super().native_rule(lr, wd, count, slots), "epsilon": max(self.epsilon, _SMALLEST)}
        return {**common, **own, "kind": "centered" if self.centered else "rmsprop"}


# AdaDelta, Adamax and Nadam


class _TwoSlots(GroupedOptimizer):
    """Base of optimizers with two state arrays per parameter."""

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
        rho: decay rate of the means of squares.
        epsilon: avoids division by zero, and determines the first steps.
        **kwargs: see `Optimizer`; `learning_rate` has no effect.
    Source: Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, as in MXNet 1.9.1.
    """

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        history, travel = group.states
        moves, roots, work = self.gradients(group, grads), group.scratch(1), group.scratch(2)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.interpolate(history, work.views, 1.0 - self.rho)
        roots.fill(travel).add_(self.epsilon)
        roots.flat.div_(work.fill(history).add_(self.epsilon)).sqrt_()
        moves.flat.mul_(roots.flat)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.interpolate(travel, work.views, 1.0 - self.rho)
        group.descend(moves.views, 1.0, wd)


@register
class Adamax(_TwoSlots):
    """Adamax: Adam with the largest gradient in place of the mean square.

    With g = clip(rescale_grad * gradient + wd * w) and t the number of updates::

        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, abs(g))
        w = w - lr / (1 - beta1 ** t) * m / (u + 1e-8)

    Args:
        beta1: decay rate of the mean m.
        beta2: decay rate of the maximum u.
        **kwargs: see `Optimizer`.
    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2014, section 7.1, as in MXNet 1.9.1.
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
        group.interpolate(means, moves.views, 1.0 - self.beta1)
        sizes.fill(tops).mul_(self.beta2)
        torch.maximum(sizes.flat, moves.flat.abs_(), out=sizes.flat)
        sizes.write(tops)
        moves.fill(means).div_(sizes.flat.add_(group.representable(1e-8)))
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
        beta1: decay rate of the mean m.
        beta2: decay rate of the mean square v.
        schedule_decay: growth rate of the momentum.
        **kwargs: see `Optimizer`.

    Attributes:
        m_schedule: the product p.

    Source: Dozat, "Incorporating Nesterov Momentum into Adam", 2016, as in MXNet 1.9.1, where the product p is updated
    for every parameter, not for every batch, so that their order matters.
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
        return "it stores m_schedule, the product over all updates"

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        momentum, ahead = self._momentum(count), self._momentum(count + 1)
        self.m_schedule *= momentum
        means, squares = group.states
        moves, work = self.gradients(group, grads, wd), group.scratch(1)
        group.interpolate(means, moves.views, 1.0 - self.beta1)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.interpolate(squares, work.views, 1.0 - self.beta2)
        moves.flat.mul_((1.0 - momentum) / (1.0 - self.m_schedule))
        moves.flat.add_(work.fill(means), alpha=ahead / (1.0 - self.m_schedule * ahead))
        work.fill(squares).div_(1.0 - self.beta2**count).sqrt_().add_(group.representable(self.epsilon))
        moves.flat.div_(work.flat)
        group.descend(moves.views, lr)

    def _momentum(self, count: int) -> float:
        return float(self.beta1 * (1.0 - 0.5 * 0.96 ** (count * self.schedule_decay)))
