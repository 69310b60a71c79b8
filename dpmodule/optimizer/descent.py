"""Variants of gradient descent: Signum, SGLD, DCASGD, Ftrl and FTML."""

from __future__ import annotations

import math
from typing import Any

import torch

from .._core import torch_private
from .._devices import generators
from ..ndarray import NDArray
from ..ops import distributions
from .base import momentum_of, register
from .group import HALF, Group, Key
from .grouped import GroupedOptimizer
from .sgd import zeros_like

Tensor = torch.Tensor


@register
class Signum(GroupedOptimizer):
    """Signum: steps by the sign of the momentum, or of the gradient without momentum (SignSGD).

    With g = clip(rescale_grad * gradient)::

        m = momentum * m - (1 - momentum) * (g + wd * w)
        w = (1 - lr * wd_lh) * w + lr * sign(m)

    and without momentum::

        w = (1 - lr * wd) * w - lr * sign(gradient)

    Args:
        momentum: momentum factor; 0 for SignSGD, which has no state.
        wd_lh: decoupled weight decay (Loshchilov and Hutter); ignored without momentum, where MXNet raises an error.
        **kwargs: see `Optimizer`.
    Source: Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", 2018, in the form of MXNet
        1.9.1 (`signum_update`, `signsgd_update`; the latter ignores `rescale_grad`, even a negative one).
    """

    def __init__(
        self, learning_rate: float | None = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum_of(self, momentum)
        self.wd_lh = wd_lh

    def create_state(self, index: Key, weight: NDArray) -> NDArray | None:
        return zeros_like(weight) if self.momentum != 0.0 else None

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        if not group.states:
            signs = group.scaled(grads, 1.0)
            signs.flat.sign_()
            group.descend(signs.views, lr, wd)
            return
        (momenta,) = group.states
        moves = self.gradients(group, grads)
        if wd != 0.0:
            group.add(moves.views, group.weights, wd)
        moves.flat.neg_()
        group.interpolate(momenta, moves.views, 1.0 - self.momentum)
        moves.fill(momenta).sign_()
        group.descend(moves.views, -lr, -self.wd_lh)


@register
class SGLD(GroupedOptimizer):
    """Stochastic gradient Langevin dynamics: half a step of gradient descent plus noise.

    With g = clip(rescale_grad * gradient) and e normally distributed with standard deviation sqrt(lr)::

        w = w - lr / 2 * (g + wd * w) + e

    The noise of each parameter, in the order of updates, equals ``mx.nd.random.normal(0, sqrt(lr), shape, dtype,
    ctx)``.

    Args:
        **unknown: unknown arguments; any of them raises an error that lists the valid names.
        **kwargs: see `Optimizer`.
    Source: Welling and Teh, "Bayesian Learning via Stochastic Gradient Langevin Dynamics", 2011, in the form of MXNet
        1.9.1.
    """

    in_order = True

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        group.descend(self.gradients(group, grads).views, lr / 2.0, wd)
        generator = generators.generator(group.context)
        for weight in group.weights:
            wide = torch.float32 if weight.dtype in HALF else weight.dtype
            noise = torch.empty(weight.shape, dtype=wide, device=weight.device)
            weight.add_(distributions.normal(noise, generator, 0.0, math.sqrt(lr)).to(weight.dtype))


@register
class DCASGD(GroupedOptimizer):
    """Gradient descent with compensation for delayed gradients.

    With g = clip(rescale_grad * gradient) and w' the parameter before the last update::

        m = momentum * m - lr * (g + wd * w + lamda * g ** 2 * (w - w'))
        w' = w
        w = w + m

    Args:
        momentum: momentum factor; 0 keeps no momentum.
        **kwargs: see `Optimizer`.
    Source: Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", 2016, in the form of MXNet
        1.9.1, which fails with a momentum.
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum_of(self, momentum)
        self.weight_previous: dict[Any, NDArray] = {}
        self.lamda = lamda

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray | None, NDArray]:
        return zeros_like(weight) if self.momentum != 0.0 else None, NDArray(
            weight.raw.clone(), weight.context
        )

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        *momenta, before = group.states
        moves, drift = self.gradients(group, grads), group.scratch(1)
        drift.fill(group.weights).sub_(group.scratch(2).fill(before))
        drift.flat.mul_(moves.flat).mul_(moves.flat)
        moves.flat.add_(drift.flat, alpha=self.lamda)
        torch_private.foreach_copy(before, group.weights)
        if momenta:
            group.momentum_step(moves.views, momenta[0], self.momentum, lr, wd)
        else:
            group.descend(moves.views, lr, wd)


# Ftrl and FTML


@register
class Ftrl(GroupedOptimizer):
    """Follow the regularized leader, with sparse parameters.

    With g = clip(rescale_grad * gradient)::

        z = z + g - (sqrt(n + g ** 2) - sqrt(n)) * w / lr
        n = n + g ** 2
        w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)    where abs(z) > lamda1
        w = 0                                                        elsewhere

    Args:
        lamda1: strength of the absolute penalty (L1).
        learning_rate: the learning rate. At 0, parameter and state are unchanged, where MXNet returns NaN. Ignored with
            an `lr_scheduler`, which starts from its own `base_lr`.
        beta: larger values reduce the difference between the rates of frequent and rare parameters.
        **kwargs: see `Optimizer`.
    Source: McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013, as in MXNet 1.9.1.
    """

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float | None = 0.1, beta: float = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.lr = learning_rate  # a schedule keeps its own `base_lr`
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
        beta1: decay rate of the leader z.
        beta2: decay rate of the mean square v.
        **kwargs: see `Optimizer`. At learning rate 0, parameter and state are unchanged, where MXNet returns NaN.
    Source: Zheng and Kwok, "Follow the Moving Leader in Deep Learning", 2017, as in MXNet 1.9.1.
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
        group.interpolate(squares, work.views, 1.0 - self.beta2)
        scales.fill(squares).div_(1.0 - self.beta2**count).sqrt_().add_(group.representable(self.epsilon))
        scales.flat.mul_((1.0 - self.beta1**count) / lr)
        work.fill(curves).mul_(-self.beta1).add_(scales.flat)
        scales.write(curves)
        work.flat.mul_(group.scratch(3).fill(group.weights))
        moves.flat.mul_(1.0 - self.beta1).sub_(work.flat)
        moves.flat.add_(work.fill(leaders), alpha=self.beta1)
        moves.write(leaders)
        moves.flat.div_(scales.flat).neg_()
        moves.write(group.weights)
