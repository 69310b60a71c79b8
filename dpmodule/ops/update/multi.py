"""Updates of several weights in one call, and norms for their rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from ..attrs import boolean, integer, real, reals, shape
from ..dtypes import as_float32
from ..registry import bound
from ..shapes import same
from ..spec import NEVER, Attr, Types, Variadic, arg, aux
from .adam import BOUNDS, adamw, lamb_direction, lamb_rate
from .adaptive import descent, momentum_descent
from .rules import (
    BETAS,
    CLIP,
    NO_ONNX,
    NUM_WEIGHTS,
    RATES,
    RESCALE,
    SCALING,
    Rule,
    multi_update_op,
    rate_pairs,
    with_float32_copy,
)

Tensor = torch.Tensor

_MOMENTUM = {"momentum": Attr(real, "decay of the last step", 0.0)}


def _descent_rules(a: Any, lrs: Iterable[Any], wds: Iterable[Any]) -> list[Rule]:
    rescale, clip = as_float32(a.rescale_grad), as_float32(a.clip_gradient)
    return [descent(lr, wd, rescale, clip) for lr, wd in rate_pairs(lrs, wds)]


def _momentum_rules(a: Any, lrs: Iterable[Any], wds: Iterable[Any]) -> list[Rule]:
    momentum, rescale, clip = map(as_float32, (a.momentum, a.rescale_grad, a.clip_gradient))
    return [momentum_descent(lr, wd, momentum, rescale, clip) for lr, wd in rate_pairs(lrs, wds)]


def _single_rates(a: Any) -> tuple[list[float], list[float]]:
    return [as_float32(x) for x in a.lrs], [as_float32(x) for x in a.wds]


_SGD = {**RATES, **SCALING, **NUM_WEIGHTS}
_SGD_MOM = {**RATES, **_MOMENTUM, **SCALING, **NUM_WEIGHTS}
_PRELOADED = {**SCALING, **NUM_WEIGHTS}
_PRELOADED_MOM = {**_MOMENTUM, **SCALING, **NUM_WEIGHTS}


@multi_update_op("multi_sgd_update", (), _SGD)
def multi_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights like `sgd_update`.

    Shape:
        weight_i, grad_i: one shape and type for each i; in this order, for one i after the other.
        returns: the new weights.

    Source: MXNet 1.9.1 `multi_sgd_update`.
    """
    return _descent_rules(a, *_single_rates(a))


@multi_update_op("multi_sgd_mom_update", ("mom",), _SGD_MOM)
def multi_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights like `sgd_mom_update`.

    Shape:
        weight_i, grad_i, mom_i: one shape and type for each i; in this order, for one i after the other.
        returns: the new weights.

    Source: MXNet 1.9.1 `multi_sgd_mom_update`.
    """
    return _momentum_rules(a, *_single_rates(a))


@multi_update_op("multi_mp_sgd_update", ("weight32",), _SGD)
def multi_mp_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights like `mp_sgd_update`.

    Shape:
        weight_i, grad_i, weight32_i: one shape for each i; the last is float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `multi_mp_sgd_update`.
    """
    return [with_float32_copy(rule) for rule in _descent_rules(a, *_single_rates(a))]


@multi_update_op("multi_mp_sgd_mom_update", ("mom", "weight32"), _SGD_MOM)
def multi_mp_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights like `mp_sgd_mom_update`.

    Shape:
        weight_i, grad_i, mom_i, weight32_i: one shape for each i; the last two are float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `multi_mp_sgd_mom_update`.
    """
    return [with_float32_copy(rule) for rule in _momentum_rules(a, *_single_rates(a))]


@multi_update_op("preloaded_multi_sgd_update", (), _PRELOADED, tail=("lrs", "wds"))
def preloaded_multi_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights like `multi_sgd_update`, with rates from arrays.

    Shape:
        weight_i, grad_i: one shape and type for each i.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights.

    Source: MXNet 1.9.1 `preloaded_multi_sgd_update`.
    """
    return _descent_rules(a, *rest)


@multi_update_op("preloaded_multi_sgd_mom_update", ("mom",), _PRELOADED_MOM, tail=("lrs", "wds"))
def preloaded_multi_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights like `multi_sgd_mom_update`, with rates from arrays.

    Shape:
        weight_i, grad_i, mom_i: one shape and type for each i.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights.

    Source: MXNet 1.9.1 `preloaded_multi_sgd_mom_update`.
    """
    return _momentum_rules(a, *rest)


@multi_update_op("preloaded_multi_mp_sgd_update", ("weight32",), _PRELOADED, tail=("lrs", "wds"))
def preloaded_multi_mp_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights like `multi_mp_sgd_update`, with rates from arrays.

    Shape:
        weight_i, grad_i, weight32_i: one shape for each i; the last is float32.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `preloaded_multi_mp_sgd_update`.
    """
    return [with_float32_copy(rule) for rule in _descent_rules(a, *rest)]


@multi_update_op(
    "preloaded_multi_mp_sgd_mom_update", ("mom", "weight32"), _PRELOADED_MOM, tail=("lrs", "wds")
)
def preloaded_multi_mp_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights like `multi_mp_sgd_mom_update`, with rates from arrays.

    Shape:
        weight_i, grad_i, mom_i, weight32_i: one shape for each i; the last two are float32.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `preloaded_multi_mp_sgd_mom_update`.
    """
    return [with_float32_copy(rule) for rule in _momentum_rules(a, *rest)]


_ADAMW = {
    "lrs": RATES["lrs"],
    **BETAS,
    "epsilon": Attr(real, "added to the denominator", 1e-8),
    "wds": RATES["wds"],
    "etas": Attr(reals, "factor of the whole step of each weight"),
    **CLIP,
    **NUM_WEIGHTS,
}


def _adamw_rules(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    beta1, beta2, epsilon, clip = map(as_float32, (a.beta1, a.beta2, a.epsilon, a.clip_gradient))
    rules = [
        adamw(as_float32(lr), as_float32(eta), as_float32(wd), beta1, beta2, epsilon, clip)
        for (lr, wd), eta in zip(rate_pairs(a.lrs, a.wds), a.etas)
    ]
    return [partial(_with_factor, rule, *rest) for rule in rules]


def _with_factor(rule: Rule, factor: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return rule(*tensors, factor)


@multi_update_op(
    "_multi_adamw_update", ("mean", "var"), _ADAMW, tail=("rescale_grad",), tail_shape=lambda groups: (1,)
)
def multi_adamw_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights like `_adamw_update`.

    Shape:
        weight_i, grad_i, mean_i, var_i: one shape and type for each i.
        rescale_grad: (1,), the gradients' factor; NaN, infinite or 0 skips the step.
        returns: the new weights.

    Source: MXNet 1.9.1 `_multi_adamw_update`.
    """
    return _adamw_rules(a, rest)


@multi_update_op(
    "_multi_mp_adamw_update",
    ("mean", "var", "weight32"),
    _ADAMW,
    tail=("rescale_grad",),
    tail_shape=lambda groups: (1,),
)
def multi_mp_adamw_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights like `_mp_adamw_update`.

    Shape:
        weight_i, grad_i, mean_i, var_i, weight32_i: one shape for each i; the last three are float32.
        rescale_grad: (1,), the gradients' factor, float32; NaN, infinite or 0 skips the step.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `_multi_mp_adamw_update`.
    """
    return [with_float32_copy(rule) for rule in _adamw_rules(a, rest)]


_LAMB = {
    "learning_rates": Attr(reals, "learning rate of each weight"),
    **BETAS,
    "epsilon": Attr(real, "added to the denominator", 1e-6),
    "wds": Attr(reals, "weight decay of each weight"),
    "rescale_grad": SCALING["rescale_grad"],
    **BOUNDS,
    "clip_gradient": SCALING["clip_gradient"],
    "bias_correction": Attr(boolean, "correct the bias of means that start at zero", True),
    "step_count": Attr(shape, "index of this update of each weight, starting at 1"),
    "num_tensors": Attr(integer(low=1), "number of weights", 1),
}


def _lamb(a: Any, lr: float, wd: float, t: int) -> Rule:
    first = lamb_direction(a, t, wd)

    def rule(weight: Tensor, grad: Tensor, mean: Tensor, var: Tensor, *wide: Tensor) -> tuple[Tensor, ...]:
        start = wide[0] if wide else weight
        move, *states = first(start, grad.to(start.dtype), mean, var)
        # the norm is that of the 16-bit weight, as in MXNet
        new = start - lamb_rate(a, lr, _norm(weight, start), _norm(move, start)) * move
        return (new.to(weight.dtype), *states, *([new] if wide else ()))

    return rule


def _norm(values: Tensor, like: Tensor) -> Tensor:
    return values.square().float().sum().sqrt().to(like.dtype)


def _lamb_rules(a: Any) -> list[Rule]:
    return [_lamb(a, lr, wd, t) for (lr, wd), t in zip(rate_pairs(a.learning_rates, a.wds), a.step_count)]


@multi_update_op("_multi_lamb_update", ("mean", "var"), _LAMB, count="num_tensors")
def multi_lamb_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights by LAMB, with both phases in one call.

    Shape:
        weight_i, grad_i, mean_i, var_i: one shape and type for each i.
        returns: the new weights.

    Source: MXNet 1.9.1 `_multi_lamb_update`, whose symbols have other names for these inputs.
    """
    return _lamb_rules(a)


@multi_update_op("_multi_mp_lamb_update", ("mean", "var", "weight32"), _LAMB, count="num_tensors")
def multi_mp_lamb_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights by LAMB, with both phases in one call and float32 copies.

    Shape:
        weight_i, grad_i, mean_i, var_i, weight32_i: one shape for each i; the last three are float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `_multi_mp_lamb_update`, whose symbols have other names for these inputs.
    """
    return _lamb_rules(a)


@bound(
    "multi_lars",
    [arg("lrs"), arg("weights_sum_sq"), arg("grads_sum_sq"), arg("wds")],
    {
        "eta": Attr(real, "LARS's trust coefficient"),
        "eps": Attr(real, "added to the denominator"),
        **RESCALE,
    },
    infer=same,
    batch=NEVER,
    onnx=NO_ONNX,
)
def multi_lars(a: Any) -> Callable[..., Tensor]:
    """Return the learning rates of LARS: ``lr * eta * |w| / (rescale_grad * |g| + wd * |w| + eps)``.

    If a norm is 0 the rate is unchanged.

    Shape:
        lrs, weights_sum_sq, grads_sum_sq, wds: one number for each weight, all (weights,) and of one type.
        returns: (weights,).

    Source: MXNet 1.9.1 `multi_lars`; You et al., "Large batch training of convolutional networks", 2017.
    """
    eta, eps, rescale = as_float32(a.eta), as_float32(a.eps), as_float32(a.rescale_grad)

    def rates(lrs: Tensor, weights_sum_sq: Tensor, grads_sum_sq: Tensor, wds: Tensor) -> Tensor:
        norms = weights_sum_sq.sqrt()
        rescaled = lrs * eta * norms / (grads_sum_sq.sqrt() * rescale + wds * norms + eps)
        return torch.where(norms.gt(0) & grads_sum_sq.gt(0), rescaled, lrs)

    return rates


def _single_precision(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = next((t for t in ins if t is not None), None)
    return [t or dtype for t in ins], ["float32"]


@bound(
    "multi_sum_sq",
    (),
    {"num_arrays": Attr(integer(low=1), "number of arrays")},
    variadic=Variadic(count="num_arrays", group=(arg("array"),)),
    infer=lambda a, ins, outs: (ins, [(len(ins),)]),
    infer_type=_single_precision,
    batch=NEVER,
    onnx=NO_ONNX,
)
def multi_sum_sq(a: Any) -> Callable[..., Tensor]:
    """Return the sum of squares of each array.

    Shape:
        array_i: any shape.
        returns: (num_arrays,), float32.

    Source: MXNet 1.9.1 `multi_sum_sq`; squares are rounded to the type of their array.
    """
    return lambda *arrays: torch.stack([x.square().float().sum() for x in arrays])


def _zeros(*arrays: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(x) for x in arrays)


def _unchanged(a: Any, ins: list[Any], outs: list[Any]) -> tuple[list[Any], list[Any]]:
    return ins, outs


@bound(
    "reset_arrays",
    (),
    {"num_arrays": Attr(integer(low=1), "number of arrays")},
    variadic=Variadic(count="num_arrays", group=(aux("array"),)),
    outputs=(),
    mutates=("array",),
    commit_in_forward=("array",),
    infer=_unchanged,
    infer_type=_unchanged,
    batch=NEVER,
    onnx=NO_ONNX,
)
def reset_arrays(a: Any) -> Callable[..., tuple[Tensor, ...]]:
    """Set arrays to zero in place.

    Shape:
        array_i: any shape.
        returns: nothing.

    Source: MXNet 1.9.1 `reset_arrays`.
    """
    return _zeros
