"""Activation functions and losses."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import TABLE, translates, translates_as
from .value import NoCounterpart, TorchValue, is_number


def _times(b: SymbolBuilder, value: TorchValue, factor: Symbol) -> Symbol:
    return b.op("elemwise_mul", value, factor)


_LINEAR = 20
"""Threshold of softplus from which the function is linear in float32."""


@translates("softplus")
def _softplus(b: SymbolBuilder, value: TorchValue, beta: float = 1, threshold: float = 20) -> Symbol:
    scaled = b.sym(value) if beta == 1 else b.with_number("mul", value, beta)
    output = b.op("Activation", scaled, act_type="softrelu")
    if beta != 1:
        output = b.op("_div_scalar", output, scalar=float(beta))
    if threshold >= _LINEAR:
        return output
    return b.op("where", b.op("_greater_scalar", scaled, scalar=float(threshold)), value, output)


@translates("log_sigmoid")
def _log_sigmoid(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return b.op("negative", b.op("Activation", b.op("negative", value), act_type="softrelu"))


@translates("gelu")
def _gelu(b: SymbolBuilder, value: TorchValue, approximate: str = "none") -> Symbol:
    if approximate != "tanh":
        return b.op("LeakyReLU", value, act_type="gelu")
    cube = b.op("elemwise_mul", b.op("square", value), value)
    inner = b.op("elemwise_add", value, b.op("_mul_scalar", cube, scalar=0.044715))
    curve = b.op("tanh", b.op("_mul_scalar", inner, scalar=math.sqrt(2.0 / math.pi)))
    return _times(b, value, b.op("_mul_scalar", b.op("_plus_scalar", curve, scalar=1.0), scalar=0.5))


translates("silu")(lambda b, value: _times(b, value, b.op("sigmoid", value)))


@translates("mish")
def _mish(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return _times(b, value, b.op("tanh", b.op("Activation", value, act_type="softrelu")))


translates_as("hardsigmoid", "hard_sigmoid", alpha=1.0 / 6.0, beta=0.5)
translates_as("hardtanh", "clip", ("a_min", -1), ("a_max", 1))
translates_as("relu", "Activation", act_type="relu")
translates_as("relu6", "clip", a_min=0.0, a_max=6.0)
translates_as("leaky_relu", "LeakyReLU", ("slope", 0.01), act_type="leaky")


translates("hardswish")(lambda b, value: _times(b, value, TABLE["hardsigmoid"](b, value)))


@translates("elu")
def _elu(
    b: SymbolBuilder, value: TorchValue, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Symbol:
    if input_scale <= 0:
        raise NoCounterpart(f"scales the input by {input_scale}, expected a positive number")
    data = b.sym(value) if input_scale == 1 else b.with_number("mul", value, input_scale)
    output = b.op("LeakyReLU", data, act_type="elu", slope=float(alpha * input_scale))
    factor = scale / input_scale  # the scale of the input is not one of its positive part
    return output if factor == 1 else b.op("_mul_scalar", output, scalar=float(factor))


translates("selu")(lambda b, value: _elu(b, value, 1.6732632423543772, 1.0507009873554805))
translates("celu")(lambda b, value, alpha=1.0: _elu(b, value, alpha, 1, 1.0 / alpha))


@translates("prelu", "_prelu_kernel")
def _prelu(b: SymbolBuilder, value: TorchValue, weight: TorchValue) -> Symbol:
    if weight.rank > 1:
        size = weight.dims[1] if value.rank > 1 else 1
        weight = b.reshape(weight, (size,))
    return b.op("LeakyReLU", value, weight, act_type="prelu")


@translates("rrelu")
def _rrelu(
    b: SymbolBuilder,
    value: TorchValue,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *rest: Any,
) -> Symbol:
    if b.training and not training:
        return b.op("LeakyReLU", value, act_type="leaky", slope=(lower + upper) / 2)
    both = b.op("LeakyReLU", value, act_type="rrelu", lower_bound=lower, upper_bound=upper)
    return both[0]


@translates("threshold")
def _threshold(b: SymbolBuilder, value: TorchValue, threshold: float, number: float) -> Symbol:
    above = b.op("_greater_scalar", value, scalar=float(threshold))
    other = b.op("_plus_scalar", b.op("zeros_like", value), scalar=float(number))
    return b.op("where", above, value, other)


@translates("hardshrink")
def _hardshrink(b: SymbolBuilder, value: TorchValue, size: float = 0.5) -> Symbol:
    far = b.op("_greater_scalar", b.op("abs", value), scalar=float(size))
    return b.op("where", far, value, b.op("zeros_like", value))


@translates("softshrink")
def _softshrink(b: SymbolBuilder, value: TorchValue, size: float = 0.5) -> Symbol:
    return b.op("elemwise_sub", value, b.op("clip", value, a_min=-float(size), a_max=float(size)))


@translates("glu")
def _glu(b: SymbolBuilder, value: TorchValue, dim: int = -1) -> Symbol:
    halves = b.op("SliceChannel", value, num_outputs=2, axis=value.axis(dim))
    return b.op("elemwise_mul", halves[0], b.op("sigmoid", halves[1]))


def _softmax(name: str) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue, dim: int, *rest: Any, **named: Any) -> Symbol:
        value = b.cast(value, b.result.dtype)
        return b.op(name, value, axis=value.axis(dim))

    return translate


for _name in ("softmax", "log_softmax"):
    TABLE[_name] = TABLE[f"_{_name}"] = TABLE[f"special_{_name}"] = _softmax(_name)


# random functions


@translates("dropout", "native_dropout")
def _dropout(b: SymbolBuilder, value: TorchValue, p: float, train: bool | None = None) -> Any:
    output = _dropped(b, value, p, train, ())
    return output if isinstance(b.result, torch.Tensor) else [output, None]


@translates("feature_dropout")
def _feature_dropout(b: SymbolBuilder, value: TorchValue, p: float, train: bool) -> Any:
    return _dropped(b, value, p, train, tuple(range(2, value.rank)))


_LEAST = -1.7580993408473766  # limit of selu at minus infinity


@translates("alpha_dropout")
def _alpha_dropout(b: SymbolBuilder, value: TorchValue, p: float, train: bool) -> Any:
    """Set elements to the minimum of selu in training, keeping mean and variance."""
    if not p or p == 1 or (b.training and not train):
        return value
    kept = b.op("Dropout", b.op("ones_like", value), p=float(p))  # 0 or 1 / (1 - p) in training, else 1
    factor = ((_LEAST**2 * p + 1) * (1 - p)) ** -0.5
    least = b.op("_plus_scalar", b.op("zeros_like", value), scalar=_LEAST)
    chosen = b.op("where", kept, value, least)
    moved = b.op("_plus_scalar", b.op("_mul_scalar", chosen, scalar=factor), scalar=-factor * _LEAST * p)
    return b.op("where", b.op("_equal_scalar", kept, scalar=1.0), value, moved)


def _dropped(b: SymbolBuilder, value: TorchValue, p: float, train: bool | None, axes: tuple[int, ...]) -> Any:
    """Apply dropout in training; not at all if the module trains and this part does not."""
    if not p or (b.training and not train):
        return value
    return b.op("Dropout", value, p=float(p), **({"axes": axes} if axes else {}))


_MEAN, _SUM = 1, 2


def _reduced(b: SymbolBuilder, losses: Symbol, reduction: int, weights: Symbol | None = None) -> Symbol:
    """Return losses, their sum or their mean, which is weighted if they have weights."""
    if reduction == _MEAN and weights is not None:
        return b.op("elemwise_div", b.op("sum", losses), b.op("sum", weights))
    if reduction == _MEAN:
        return b.op("mean", losses)
    return b.op("sum", losses) if reduction == _SUM else losses


@translates("mse_loss")
def _mse(b: SymbolBuilder, value: TorchValue, target: TorchValue, reduction: int = _MEAN) -> Symbol:
    return _reduced(b, b.op("square", b.pair("sub", value, target)), reduction)


@translates("l1_loss")
def _l1(b: SymbolBuilder, value: TorchValue, target: TorchValue, reduction: int = _MEAN) -> Symbol:
    return _reduced(b, b.op("abs", b.pair("sub", value, target)), reduction)


@translates("smooth_l1_loss")
def _smooth_l1(
    b: SymbolBuilder, value: TorchValue, target: TorchValue, reduction: int = _MEAN, beta: float = 1.0
) -> Symbol:
    if not beta:
        return _l1(b, value, target, reduction)
    loss = b.op("smooth_l1", b.pair("sub", value, target), scalar=beta**-0.5)
    return _reduced(b, loss, reduction)


@translates("nll_loss", "nll_loss_nd")
def _nll(
    b: SymbolBuilder,
    scores: TorchValue,
    target: TorchValue,
    weight: TorchValue | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Symbol:
    axis = 1 if scores.rank > 1 else 0
    weights = b.op("_not_equal_scalar", b.cast(target, scores.dtype), scalar=float(ignore_index))
    losses = b.op("pick", scores, target, axis=axis)
    if label_smoothing:
        kept, classes = weights, scores.dims[axis]
        if not is_number(classes):
            raise NoCounterpart("smooths labels over classes whose number is not fixed")
    if weight is not None:
        weights = b.op("elemwise_mul", weights, b.op("take", weight, target))
    losses = b.op("elemwise_mul", losses, weights)
    if label_smoothing:
        every = b.op("elemwise_mul", b.op("sum", _by_class(b, scores, weight, axis), axis=axis), kept)
        losses = b.op("_mul_scalar", losses, scalar=1 - label_smoothing)
        losses = b.op("elemwise_add", losses, b.op("_mul_scalar", every, scalar=label_smoothing / classes))
    return _reduced(b, b.op("negative", losses), reduction, weights)


def _by_class(b: SymbolBuilder, scores: TorchValue, weight: TorchValue | None, axis: int) -> Symbol:
    """Return scores times the weights of their classes."""
    if weight is None:
        return b.sym(scores)
    shape = (1,) * axis + (-1,) + (1,) * (scores.rank - axis - 1)
    return b.op("broadcast_mul", scores, b.op("Reshape", weight, shape=shape))


@translates("cross_entropy_loss")
def _cross_entropy(
    b: SymbolBuilder,
    value: TorchValue,
    target: TorchValue,
    weight: TorchValue | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Symbol:
    axis = 1 if value.rank > 1 else 0
    scores = b.value(b.op("log_softmax", value, axis=axis), value.dims, value.dtype)
    if not target.is_float:
        return _nll(b, scores, target, weight, reduction, ignore_index, label_smoothing)
    shares = b.sym(b.cast(target, value.dtype))
    if label_smoothing:
        classes = value.dims[axis]
        if not is_number(classes):
            raise NoCounterpart("smooths labels over classes whose number is not fixed")
        shares = b.op("_mul_scalar", shares, scalar=1 - label_smoothing)
        shares = b.op("_plus_scalar", shares, scalar=label_smoothing / classes)
    losses = b.op("elemwise_mul", _by_class(b, scores, weight, axis), shares)
    return _reduced(b, b.op("negative", b.op("sum", losses, axis=axis)), reduction)


@translates("binary_cross_entropy_with_logits")
def _binary(
    b: SymbolBuilder,
    value: TorchValue,
    target: TorchValue,
    weight: TorchValue | None = None,
    pos_weight: TorchValue | None = None,
    reduction: int = _MEAN,
) -> Symbol:
    yes = b.sym(b.cast(target, value.dtype))
    if pos_weight is None:
        grown = b.op("Activation", value, act_type="softrelu")
        losses = b.op("elemwise_sub", grown, b.op("elemwise_mul", value, yes))
    else:
        grown = b.op("Activation", b.op("negative", value), act_type="softrelu")
        factor = b.op("_plus_scalar", b.op("broadcast_mul", yes, _minus_one(b, pos_weight)), scalar=1.0)
        no = b.op("elemwise_mul", b.op("_rminus_scalar", yes, scalar=1.0), value)
        losses = b.op("elemwise_add", no, b.op("elemwise_mul", factor, grown))
    return _reduced(b, _weighted(b, losses, weight), reduction)


def _minus_one(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return b.op("_minus_scalar", value, scalar=1.0)


def _weighted(b: SymbolBuilder, losses: Symbol, weight: TorchValue | None) -> Symbol:
    """Return losses times broadcastable weights."""
    return losses if weight is None else b.op("broadcast_mul", losses, weight)


@translates("binary_cross_entropy")
def _binary_of_chances(
    b: SymbolBuilder,
    value: TorchValue,
    target: TorchValue,
    weight: TorchValue | None = None,
    reduction: int = _MEAN,
) -> Symbol:
    yes, no = (_log(b, v) for v in (b.sym(value), b.op("_rminus_scalar", value, scalar=1.0)))
    complement = b.op("_rminus_scalar", target, scalar=1.0)
    both = b.op("elemwise_add", b.op("elemwise_mul", target, yes), b.op("elemwise_mul", complement, no))
    return _reduced(b, _weighted(b, b.op("negative", both), weight), reduction)


def _log(b: SymbolBuilder, chance: Symbol | TorchValue) -> Symbol:
    """Return a logarithm limited to at least -100, as in torch."""
    return b.op("_maximum_scalar", b.op("log", chance), scalar=-100.0)
