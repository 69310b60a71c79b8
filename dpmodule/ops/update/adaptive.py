"""Updates by gradient descent, and with rates adapted by sums of squares: FTRL, RMSProp, AdaGrad."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape
from ..attrs import real
from ..dtypes import as_float32
from ..shapes import unify
from ..spec import Attr, Shapes
from .rules import (
    LAZY,
    LR,
    SCALING,
    WD,
    Rule,
    clip_values,
    float32_types,
    rescaled,
    rescaled_with_decay,
    update_op,
    with_float32_copy,
)

Tensor = torch.Tensor

_MOMENTUM = {"momentum": Attr(real, "decay of the last step", 0.0)}
_PLAIN = {**LR, **WD, **SCALING}
_WITH_MOMENTUM = {**LR, **_MOMENTUM, **WD, **SCALING}


def descent(lr: Any, wd: Any, rescale: float, clip: float) -> Rule:
    """Return the rule ``w - lr * (g + wd * w)``; `lr` and `wd` are numbers or tensors."""

    def rule(weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        return (weight - lr * (rescaled(grad, rescale, clip) + wd * weight),)

    return rule


def momentum_descent(lr: Any, wd: Any, momentum: float, rescale: float, clip: float) -> Rule:
    """Return the rule ``m = momentum * m - lr * (g + wd * w); w + m``."""

    def rule(weight: Tensor, grad: Tensor, mom: Tensor) -> tuple[Tensor, ...]:
        new = momentum * mom - lr * (rescaled(grad, rescale, clip) + wd * weight)
        return weight + new, new

    return rule


def _nesterov(a: Any) -> Rule:
    lr, wd, momentum, rescale, clip = map(
        as_float32, (a.lr, a.wd, a.momentum, a.rescale_grad, a.clip_gradient)
    )

    def rule(weight: Tensor, grad: Tensor, mom: Tensor) -> tuple[Tensor, ...]:
        g, kept = rescaled(grad, rescale, clip), momentum * mom
        new = weight + momentum * kept - (1 + momentum) * lr * (g + wd * weight)
        return new, kept - lr * (g + wd * new)

    return rule


@update_op("sgd_update", attrs={**_PLAIN, **LAZY}, aliases=("_sparse_sgd_update",))
def sgd_update(a: Any) -> Rule:
    """Update a weight by gradient descent: ``w - lr * (clip(rescale_grad * grad) + wd * w)``.

    Shape:
        weight, grad: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `sgd_update`.
    """
    return descent(*map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_gradient)))


@update_op("sgd_mom_update", ("mom",), {**_WITH_MOMENTUM, **LAZY}, aliases=("_sparse_sgd_mom_update",))
def sgd_mom_update(a: Any) -> Rule:
    """Update a weight by gradient descent with momentum.

    ``mom = momentum * mom - lr * (clip(rescale_grad * grad) + wd * w)`` in place, and ``w + mom``.

    Shape:
        weight, grad, mom: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `sgd_mom_update`.
    """
    return momentum_descent(*map(as_float32, (a.lr, a.wd, a.momentum, a.rescale_grad, a.clip_gradient)))


@update_op("mp_sgd_update", ("weight32",), {**_PLAIN, **LAZY}, infer_type=float32_types(2))
def mp_sgd_update(a: Any) -> Rule:
    """Update a 16-bit weight like `sgd_update`, with its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        weight32: the same shape, float32; updated in place.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_sgd_update`.
    """
    return with_float32_copy(sgd_update(a))


@update_op("mp_sgd_mom_update", ("mom", "weight32"), {**_WITH_MOMENTUM, **LAZY}, infer_type=float32_types(2))
def mp_sgd_mom_update(a: Any) -> Rule:
    """Update a 16-bit weight like `sgd_mom_update`, with its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        mom, weight32: the same shape, float32; updated in place.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_sgd_mom_update`.
    """
    return with_float32_copy(sgd_mom_update(a))


@update_op("nag_mom_update", ("mom",), _WITH_MOMENTUM)
def nag_mom_update(a: Any) -> Rule:
    """Update a weight by Nesterov's accelerated gradient.

    With ``g = clip(rescale_grad * grad)`` the new weight is
    ``w' = w + momentum ** 2 * mom - (1 + momentum) * lr * (g + wd * w)``, and in place
    ``mom = momentum * mom - lr * (g + wd * w')``.

    Shape:
        weight, grad, mom: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `nag_mom_update` with ``out=weight``, where the momentum includes the new weight's decay.
    """
    return _nesterov(a)


@update_op("mp_nag_mom_update", ("mom", "weight32"), _WITH_MOMENTUM, infer_type=float32_types(2))
def mp_nag_mom_update(a: Any) -> Rule:
    """Update a 16-bit weight like `nag_mom_update`, with its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        mom, weight32: the same shape, float32; updated in place.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_nag_mom_update`.
    """
    return with_float32_copy(_nesterov(a))


@update_op("signsgd_update", attrs=_PLAIN)
def signsgd_update(a: Any) -> Rule:
    """Update a weight by the sign of its gradient: ``(1 - lr * wd) * w - lr * sign(grad)``.

    Shape:
        weight, grad: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `signsgd_update`; rescaling and clipping do not change a sign and are omitted, also there.
    """
    lr, wd = as_float32(a.lr), as_float32(a.wd)

    def rule(weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        return ((1 - lr * wd) * weight - lr * grad.sign(),)

    return rule


@update_op(
    "signum_update",
    ("mom",),
    {**_WITH_MOMENTUM, "wd_lh": Attr(real, "weight decay outside the momentum", 0.0)},
)
def signum_update(a: Any) -> Rule:
    """Update a weight by the sign of its momentum.

    ``mom = momentum * mom - (1 - momentum) * (clip(rescale_grad * grad) + wd * w)`` in place, and
    ``(1 - lr * wd_lh) * w + lr * sign(mom)``.

    Shape:
        weight, grad, mom: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `signum_update`; Bernstein et al., "signSGD", 2018.
    """
    lr, wd, momentum, rescale, clip = map(
        as_float32, (a.lr, a.wd, a.momentum, a.rescale_grad, a.clip_gradient)
    )
    outside = as_float32(a.wd_lh)

    def rule(weight: Tensor, grad: Tensor, mom: Tensor) -> tuple[Tensor, ...]:
        new = momentum * mom - (1 - momentum) * (rescaled(grad, rescale, clip) + wd * weight)
        return (1 - lr * outside) * weight + lr * new.sign(), new

    return rule


@update_op(
    "ftrl_update",
    ("z", "n"),
    {
        **LR,
        "lamda1": Attr(real, "strength of the L1 penalty, which sets weights to zero", 0.01),
        "beta": Attr(real, "reduces the first steps", 1.0),
        **WD,
        **SCALING,
    },
    aliases=("_sparse_ftrl_update",),
)
def ftrl_update(a: Any) -> Rule:
    """Update a weight by FTRL ("follow the regularized leader").

    With ``g = clip(rescale_grad * grad)``, in place ``z = z + g - (sqrt(n + g ** 2) - sqrt(n)) * w / lr`` and
    ``n = n + g ** 2``; and ``-sign(z) * max(|z| - lamda1, 0) / ((beta + sqrt(n)) / lr + wd)``.

    Shape:
        weight, grad, z, n: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `ftrl_update`; McMahan et al., "Ad click prediction", 2013.
    """
    lr, wd, rescale, clip = map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    lamda1, beta = as_float32(a.lamda1), as_float32(a.beta)

    def rule(weight: Tensor, grad: Tensor, z: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        g = rescaled(grad, rescale, clip)
        new_n = n + g * g
        new_z = z + g - (new_n.sqrt() - n.sqrt()) * weight / lr
        shrunk = new_z.sign() * (new_z.abs() - lamda1).clamp(min=0)
        return -shrunk / ((beta + new_n.sqrt()) / lr + wd), new_z, new_n

    return rule


_RMSPROP = {
    "epsilon": Attr(real, "added to the denominator", 1e-8),
    **WD,
    **SCALING,
    "clip_weights": Attr(real, "the new weight is clipped to [-this, this]; if negative, not clipped", -1.0),
}
_GAMMA1 = {"gamma1": Attr(real, "decay of the running means", 0.95)}


@update_op("rmsprop_update", ("n",), {**LR, **_GAMMA1, **_RMSPROP})
def rmsprop_update(a: Any) -> Rule:
    """Update a weight by Tieleman and Hinton's RMSProp.

    With ``g = clip(rescale_grad * grad + wd * w)``, in place ``n = gamma1 * n + (1 - gamma1) * g ** 2``; and
    ``w - lr * g / sqrt(n + epsilon)``.

    Shape:
        weight, grad, n: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `rmsprop_update`.
    """
    lr, wd, rescale, clip = map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    gamma, epsilon, limit = map(as_float32, (a.gamma1, a.epsilon, a.clip_weights))

    def rule(weight: Tensor, grad: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        g = rescaled_with_decay(grad, rescale, weight, wd, clip)
        new_n = gamma * n + (1 - gamma) * g * g
        return clip_values(weight - lr * g / (new_n + epsilon).sqrt(), limit), new_n

    return rule


@update_op(
    "rmspropalex_update",
    ("n", "g", "delta"),
    {**LR, **_GAMMA1, "gamma2": Attr(real, "momentum", 0.9), **_RMSPROP},
)
def rmspropalex_update(a: Any) -> Rule:
    """Update a weight by Graves' RMSProp, which subtracts the squared mean.

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
    lr, wd, rescale, clip = map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    gamma, keep, epsilon, limit = map(as_float32, (a.gamma1, a.gamma2, a.epsilon, a.clip_weights))

    def rule(weight: Tensor, grad: Tensor, n: Tensor, g: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        r = rescaled_with_decay(grad, rescale, weight, wd, clip)
        new_n = gamma * n + (1 - gamma) * r * r
        new_g = gamma * g + (1 - gamma) * r
        new = keep * delta - lr * r / (new_n - new_g * new_g + epsilon).sqrt()
        return clip_values(weight + new, limit), new_n, new_g, new

    return rule


@update_op(
    "_sparse_adagrad_update",
    ("history",),
    {**LR, "epsilon": Attr(real, "added to the denominator", 1e-7), **WD, **SCALING},
)
def adagrad_update(a: Any) -> Rule:
    """Update a weight by AdaGrad; a row-sparse gradient only updates its stored rows.

    With ``g = clip(rescale_grad * grad)``, in place ``history = history + g ** 2``; and
    ``w - lr * g / sqrt(history + epsilon)``.

    Shape:
        weight, grad, history: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `_sparse_adagrad_update`, which only takes row-sparse gradients and no weight decay; here
    a dense gradient updates all rows, and the decay is added to the gradient.
    """
    lr, wd, rescale, clip = map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    epsilon = as_float32(a.epsilon)

    def rule(weight: Tensor, grad: Tensor, history: Tensor) -> tuple[Tensor, ...]:
        g = rescaled(grad, rescale, clip)
        if wd:
            g = g + wd * weight
        new = history + g * g
        return weight - lr * g / (new + epsilon).sqrt(), new

    return rule


def _row_sums(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for weight, gradient and output; the history has one number per row."""
    weight = unify(unify(ins[0], ins[1], "weight and grad"), outs[0], "weight and output")
    history = None if weight is None else (weight[0], *[1] * (len(weight) - 1))
    return [weight, weight, unify(ins[2], history, "history")], [weight]


@update_op(
    "_contrib_group_adagrad_update",
    ("history",),
    {**LR, **SCALING, "epsilon": Attr(real, "added to the denominator", 1e-5)},
    infer=_row_sums,
)
def group_adagrad_update(a: Any) -> Rule:
    """Update a weight by AdaGrad with one rate per row.

    With ``g = clip(rescale_grad * grad)``, in place ``history = history + mean(g ** 2)`` over each row; and
    ``w - lr * g / sqrt(history + epsilon)``.

    Shape:
        weight, grad: (rows, columns), one type.
        history: (rows, 1).
        returns: the new weight, of the weight's shape.

    Source: MXNet 1.9.1 `_contrib_group_adagrad_update`, which only takes row-sparse gradients.
    """
    lr, rescale, clip, epsilon = map(as_float32, (a.lr, a.rescale_grad, a.clip_gradient, a.epsilon))

    def rule(weight: Tensor, grad: Tensor, history: Tensor) -> tuple[Tensor, ...]:
        g = rescaled(grad, rescale, clip)
        new = history + g.square().flatten(1).mean(1).view(history.shape)
        return weight - lr * g / (new + epsilon).sqrt(), new

    return rule
