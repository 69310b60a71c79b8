"""Optimizers that follow the leader: the point that was best for all gradients so far. Ftrl and FTML."""

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


@register
class Ftrl(GroupedOptimizer):
    """Follow the regularized leader; small parameters become 0.

    With g = clip(rescale_grad * gradient)::

        z = z + g - (sqrt(n + g ** 2) - sqrt(n)) * w / lr
        n = n + g ** 2
        w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)    where abs(z) > lamda1
        w = 0                                                        elsewhere

    Args:
        lamda1: strength of the absolute penalty (L1).
        learning_rate: the rate. At 0 parameter and state stay as they are, where MXNet makes NaN. With an
            `lr_scheduler` it has no effect: the schedule begins with its own `base_lr`.
        beta: the larger, the more the rates of rarely and often used parameters are alike.
        **kwargs: see `Optimizer`.
    Source: McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013, in the form of MXNet 1.9.1.
    """

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float | None = 0.1, beta: float = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.lr = learning_rate  # a schedule keeps its own
        self.lamda1 = lamda1
        self.beta = beta

    def is_lazy(self, weight: NDArray) -> bool:
        return weight.stype == "row_sparse"

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        if lr == 0.0:
            return
        leaders, squares = group.states
        moves, growth, roots = self.gradients(group, grads), group.scratch(1), group.scratch(2)
        growth.fill(squares).sqrt_()
        torch.mul(moves.flat, moves.flat, out=roots.flat)
        group.add(squares, roots.views, 1.0)
        roots.fill(squares).sqrt_()
        growth.flat.sub_(roots.flat).mul_(group.scratch(3).fill(group.weights))
        moves.flat.add_(growth.flat, alpha=1.0 / lr)
        group.add(leaders, moves.views, 1.0)
        moves.fill(leaders)
        torch.clamp(moves.flat, -self.lamda1, self.lamda1, out=growth.flat)
        growth.flat.sub_(moves.flat).div_(roots.flat.add_(self.beta).div_(lr).add_(wd))
        growth.write(group.weights)

    def native_rule(self, lr: float, wd: float, count: int, slots: int) -> dict[str, float | str]:
        common = super().native_rule(lr, wd, count, slots)
        return {**common, "kind": "ftrl", "lamda1": self.lamda1, "beta": self.beta}


@register
class FTML(GroupedOptimizer):
    """Follow the moving leader.

    With g = clip(rescale_grad * gradient + wd * w) and t the number of updates::

        v = beta2 * v + (1 - beta2) * g ** 2
        e = (1 - beta1 ** t) / lr * (sqrt(v / (1 - beta2 ** t)) + epsilon)
        z = beta1 * z + (1 - beta1) * g - (e - beta1 * d) * w
        d = e
        w = -z / d

    Args:
        beta1: how slowly the leader z forgets.
        beta2: how slowly the mean square v forgets.
        **kwargs: see `Optimizer`. At learning rate 0 parameter and state stay as they are, where MXNet makes NaN.
    Source: Zheng and Kwok, "Follow the Moving Leader in Deep Learning", 2017, in the form of MXNet 1.9.1.
    """

    uses_count = True

    def __init__(
        self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight), zeros_like(weight)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        if lr == 0.0:
            return
        curves, squares, leaders = group.states
        moves, scales, work = self.gradients(group, grads, wd), group.scratch(1), group.scratch(2)
        torch.mul(moves.flat, moves.flat, out=work.flat)
        group.mix(squares, work.views, 1.0 - self.beta2)
        scales.fill(squares).div_(1.0 - self.beta2**count).sqrt_().add_(group.visible(self.epsilon))
        scales.flat.mul_((1.0 - self.beta1**count) / lr)
        work.fill(curves).mul_(-self.beta1).add_(scales.flat)
        scales.write(curves)
        work.flat.mul_(group.scratch(3).fill(group.weights))
        moves.flat.mul_(1.0 - self.beta1).sub_(work.flat)
        moves.flat.add_(work.fill(leaders), alpha=self.beta1)
        moves.write(leaders)
        moves.flat.div_(scales.flat).neg_()
        moves.write(group.weights)
