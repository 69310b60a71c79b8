"""Optimizers for large batches with layer-wise learning rates: LARS, LAMB and LBSGD."""

from __future__ import annotations

import math
from typing import Any

import torch

from .._devices.device_transfer import tensor_like
from ..base import ArgumentError
from ..ndarray import NDArray
from .base import momentum_of, register
from .group import Group, Key
from .grouped import GroupedOptimizer
from .sgd import MomentumOptimizer, zeros_like

Tensor = torch.Tensor

_LARS_SKIPS = ("gamma", "beta", "bias")


def _scale_each(views: list[Tensor], factors: Tensor) -> None:
    for view, factor in zip(views, factors.unbind(), strict=True):
        view.mul_(factor)


@register
class LARS(MomentumOptimizer):
    """Layer-wise adaptive rate scaling.

    With g = rescale_grad * gradient, and norms over a whole parameter::

        r = eta * norm(w) / (norm(g) + wd * norm(w) + eps)
        m = momentum * m - lr * r * (clip(g) + wd * w)
        w = w + m

    r is 1 if w or g is zero, and for names that end in gamma, beta or bias. By default, only names that end in
    ``_weight`` have weight decay.

    Args:
        momentum: momentum factor; 0 keeps no state.
        lazy_update: accepted for compatibility with MXNet.
        momentum_correction: multiply the momentum by the ratio of the current and the last learning rate, since the
            state contains steps, not gradients.
        **kwargs: see `Optimizer`.

    Attributes:
        cur_lr: learning rate of the last update, before multipliers.
        last_lr: learning rate of the update before that.

    Source: You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, in the form of MXNet
        1.9.1. There, a change of the learning rate corrects the momentum only of the parameters in the first call;
        here, of every parameter.
    """

    decayed = ("_weight",)

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(momentum, **kwargs)
        self.momentum_correction = momentum_correction
        self.lazy_update = lazy_update
        self.aggregate_num = 4
        self.eta = eta
        self.eps = eps
        self.skip = 0
        self.last_lr: float | None = None
        self.cur_lr: float | None = None
        self.rates: dict[Any, float] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"rates": {}, **state})  # not in MXNet's states

    def unshared(self) -> str | None:
        if not (self.momentum and self.momentum_correction):
            return None
        return "with momentum_correction=True it stores the learning rates of the last updates"

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        trust = self._trust(group, group.norms(grads), wd)
        moves = self.gradients(group, grads)
        if wd != 0.0:
            group.add(moves.views, group.weights, wd)
        _scale_each(moves.views, trust)
        keeps = self._keeps(group)
        if not group.states:
            group.descend(moves.views, lr)
        elif keeps.count(keeps[0]) == len(keeps):
            group.momentum_step(moves.views, group.states[0], keeps[0], lr, 0.0)
        else:
            _scale_each(group.states[0], tensor_like(moves.flat, keeps))
            group.momentum_step(moves.views, group.states[0], 1.0, lr, 0.0)

    def _trust(self, group: Group, slopes: Tensor, wd: float) -> Tensor:
        """Return the factor of each parameter's learning rate."""
        sizes = group.norms(group.weights)
        bottom = slopes * abs(float(self.rescale_grad)) + sizes * wd + self.eps
        plain = (sizes == 0.0) | (slopes == 0.0) | (bottom == 0.0)
        if group.cache is None:
            names = [str(self.idx2name.get(key, key)) for key in group.keys]
            group.cache = tensor_like(plain, [name.endswith(_LARS_SKIPS) for name in names], torch.bool)
        return (sizes * self.eta / bottom).masked_fill_(plain.logical_or_(group.cache), 1.0)

    def _keeps(self, group: Group) -> list[float]:
        """Return the momentum factor of each parameter, and record the learning rate."""
        rate = self.learning_rate
        before = [self.rates.get(key, self.cur_lr) for key in group.keys]
        self.last_lr = rate if self.cur_lr is None else self.cur_lr
        self.cur_lr = rate
        self.rates.update(dict.fromkeys(group.keys, rate))
        corrects = self.momentum_correction
        return [self.momentum * (rate / last if corrects and last else 1.0) for last in before]


@register
class LAMB(GroupedOptimizer):
    """Layer-wise adaptive moments.

    With g = clip(rescale_grad * gradient), t the number of updates, and norms over a whole parameter::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2
        s = m' / (sqrt(v') + epsilon) + wd * w        with m' = m / (1 - beta1 ** t), v' = v / (1 - beta2 ** t)
        r = clip(norm(w), lower_bound, upper_bound) / norm(s)
        w = w - lr * r * s

    r is 1 if one of the norms is 0; without `bias_correction`, m' and v' are m and v.

    Args:
        beta1: decay rate of the mean m.
        beta2: decay rate of the mean square v.
        lower_bound: lower bound of the norm of w, or None.
        upper_bound: upper bound of the norm of w, or None.
        bias_correction: correct m and v for their zero initialization.
        **kwargs: see `Optimizer`.
    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019, in the form of
        MXNet 1.9.1.
    """

    uses_count = True

    def __init__(
        self,
        learning_rate: float | None = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction
        self.aggregate_num = 45

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        means, squares = group.states
        moves, roots = self.gradients(group, grads), group.scratch(1)
        group.interpolate(means, moves.views, 1.0 - self.beta1)
        torch.mul(moves.flat, moves.flat, out=roots.flat)
        group.interpolate(squares, roots.views, 1.0 - self.beta2)
        moves.fill(means)
        roots.fill(squares)
        if self.bias_correction:
            moves.flat.div_(1.0 - self.beta1**count)
            roots.flat.div_(1.0 - self.beta2**count)
        moves.flat.div_(roots.flat.sqrt_().add_(group.representable(self.epsilon)))
        if wd != 0.0:
            group.add(moves.views, group.weights, wd)
        _scale_each(moves.views, self._trust(group, moves.views))
        group.descend(moves.views, lr)

    def _trust(self, group: Group, moves: list[Tensor]) -> Tensor:
        """Return the factor of each parameter's learning rate."""
        sizes, slopes = group.norms(group.weights), group.norms(moves)
        if self.lower_bound is not None or self.upper_bound is not None:
            sizes = sizes.clamp(self.lower_bound, self.upper_bound)
        return (sizes / slopes).masked_fill_((sizes == 0.0) | (slopes == 0.0), 1.0)


_WARMUPS = {"linear": 1.0, "power2": 2.0, "sqrt": 0.5}


@register
class LBSGD(GroupedOptimizer):
    """Gradient descent with batches accumulated `batch_scale` times, and a warm-up of the learning rate.

    Every `batch_scale`-th update changes the parameter, where g is the mean of the gradients since the last change::

        m = momentum * m - f * lr * (clip(rescale_grad * g) + wd * w)
        w = w + m

    The factor f increases from 1 to `batch_scale` within `warmup_epochs * updates_per_epoch` updates: linearly
    ("linear"), or with the square ("power2") or the square root ("sqrt") of the progress. For "lars" it is the square
    root of sum(w ** 2) / (sum(g ** 2) + wd * sum(w ** 2)), clipped to [0.01, 100].

    Args:
        momentum: momentum factor; 0 keeps no state.
        multi_precision: see `Optimizer`.
        warmup_strategy: "linear", "power2", "sqrt" or "lars"; any other value means f = 1.
        warmup_epochs: length of the warm-up in epochs.
        batch_scale: number of batches to accumulate.
        updates_per_epoch: number of updates in an epoch.
        begin_epoch: number of previous epochs, which count for the warm-up.
        num_epochs: accepted for compatibility with MXNet.
        **kwargs: see `Optimizer`.

    Attributes:
        cumgrads: by index, the sum of the accumulated gradients (0 for none) as "cum_grad", and their number as
            "num_cums".

    Raises:
        ArgumentError: `batch_scale` is below 1.

    Source: MXNet 1.9.1.
    """

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: int = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(multi_precision=multi_precision, **kwargs)
        if batch_scale < 1:
            raise ArgumentError(f"LBSGD: batch_scale is {batch_scale}, expected at least 1")
        self.momentum = momentum_of(self, momentum)
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.init_updates = begin_epoch * updates_per_epoch
        self.num_epochs = num_epochs
        self.lbmult = 1
        self.cumgrads: dict[Any, dict[str, Any]] = {}
        self.adaptive = warmup_strategy == "lars"
        self.admult = 1

    def create_state(self, index: Key, weight: NDArray) -> NDArray | None:
        return zeros_like(weight) if self.momentum != 0.0 else None

    def _next_rates(self, index: Key) -> tuple[float, float, int]:
        rates = self._get_lr(index), self._get_wd(index)
        self._update_count(index)
        return *rates, self._index_update_count[index]

    def unshared(self) -> str | None:
        return (
            None
            if self.batch_scale == 1
            else f"with batch_scale={self.batch_scale} it accumulates gradients (cumgrads)"
        )

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        mean = self._collect(group, grads[0])
        if mean is None:
            return
        factor = self._adapted(group, mean, wd) if self.adaptive else self._warmup()
        moves = self.gradients(group, [mean])
        if wd != 0.0:
            group.add(moves.views, group.weights, wd)
        moves.flat.mul_(factor)
        if group.states:
            group.momentum_step(moves.views, group.states[0], self.momentum, lr, 0.0)
        else:
            group.descend(moves.views, lr)

    def _collect(self, group: Group, grad: Tensor) -> Tensor | None:
        """Accumulate a gradient; return the mean of a complete large batch, else None."""
        waiting = self.cumgrads.setdefault(group.keys[0], {"cum_grad": 0, "num_cums": self.init_updates})
        waiting["num_cums"] += 1
        if self.batch_scale == 1:
            return grad
        before = waiting["cum_grad"]
        total = before.raw.add_(grad) if isinstance(before, NDArray) else grad.clone()
        complete = waiting["num_cums"] % self.batch_scale == 0
        waiting["cum_grad"] = 0 if complete else NDArray(total, group.context)
        return total.div_(self.batch_scale) if complete else None

    def _warmup(self) -> float:
        """Return the factor of the learning rate during warm-up."""
        if self.warmup_strategy not in _WARMUPS:
            return 1.0
        length = self.warmup_epochs * self.updates_per_epoch
        done = self.num_update + self.init_updates
        share = done / length if done < length else 1.0
        return 1.0 + (self.batch_scale - 1.0) * math.pow(share, _WARMUPS[self.warmup_strategy])

    def _adapted(self, group: Group, mean: Tensor, wd: float) -> Tensor:
        """Return the factor of the learning rate from the norms of parameter and gradient."""
        size, slope = group.norms([*group.weights, mean]).square().unbind()
        return (size / (slope + wd * size + 1e-18)).sqrt().clamp(0.01, 100.0)
