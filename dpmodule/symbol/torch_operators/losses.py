"""Losses that a module computes itself."""

from __future__ import annotations

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import translates
from .value import NoCounterpart, TorchValue

__all__: list[str] = []

_MEAN, _SUM = 1, 2


def _reduced(b: SymbolBuilder, losses: Symbol, reduction: int) -> Symbol:
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
) -> Symbol:
    if weight is not None:
        raise NoCounterpart("weights classes in a loss")
    axis = 1 if scores.rank > 1 else 0
    kept = b.op("_not_equal_scalar", b.cast(target, scores.dtype), scalar=float(ignore_index))
    losses = b.op("negative", b.op("pick", scores, target, axis=axis))
    losses = b.op("elemwise_mul", losses, kept)
    if reduction != _MEAN:
        return _reduced(b, losses, reduction)
    return b.op("elemwise_div", b.op("sum", losses), b.op("sum", kept))


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
    if label_smoothing or target.is_float:
        raise NoCounterpart("compares with a distribution instead of classes")
    scores = b.op("log_softmax", value, axis=1 if value.rank > 1 else 0)
    known = b.value(scores, value.dims, value.dtype)
    return _nll(b, known, target, weight, reduction, ignore_index)


@translates("binary_cross_entropy_with_logits")
def _binary(
    b: SymbolBuilder,
    value: TorchValue,
    target: TorchValue,
    weight: TorchValue | None = None,
    pos_weight: TorchValue | None = None,
    reduction: int = _MEAN,
) -> Symbol:
    if weight is not None or pos_weight is not None:
        raise NoCounterpart("weights examples or classes in a loss")
    grown = b.op("Activation", value, act_type="softrelu")
    losses = b.op("elemwise_sub", grown, b.op("elemwise_mul", value, b.cast(target, value.dtype)))
    return _reduced(b, losses, reduction)


@translates("binary_cross_entropy")
def _binary_of_chances(
    b: SymbolBuilder,
    value: TorchValue,
    target: TorchValue,
    weight: TorchValue | None = None,
    reduction: int = _MEAN,
) -> Symbol:
    if weight is not None:
        raise NoCounterpart("weights examples in a loss")
    yes, no = (_log(b, v) for v in (b.sym(value), b.op("_rminus_scalar", value, scalar=1.0)))
    rest = b.op("_rminus_scalar", target, scalar=1.0)
    both = b.op("elemwise_add", b.op("elemwise_mul", target, yes), b.op("elemwise_mul", rest, no))
    return _reduced(b, b.op("negative", both), reduction)


def _log(b: SymbolBuilder, chance: Symbol | TorchValue) -> Symbol:
    """Return a logarithm that is no smaller than -100, as torch limits it."""
    return b.op("_maximum_scalar", b.op("log", chance), scalar=-100.0)
