"""Updates of stochastic gradient descent: plain, with momentum, Nesterov's, and by sign."""

from __future__ import annotations

from typing import Any

import torch

from ..attrs import real
from ..dtypes import single
from ..spec import Attr
from .rules import LAZY, LR, SCALING, WD, Rule, mixed, scaled, step, wide_types

Tensor = torch.Tensor

_MOMENTUM = {"momentum": Attr(real, "share of the last step that is kept", 0.0)}
_PLAIN = {**LR, **WD, **SCALING}
_WITH_MOMENTUM = {**LR, **_MOMENTUM, **WD, **SCALING}


def descent(lr: Any, wd: Any, rescale: float, clip: float) -> Rule:
    """Return the rule ``w - lr * (g + wd * w)``; `lr` and `wd` are numbers or tensors."""

    def rule(weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        return (weight - lr * (scaled(grad, rescale, clip) + wd * weight),)

    return rule


def momentum_descent(lr: Any, wd: Any, momentum: float, rescale: float, clip: float) -> Rule:
    """Return the rule ``m = momentum * m - lr * (g + wd * w); w + m``."""

    def rule(weight: Tensor, grad: Tensor, mom: Tensor) -> tuple[Tensor, ...]:
        new = momentum * mom - lr * (scaled(grad, rescale, clip) + wd * weight)
        return weight + new, new

    return rule


def _nesterov(a: Any) -> Rule:
    lr, wd, momentum, rescale, clip = map(single, (a.lr, a.wd, a.momentum, a.rescale_grad, a.clip_gradient))

    def rule(weight: Tensor, grad: Tensor, mom: Tensor) -> tuple[Tensor, ...]:
        g, kept = scaled(grad, rescale, clip), momentum * mom
        new = weight + momentum * kept - (1 + momentum) * lr * (g + wd * weight)
        return new, kept - lr * (g + wd * new)

    return rule


@step("sgd_update", attrs={**_PLAIN, **LAZY}, aliases=("_sparse_sgd_update",))
def sgd_update(a: Any) -> Rule:
    """Update a weight by gradient descent: ``w - lr * (clip(rescale_grad * grad) + wd * w)``.

    Shape:
        weight, grad: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `sgd_update`.
    """
    return descent(*map(single, (a.lr, a.wd, a.rescale_grad, a.clip_gradient)))


@step("sgd_mom_update", ("mom",), {**_WITH_MOMENTUM, **LAZY}, aliases=("_sparse_sgd_mom_update",))
def sgd_mom_update(a: Any) -> Rule:
    """Update a weight by gradient descent with momentum.

    ``mom = momentum * mom - lr * (clip(rescale_grad * grad) + wd * w)`` in place, and ``w + mom``.

    Shape:
        weight, grad, mom: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `sgd_mom_update`.
    """
    return momentum_descent(*map(single, (a.lr, a.wd, a.momentum, a.rescale_grad, a.clip_gradient)))


@step("mp_sgd_update", ("weight32",), {**_PLAIN, **LAZY}, infer_type=wide_types(2))
def mp_sgd_update(a: Any) -> Rule:
    """Update a 16-bit weight as `sgd_update` does, through its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        weight32: the same shape, float32; gets the new weight in place.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_sgd_update`.
    """
    return mixed(sgd_update(a))


@step("mp_sgd_mom_update", ("mom", "weight32"), {**_WITH_MOMENTUM, **LAZY}, infer_type=wide_types(2))
def mp_sgd_mom_update(a: Any) -> Rule:
    """Update a 16-bit weight as `sgd_mom_update` does, through its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        mom, weight32: the same shape, float32; get their new values in place.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_sgd_mom_update`.
    """
    return mixed(sgd_mom_update(a))


@step("nag_mom_update", ("mom",), _WITH_MOMENTUM)
def nag_mom_update(a: Any) -> Rule:
    """Update a weight by Nesterov's accelerated gradient.

    With ``g = clip(rescale_grad * grad)`` the new weight is
    ``w' = w + momentum ** 2 * mom - (1 + momentum) * lr * (g + wd * w)``, and in place
    ``mom = momentum * mom - lr * (g + wd * w')``.

    Shape:
        weight, grad, mom: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `nag_mom_update` under ``out=weight``, where the momentum sees the new weight's decay.
    """
    return _nesterov(a)


@step("mp_nag_mom_update", ("mom", "weight32"), _WITH_MOMENTUM, infer_type=wide_types(2))
def mp_nag_mom_update(a: Any) -> Rule:
    """Update a 16-bit weight as `nag_mom_update` does, through its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        mom, weight32: the same shape, float32; get their new values in place.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_nag_mom_update`.
    """
    return mixed(_nesterov(a))


@step("signsgd_update", attrs=_PLAIN)
def signsgd_update(a: Any) -> Rule:
    """Update a weight by the sign of its gradient: ``(1 - lr * wd) * w - lr * sign(grad)``.

    Shape:
        weight, grad: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `signsgd_update`; rescaling and clipping do not change a sign, and are left out there too.
    """
    lr, wd = single(a.lr), single(a.wd)

    def rule(weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        return ((1 - lr * wd) * weight - lr * grad.sign(),)

    return rule


@step(
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
    lr, wd, momentum, rescale, clip = map(single, (a.lr, a.wd, a.momentum, a.rescale_grad, a.clip_gradient))
    outside = single(a.wd_lh)

    def rule(weight: Tensor, grad: Tensor, mom: Tensor) -> tuple[Tensor, ...]:
        new = momentum * mom - (1 - momentum) * (scaled(grad, rescale, clip) + wd * weight)
        return (1 - lr * outside) * weight + lr * new.sign(), new

    return rule
