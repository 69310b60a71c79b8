"""Losses that a module computes itself."""

from __future__ import annotations

from ..symbol import Symbol
from .builder import SymbolBuilder
from .sizes import is_number
from .table import translates
from .value import NoCounterpart, TorchValue

_MEAN, _SUM = 1, 2


def _reduced(b: SymbolBuilder, losses: Symbol, reduction: int, weights: Symbol | None = None) -> Symbol:
    """Return losses, their sum or their mean, which is divided by the sum of their weights where they have some."""
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
    made = b.op("smooth_l1", b.pair("sub", value, target), scalar=beta**-0.5)
    return _reduced(b, made, reduction)


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
    """Return losses times weights that have a shape for broadcasting."""
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
    rest = b.op("_rminus_scalar", target, scalar=1.0)
    both = b.op("elemwise_add", b.op("elemwise_mul", target, yes), b.op("elemwise_mul", rest, no))
    return _reduced(b, _weighted(b, b.op("negative", both), weight), reduction)


def _log(b: SymbolBuilder, chance: Symbol | TorchValue) -> Symbol:
    """Return a logarithm that is not below -100, as torch limits it."""
    return b.op("_maximum_scalar", b.op("log", chance), scalar=-100.0)
