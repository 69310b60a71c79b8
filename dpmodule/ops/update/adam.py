"""Updates with running means and variances of the gradient: Adam, AdamW, FTML, LAMB."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape
from ..attrs import boolean, integer, real
from ..dtypes import as_float32
from ..shapes import unify
from ..spec import Attr, Shapes
from .rules import (
    BETAS,
    CLIP,
    LAZY,
    LR,
    RESCALE,
    SCALING,
    WD,
    Rule,
    bias_correction,
    check_float32,
    float32_types,
    rescaled,
    rescaled_with_decay,
    update_op,
    with_float32_copy,
)

Tensor = torch.Tensor


def _epsilon(value: float) -> dict[str, Attr]:
    return {"epsilon": Attr(real, "added to the denominator", value)}


@update_op(
    "adam_update",
    ("mean", "var"),
    {**LR, **BETAS, **_epsilon(1e-8), **WD, **SCALING, **LAZY},
    aliases=("_sparse_adam_update",),
)
def adam_update(a: Any) -> Rule:
    """Update a weight by Adam, without bias correction.

    With ``g = clip(rescale_grad * grad + wd * w)``, in place ``mean = beta1 * mean + (1 - beta1) * g`` and
    ``var = beta2 * var + (1 - beta2) * g ** 2``; and ``w - lr * mean / (sqrt(var) + epsilon)``.

    Shape:
        weight, grad, mean, var: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `adam_update`, whose callers include the correction in `lr`; Kingma and Ba, "Adam", 2014.
    """
    lr, wd, rescale, clip = map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_gradient))
    beta1, beta2, epsilon = map(as_float32, (a.beta1, a.beta2, a.epsilon))

    def rule(weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        g = rescaled_with_decay(grad, rescale, weight, wd, clip)
        new_mean = beta1 * mean + (1 - beta1) * g
        new_var = beta2 * var + (1 - beta2) * g * g
        return weight - lr * new_mean / (new_var.sqrt() + epsilon), new_mean, new_var

    return rule


def adamw(lr: float, eta: float, wd: float, beta1: float, beta2: float, epsilon: float, clip: float) -> Rule:
    """Return AdamW's rule; its last input is the gradient's factor: if NaN, infinite or 0, the step is skipped."""

    def rule(weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, rescale: Tensor) -> tuple[Tensor, ...]:
        factor = rescale.reshape(()).to(weight.dtype)
        moves = factor.isfinite() & factor.ne(0)
        g = rescaled(grad, factor, clip)
        new_mean = beta1 * mean + (1 - beta1) * g
        new_var = beta2 * var + (1 - beta2) * g * g
        new = weight - eta * (lr * new_mean / (new_var.sqrt() + epsilon) + wd * weight)
        rate_pairs = ((new, weight), (new_mean, mean), (new_var, var))
        return tuple(torch.where(moves, after, before) for after, before in rate_pairs)

    return rule


_ADAMW = {**LR, **BETAS, **_epsilon(1e-8), **WD, "eta": Attr(real, "factor of the whole step"), **CLIP}


def _adamw_of(a: Any) -> Rule:
    return adamw(*map(as_float32, (a.lr, a.eta, a.wd, a.beta1, a.beta2, a.epsilon, a.clip_gradient)))


@update_op("_adamw_update", ("mean", "var"), _ADAMW, tail=("rescale_grad",))
def adamw_update(a: Any) -> Rule:
    """Update a weight by AdamW, with decoupled weight decay.

    With ``g = clip(rescale_grad * grad)``, in place ``mean = beta1 * mean + (1 - beta1) * g`` and
    ``var = beta2 * var + (1 - beta2) * g ** 2``; and
    ``w - eta * (lr * mean / (sqrt(var) + epsilon) + wd * w)``. A factor that is NaN, infinite or 0 skips the step.

    Shape:
        weight, grad, mean, var: one shape and type.
        rescale_grad: (1,), the gradient's factor.
        returns: the new weight, of the weight's shape.

    Source: MXNet 1.9.1 `_adamw_update`; Loshchilov and Hutter, "Decoupled weight decay regularization", 2017.
    """
    return _adamw_of(a)


@update_op(
    "_mp_adamw_update",
    ("mean", "var", "weight32"),
    _ADAMW,
    tail=("rescale_grad",),
    infer_type=float32_types(2),
)
def mp_adamw_update(a: Any) -> Rule:
    """Update a 16-bit weight like `_adamw_update`, with its float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        mean, var, weight32: the same shape, float32; updated in place.
        rescale_grad: (1,), the gradient's factor, float32.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `_mp_adamw_update`.
    """
    rule = _adamw_of(a)

    def run(
        weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, weight32: Tensor, rescale: Tensor
    ) -> Any:
        wide = with_float32_copy(lambda w, g, m, v: rule(w, g, m, v, rescale))
        return wide(weight, grad, mean, var, weight32)

    return run


_FTML = {
    **LR,
    "beta1": Attr(real, "decay of the sum", 0.6),
    "beta2": Attr(real, "decay of the variance", 0.999),
    **_epsilon(1e-8),
    "t": Attr(integer(), "index of this update, starting at 1"),
    **WD,
    **RESCALE,
    "clip_grad": Attr(real, "the gradient is clipped to [-this, this]; if negative, not clipped", -1.0),
}


@update_op("ftml_update", ("d", "v", "z"), _FTML)
def ftml_update(a: Any) -> Rule:
    """Update a weight by FTML ("follow the moving leader").

    With ``g = clip(rescale_grad * grad + wd * w)``, in place::

        v = beta2 * v + (1 - beta2) * g ** 2
        d' = (1 - beta1 ** t) / lr * (sqrt(v / (1 - beta2 ** t)) + epsilon)
        z = beta1 * z + (1 - beta1) * g - (d' - beta1 * d) * w
        d = d'

    and ``-z / d``.

    Shape:
        weight, grad, d, v, z: one shape and type.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `ftml_update`; Zheng and Kwok, "Follow the moving leader in deep learning", 2017.
    """
    lr, wd, rescale, clip = map(as_float32, (a.lr, a.wd, a.rescale_grad, a.clip_grad))
    beta1, beta2 = as_float32(a.beta1), as_float32(a.beta2)

    def rule(weight: Tensor, grad: Tensor, d: Tensor, v: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        g = rescaled_with_decay(grad, rescale, weight, wd, clip)
        new_v = beta2 * v + (1 - beta2) * g * g
        first, second = bias_correction(beta1, a.t, weight.dtype), bias_correction(beta2, a.t, weight.dtype)
        new_d = first / lr * ((new_v / second).sqrt() + a.epsilon)
        new_z = beta1 * z + (1 - beta1) * g - (new_d - beta1 * d) * weight
        return -new_z / new_d, new_d, new_v, new_z

    return rule


BOUNDS = {
    "lower_bound": Attr(real, "lower bound of the weight's norm; negative for none", -1.0),
    "upper_bound": Attr(real, "upper bound of the weight's norm; negative for none", -1.0),
}
_PHASE1 = {
    **BETAS,
    "epsilon": Attr(real, "added to the denominator", 1e-6),
    "t": Attr(integer(), "index of this update, starting at 1"),
    "bias_correction": Attr(boolean, "correct the bias of means that start at zero", True),
    "wd": Attr(real, "weight decay"),
    **SCALING,
}
_PHASE2 = {**LR, **BOUNDS}


def lamb_direction(a: Any, t: int, wd: float) -> Rule:
    """Return the rule of the first phase: Adam's direction plus weight decay, and the new states."""
    beta1, beta2, epsilon = map(as_float32, (a.beta1, a.beta2, a.epsilon))
    rescale, clip, wd = map(as_float32, (a.rescale_grad, a.clip_gradient, wd))

    def rule(weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        g = rescaled(grad, rescale, clip)
        new_mean = beta1 * mean + (1 - beta1) * g
        new_var = beta2 * var + (1 - beta2) * g * g
        m, v = new_mean, new_var
        if a.bias_correction:
            m, v = m / bias_correction(beta1, t, m.dtype), v / bias_correction(beta2, t, v.dtype)
        return m / (v.sqrt() + epsilon) + wd * weight, new_mean, new_var

    return rule


def lamb_rate(a: Any, lr: float, r1: Tensor, r2: Tensor) -> Tensor:
    """Return the rate of the second phase: `lr` times the ratio of weight norm and direction norm, 1 if one is 0."""
    lower, upper = as_float32(a.lower_bound), as_float32(a.upper_bound)
    norm = r1.clamp(min=lower) if lower >= 0 else r1
    norm = norm.clamp(max=upper) if upper >= 0 else norm
    return as_float32(lr) * torch.where(norm.eq(0) | r2.eq(0), torch.ones_like(norm), norm / r2)


@update_op("lamb_update_phase1", ("mean", "var"), _PHASE1)
def lamb_update_phase1(a: Any) -> Rule:
    """Return the direction of a LAMB step.

    With ``g = clip(rescale_grad * grad)``, in place ``mean = beta1 * mean + (1 - beta1) * g`` and
    ``var = beta2 * var + (1 - beta2) * g ** 2``; and ``m / (sqrt(v) + epsilon) + wd * w``, where m and v are mean and
    var, with `bias_correction` divided by ``1 - beta1 ** t`` and ``1 - beta2 ** t``.

    Shape:
        weight, grad, mean, var: one shape and type.
        returns: the direction, of the same shape.

    Source: MXNet 1.9.1 `lamb_update_phase1`; You et al., "Large batch optimization for deep learning", 2019.
    """
    return lamb_direction(a, a.t, a.wd)


@update_op(
    "mp_lamb_update_phase1",
    ("mean", "var"),
    _PHASE1,
    reads=("weight32",),
    infer_type=float32_types(2, outputs_wide=True),
)
def mp_lamb_update_phase1(a: Any) -> Rule:
    """Return the direction of a LAMB step for a 16-bit weight with a float32 copy.

    Shape:
        weight, grad: one shape and type, often float16.
        mean, var, weight32: the same shape, float32; mean and var are updated in place.
        returns: the direction, float32.

    Source: MXNet 1.9.1 `mp_lamb_update_phase1`, which rounds the rescaled gradient to 16 bits.
    """
    rule, rescale = lamb_direction(a._replace(rescale_grad=1.0), a.t, a.wd), as_float32(a.rescale_grad)

    def run(weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, weight32: Tensor) -> tuple[Tensor, ...]:
        check_float32(weight, grad, (mean, var), weight32)
        return rule(weight32, (grad * rescale).float(), mean, var)

    return run


def _phase2_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for weight, direction, copy and output; r1 and r2 are single numbers."""
    weight = unify(unify(ins[0], ins[1], "weight and g"), outs[0], "weight and output")
    norms = [unify(s, (1,), "a norm's shape") for s in ins[2:4]]
    return [weight, weight, *norms, *(unify(s, weight, "weight32") for s in ins[4:])], [weight]


@update_op("lamb_update_phase2", attrs=_PHASE2, inputs=("weight", "g", "r1", "r2"), infer=_phase2_infer)
def lamb_update_phase2(a: Any) -> Rule:
    """Update a weight along the direction of `lamb_update_phase1`: ``w - lr * r1 / r2 * g``.

    Shape:
        weight, g: one shape and type.
        r1, r2: (1,), the norms of weight and `g`; if one is 0 their ratio counts as 1.
        returns: the new weight, of the same shape.

    Source: MXNet 1.9.1 `lamb_update_phase2`.
    """

    def rule(weight: Tensor, g: Tensor, r1: Tensor, r2: Tensor) -> tuple[Tensor, ...]:
        return (weight - lamb_rate(a, a.lr, r1.reshape(()), r2.reshape(())) * g,)

    return rule


@update_op(
    "mp_lamb_update_phase2",
    attrs=_PHASE2,
    inputs=("weight", "g", "r1", "r2", "weight32"),
    infer=_phase2_infer,
    infer_type=float32_types(1),
)
def mp_lamb_update_phase2(a: Any) -> Rule:
    """Update a 16-bit weight along the direction of `mp_lamb_update_phase1`, from its float32 copy.

    Shape:
        weight: any shape, often float16.
        g, weight32: the same shape, float32; not changed.
        r1, r2: (1,), float32, the norms of weight and `g`.
        returns: the new weight in the type of `weight`.

    Source: MXNet 1.9.1 `mp_lamb_update_phase2`, whose caller updates the copy.
    """

    def rule(weight: Tensor, g: Tensor, r1: Tensor, r2: Tensor, weight32: Tensor) -> tuple[Tensor, ...]:
        check_float32(weight, weight, (g,), weight32)
        return ((weight32 - lamb_rate(a, a.lr, r1.reshape(()), r2.reshape(())) * g).to(weight.dtype),)

    return rule
