"""Optimizers of MXNet's contrib package: GroupAdaGrad."""

from __future__ import annotations

from typing import Any

import torch

from .._core import lazy
from ..base import ArgumentError, ShapeError
from ..ndarray import NDArray
from .base import register
from .group import Group, Key
from .grouped import GroupedOptimizer

__all__ = ["GroupAdaGrad"]

lazy.publish(__name__, __all__)

Tensor = torch.Tensor


@register
class GroupAdaGrad(GroupedOptimizer):
    """AdaGrad with one learning rate per row, such as a word's embedding.

    With g = clip(rescale_grad * gradient) and the mean over all axes but the first::

        h = h + mean(g ** 2)
        w = w - lr * g / sqrt(h + eps)

    Args:
        **kwargs: see `Optimizer`; `wd` must be 0.
    """

    def __init__(self, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.wd != 0.0:
            raise ArgumentError(f"GroupAdaGrad: wd is {self.wd}, expected 0; the rule has no weight decay")
        self.float_stable_eps = eps

    def is_lazy(self, weight: NDArray) -> bool:
        return True

    def create_state(self, index: Key, weight: NDArray) -> NDArray:
        if weight.ndim != 2:
            raise ShapeError(f"GroupAdaGrad: parameter {index!r} has shape {weight.shape}, expected 2 axes")
        return NDArray(weight.raw.new_zeros((weight.shape[0], 1)), weight.context)

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        moves = self.gradients(group, grads)
        (history,) = group.states
        for rows, move in zip(history, moves.views, strict=True):
            rows.add_(move.square().mean(1, keepdim=True))
            move.div_((rows + group.representable(self.float_stable_eps)).sqrt_())
        group.descend(moves.views, lr)
