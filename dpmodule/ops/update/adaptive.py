"""Updates whose rates adapt by sums of squares: FTRL, RMSProp, AdaGrad."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape
from ..attrs import real
from ..dtypes import single
from ..shapes import unify
from ..spec import Attr, Shapes
from .rules import LR, SCALING, WD, Rule, cut, scaled, scaled_with_decay, step

Tensor = torch.Tensor


@step(
    "ftrl_update",
    ("z", "n"),
    {
        **LR,
        "lamda1": Attr(real, "strength of the L1 penalty, which makes weights zero", 0.01),
        "beta": Attr(real, "slows the first steps", 1.0),
        **WD,
        **SCALING,
    },
    aliases=("_sparse_ftrl_update",),
)
def ftrl_update(a: Any) -> Rule:
    """Update a weight by following the regularized leader.

    With ``g = clip(rescale_grad * grad)``, in place ``z = z + g - (sqrt(n + g ** 2) - sqrt(n)) * w / lr`` and
    ``n = n + g ** 2``; and ``-sign(z) * max(|z| - lamda1, 0) / ((beta + sqrt(n)) / lr + wd)``.

    Shape:
        weight, grad, z, n: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `ftrl_update`; McMahan et al., "Ad click prediction", 2013.
    """
    lr, wd, rescale, clip = map(single, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    lamda1, beta = single(a.lamda1), single(a.beta)

    def rule(weight: Tensor, grad: Tensor, z: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        g = scaled(grad, rescale, clip)
        new_n = n + g * g
        new_z = z + g - (new_n.sqrt() - n.sqrt()) * weight / lr
        shrunk = new_z.sign() * (new_z.abs() - lamda1).clamp(min=0)
        return -shrunk / ((beta + new_n.sqrt()) / lr + wd), new_z, new_n

    return rule


_RMSPROP = {
    "epsilon": Attr(real, "keeps the quotient finite", 1e-8),
    **WD,
    **SCALING,
    "clip_weights": Attr(real, "the new weight is cut to [-this, this]; negative leaves it", -1.0),
}
_GAMMA1 = {"gamma1": Attr(real, "share of the running means that is kept", 0.95)}


@step("rmsprop_update", ("n",), {**LR, **_GAMMA1, **_RMSPROP})
def rmsprop_update(a: Any) -> Rule:
    """Update a weight by RMSProp in the version of Tieleman and Hinton.

    With ``g = clip(rescale_grad * grad + wd * w)``, in place ``n = gamma1 * n + (1 - gamma1) * g ** 2``; and
    ``w - lr * g / sqrt(n + epsilon)``.

    Shape:
        weight, grad, n: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `rmsprop_update`.
    """
    lr, wd, rescale, clip = map(single, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    gamma, epsilon, limit = map(single, (a.gamma1, a.epsilon, a.clip_weights))

    def rule(weight: Tensor, grad: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        g = scaled_with_decay(grad, rescale, weight, wd, clip)
        new_n = gamma * n + (1 - gamma) * g * g
        return cut(weight - lr * g / (new_n + epsilon).sqrt(), limit), new_n

    return rule


@step(
    "rmspropalex_update",
    ("n", "g", "delta"),
    {**LR, **_GAMMA1, "gamma2": Attr(real, "share of the last step that is kept", 0.9), **_RMSPROP},
)
def rmspropalex_update(a: Any) -> Rule:
    """Update a weight by RMSProp in the version of Graves, which subtracts the squared mean.

    With ``r = clip(rescale_grad * grad + wd * w)``, in place::

        n = gamma1 * n + (1 - gamma1) * r ** 2
        g = gamma1 * g + (1 - gamma1) * r
        delta = gamma2 * delta - lr * r / sqrt(n - g ** 2 + epsilon)

    and ``w + delta``.

    Shape:
        weight, grad, n, g, delta: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `rmspropalex_update`; Graves, "Generating sequences with recurrent neural networks", 2013.
    """
    lr, wd, rescale, clip = map(single, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    gamma, keep, epsilon, limit = map(single, (a.gamma1, a.gamma2, a.epsilon, a.clip_weights))

    def rule(weight: Tensor, grad: Tensor, n: Tensor, g: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        r = scaled_with_decay(grad, rescale, weight, wd, clip)
        new_n = gamma * n + (1 - gamma) * r * r
        new_g = gamma * g + (1 - gamma) * r
        new = keep * delta - lr * r / (new_n - new_g * new_g + epsilon).sqrt()
        return cut(weight + new, limit), new_n, new_g, new

    return rule


@step(
    "_sparse_adagrad_update",
    ("history",),
    {**LR, "epsilon": Attr(real, "keeps the quotient finite", 1e-7), **WD, **SCALING},
)
def adagrad_update(a: Any) -> Rule:
    """Update a weight by AdaGrad; of a row-sparse gradient only the rows that it stores.

    With ``g = clip(rescale_grad * grad)``, in place ``history = history + g ** 2``; and
    ``w - lr * g / sqrt(history + epsilon)``.

    Shape:
        weight, grad, history: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `_sparse_adagrad_update`, which takes row-sparse gradients only, and no weight decay; here
    a dense gradient updates all rows, and the decay joins the gradient.
    """
    lr, wd, rescale, clip = map(single, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    epsilon = single(a.epsilon)

    def rule(weight: Tensor, grad: Tensor, history: Tensor) -> tuple[Tensor, ...]:
        g = scaled(grad, rescale, clip)
        if wd:
            g = g + wd * weight
        new = history + g * g
        return weight - lr * g / (new + epsilon).sqrt(), new

    return rule


def _row_sums(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Weight, gradient and output share a shape; the history has one number for each row."""
    weight = unify(unify(ins[0], ins[1], "weight and grad"), outs[0], "weight and output")
    history = None if weight is None else (weight[0], *[1] * (len(weight) - 1))
    return [weight, weight, unify(ins[2], history, "history")], [weight]


@step(
    "_contrib_group_adagrad_update",
    ("history",),
    {**LR, **SCALING, "epsilon": Attr(real, "keeps the quotient finite", 1e-5)},
    infer=_row_sums,
)
def group_adagrad_update(a: Any) -> Rule:
    """Update a weight by AdaGrad with one rate for each row.

    With ``g = clip(rescale_grad * grad)``, in place ``history = history + mean(g ** 2)`` over each row; and
    ``w - lr * g / sqrt(history + epsilon)``.

    Shape:
        weight, grad: (rows, columns), one type.
        history: (rows, 1).
        returns: the new weight, of the weight's shape.

    Source: MXNet 1.9.1 `_contrib_group_adagrad_update`, which takes row-sparse gradients only.
    """
    lr, rescale, clip, epsilon = map(single, (a.lr, a.rescale_grad, a.clip_gradient, a.epsilon))

    def rule(weight: Tensor, grad: Tensor, history: Tensor) -> tuple[Tensor, ...]:
        g = scaled(grad, rescale, clip)
        new = history + g.square().flatten(1).mean(1).view(history.shape)
        return weight - lr * g / (new + epsilon).sqrt(), new

    return rule
