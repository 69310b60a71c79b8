"""Losses and accuracy."""

from __future__ import annotations

import math
from typing import Any

from ... import symbol as sym
from ...base import ArgumentError
from ...symbol import Symbol
from ..variable import Variable
from .elementwise import mean, over_sequences
from .layer_helper import add_layer, apply, as_variable, check_number, label_of, width_of

_MIN_PROBABILITY = 1e-20
"""Smallest probability, so that losses are finite."""


def cross_entropy(
    input: Any, label: Any, soft_label: bool = False, ignore_index: int | None = None
) -> Variable:
    """Return the cross-entropy of each line.

    Shape:
        input: (N, classes), probabilities of softmax.
        label: (N, 1), class numbers; with `soft_label` (N, classes).
        output: (N, 1).

    Args:
        soft_label: whether `label` has a probability for each class.
        ignore_index: class whose lines have loss 0; None: there is none (Paddle: -100).
    """
    probabilities, right = as_variable("cross_entropy", input), as_variable("cross_entropy", label, "label")
    right = label_of(probabilities, right)

    def logarithms(name: str) -> Any:
        if soft_label:
            return sym.log(
                sym._internal._maximum_scalar(probabilities.symbol, scalar=_MIN_PROBABILITY), name=name
            )
        chosen = _pick_label(probabilities.symbol, right.symbol, f"{name}_pick")
        return sym.log(
            sym._internal._maximum_scalar(chosen, scalar=_MIN_PROBABILITY, name=f"{name}_floor"), name=name
        )

    return _entropy("cross_entropy", probabilities, right, logarithms, soft_label, ignore_index)


def softmax_with_cross_entropy(
    logits: Any,
    label: Any,
    soft_label: bool = False,
    ignore_index: int | None = None,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """Return the cross-entropy of each line after a softmax, in one operation.

    Shape:
        logits: (N, classes).
        label: (N, 1), class numbers; with `soft_label` (N, classes).
        output: (N, 1).

    Args:
        logits: inputs of softmax.
        soft_label: whether `label` has a probability for each class.
        ignore_index: class whose lines have loss 0; None: there is none (Paddle: -100).
        numeric_stable_mode: ignored; the loss always is.
        return_softmax: whether to return the loss and the softmax.
        axis: must be the last one.

    Raises:
        ArgumentError: `axis` is another one.
    """
    layer = "softmax_with_cross_entropy"
    scores, right = as_variable(layer, logits, "logits"), as_variable(layer, label, "label")
    right = label_of(scores, right)
    if axis not in (-1, len(scores.shape) - 1):
        raise ArgumentError(f"{layer}: axis is {axis!r}, expected -1, the last one")

    def logarithms(name: str) -> Any:
        log_probabilities = sym.log_softmax(
            scores.symbol, axis=-1, name=name if soft_label else f"{name}_all"
        )
        return log_probabilities if soft_label else _pick_label(log_probabilities, right.symbol, name)

    loss = _entropy(layer, scores, right, logarithms, soft_label, ignore_index)
    if not return_softmax:
        return loss
    return loss, apply(layer, sym.softmax, [scores], f"{loss.name}_softmax")


def _entropy(
    layer: str, input: Variable, label: Variable, logarithms: Any, soft_label: bool, ignore_index: int | None
) -> Variable:
    """Add the negative log-likelihood, weighted with soft labels."""
    width_of(layer, input)
    if soft_label and ignore_index is not None:
        raise ArgumentError(
            f"{layer}: ignore_index is {ignore_index!r}, which is not supported with soft_label"
        )

    def made(name: str) -> Any:
        log_likelihood = logarithms(f"{name}_log")
        if soft_label:
            weighed = sym.broadcast_mul(log_likelihood, label.symbol, name=f"{name}_weighed")
            log_likelihood = sym.sum(weighed, axis=-1, keepdims=True, name=f"{name}_sum")
        if ignore_index is None:
            return sym.negative(log_likelihood, name=name)
        kept = sym._internal._not_equal_scalar(label.symbol, scalar=float(ignore_index), name=f"{name}_kept")
        loss = sym.negative(log_likelihood, name=f"{name}_all")
        return sym.broadcast_mul(loss, sym.Cast(kept, dtype=input.dtype), name=name)

    return add_layer(layer, [input, label], made, shape=(*input.shape[:-1], 1))


def _pick_label(values: Symbol, label: Symbol, name: str) -> Any:
    """Return the value at the label of each line, (N, 1)."""
    return sym.pick(values, label, axis=-1, keepdims=True, name=name)


def sigmoid_cross_entropy_with_logits(
    x: Any,
    label: Any,
    ignore_index: float | None = None,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Return the binary cross-entropy of each element after a sigmoid.

    Shape:
        x, output: any.
        label: as x; from 0 to 1.

    Args:
        x: inputs of the sigmoid.
        ignore_index: label whose elements have loss 0; None: there is none (Paddle: -100).
        normalize: whether to divide by the number of elements that count.
    """
    layer = "sigmoid_cross_entropy_with_logits"
    scores, right = as_variable(layer, x, "x"), as_variable(layer, label, "label")
    right = label_of(scores, right)

    def made(name: str) -> Any:
        wanted = _cast_label(right, scores.dtype)
        above = sym.broadcast_sub(
            sym.relu(scores.symbol), sym.broadcast_mul(scores.symbol, wanted, name=f"{name}_product")
        )
        rest = sym.Activation(sym.negative(sym.abs(scores.symbol)), act_type="softrelu", name=f"{name}_rest")
        if ignore_index is None and not normalize:
            return sym.broadcast_add(above, rest, name=name)
        kept = sym._internal._not_equal_scalar(
            wanted, scalar=-100.0 if ignore_index is None else float(ignore_index), name=f"{name}_kept"
        )
        losses = sym.broadcast_mul(
            sym.broadcast_add(above, rest), kept, name=f"{name}_all" if normalize else name
        )
        count = sym._internal._maximum_scalar(sym.sum(kept), scalar=1e-5)
        return sym.broadcast_div(losses, count, name=name) if normalize else losses

    return add_layer(layer, [scores, right], made, name)


def _cast_label(label: Variable, dtype: str) -> Symbol:
    """Return a label with another element type."""
    return label.symbol if label.dtype == dtype else sym.Cast(label.symbol, dtype=dtype)


def square_error_cost(input: Any, label: Any) -> Variable:
    """Return the squared difference of each element.

    Args:
        label: the target.
    """
    prediction, right = (
        as_variable("square_error_cost", input),
        as_variable("square_error_cost", label, "label"),
    )
    right = label_of(prediction, right)

    def made(name: str) -> Any:
        wanted = _cast_label(right, prediction.dtype)
        return sym.square(sym.broadcast_sub(prediction.symbol, wanted, name=f"{name}_difference"), name=name)

    return add_layer("square_error_cost", [prediction, right], made)


def accuracy(input: Any, label: Any, k: int = 1, correct: Any = None, total: Any = None) -> Variable:
    """Return the share of lines whose label is among the k largest scores.

    Shape:
        input: (N, classes), or sequences of scores.
        label: (N, 1), class numbers, or sequences of them.
        output: (1,).

    Args:
        input: scores or probabilities.
        k: number of largest scores.
        correct: a result of `create_tensor`, which gets the number of such lines.
        total: a result of `create_tensor`, which gets the number of lines.

    Raises:
        ArgumentError: `correct` or `total` is not a variable, or `k` is out of range.
    """
    scores, right = as_variable("accuracy", input), as_variable("accuracy", label, "label")
    right = label_of(scores, right)
    if scores.lod_level != right.lod_level:
        raise ArgumentError(f"accuracy: only one of {scores.name!r} and {right.name!r} holds sequences")
    if not 1 <= k <= width_of("accuracy", scores):
        raise ArgumentError(f"accuracy: k is {k!r}, expected 1 to {scores.shape[-1]}")

    def hits_of(name: str) -> Any:
        if k == 1:
            best = sym.argmax(scores.symbol, axis=-1, keepdims=True, name=f"{name}_best")
            numbers = sym.Cast(right.symbol, dtype="float32", name=f"{name}_label")
            return sym.broadcast_equal(best, numbers, name=f"{name}_hits")
        mask = sym.topk(scores.symbol, axis=-1, k=k, ret_typ="mask", name=f"{name}_best")
        return _pick_label(sym.BlockGrad(mask), right.symbol, f"{name}_hits")

    def made(name: str) -> Any:
        hits = hits_of(name)
        return over_sequences("mean", hits, name) if scores.lod_level else sym.mean(hits, name=name)

    for argument, place, ones in (
        ("correct", correct, hits_of),
        ("total", total, lambda name: right.symbol * 0 + 1),
    ):
        if place is not None:

            def counted(name: str, ones: Any = ones) -> Any:
                counts = sym.Cast(ones(name), dtype="int64")
                return over_sequences("sum", counts, name) if scores.lod_level else sym.sum(counts, name=name)

            count = add_layer(argument, [scores, right], counted, shape=(1,), dtype="int64", lod_level=0)
            as_variable("accuracy", place, argument).become(count)
    return add_layer("accuracy", [scores, right], made, shape=(1,), dtype="float32", lod_level=0)


def log_loss(input: Any, label: Any, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """Return the binary cross-entropy of each probability.

    Shape:
        input, output: (N, 1).
        label: as input; from 0 to 1.

    Args:
        input: probabilities.
        epsilon: added to the arguments of logarithms.
    """
    given, right = as_variable("log_loss", input), as_variable("log_loss", label, "label")
    right = label_of(given, right)

    def made(name: str) -> Any:
        wanted = _cast_label(right, given.dtype)
        hit = sym.broadcast_mul(wanted, sym.log(given.symbol + epsilon), name=f"{name}_hit")
        miss = sym.broadcast_mul(1.0 - wanted, sym.log(1.0 - given.symbol + epsilon), name=f"{name}_miss")
        return sym.negative(sym.broadcast_add(hit, miss), name=name)

    return add_layer("log_loss", [given, right], made, name)


def huber_loss(input: Any, label: Any, delta: float) -> Variable:
    """Return half the squared difference of each element, linear beyond `delta`.

    Args:
        label: the target.
        delta: difference from which the loss is linear.
    """
    given, right = as_variable("huber_loss", input), as_variable("huber_loss", label, "label")

    def made(name: str) -> Any:
        difference = sym.broadcast_sub(given.symbol, _cast_label(right, given.dtype)) * (1.0 / delta)
        return sym._internal._mul_scalar(
            sym.smooth_l1(difference, scalar=1.0), scalar=float(delta) ** 2, name=name
        )

    return add_layer("huber_loss", [given, right], made)


def smooth_l1(
    x: Any, y: Any, inside_weight: None = None, outside_weight: None = None, sigma: float | None = None
) -> Variable:
    """Return the sum of the smooth L1 losses of each line.

    Shape:
        x, y: (N, ...).
        output: (N, 1).

    Args:
        y: the target.
        inside_weight: must be None.
        outside_weight: must be None.
        sigma: the loss is quadratic below 1 / sigma²; None: 1.

    Raises:
        ArgumentError: a weight is given.
    """
    given, right = as_variable("smooth_l1", x, "x"), as_variable("smooth_l1", y, "y")
    if inside_weight is not None or outside_weight is not None:
        raise ArgumentError("smooth_l1: weights are not supported; multiply x and y before, or the result")

    def made(name: str) -> Any:
        losses = sym.smooth_l1(
            sym.broadcast_sub(given.symbol, right.symbol), scalar=1.0 if sigma is None else float(sigma)
        )
        return sym.sum(sym.Flatten(losses), axis=1, keepdims=True, name=name)

    return add_layer("smooth_l1", [given, right], made, shape=(-1, 1))


def bpr_loss(input: Any, label: Any, name: str | None = None) -> Variable:
    """Return the mean of the pairwise losses of the label against all other classes, for each line.

    Shape:
        input: (N, classes), scores.
        label: (N, 1), class numbers.
        output: (N, 1).

    Source: Hidasi et al., "Session-based recommendations with recurrent neural networks", 2016.
    """
    scores, right = as_variable("bpr_loss", input), as_variable("bpr_loss", label, "label")
    classes = width_of("bpr_loss", scores)

    def made(name: str) -> Any:
        chosen = _pick_label(scores.symbol, right.symbol, f"{name}_chosen")
        lead = sym.broadcast_sub(scores.symbol, chosen, name=f"{name}_lead")
        pairs = sym.sum(sym.Activation(lead, act_type="softrelu"), axis=-1, keepdims=True)
        # without the pair of the label with itself
        return sym._internal._mul_scalar(pairs - math.log(2.0), scalar=1.0 / (classes - 1), name=name)

    return add_layer("bpr_loss", [scores, right], made, name, shape=(*scores.shape[:-1], 1))


def cos_sim(X: Any, Y: Any) -> Variable:
    """Return the cosine of the angle between lines.

    Shape:
        X: (N, D).
        Y: (N, D) or (1, D).
        output: (N, 1).
    """
    left, right = as_variable("cos_sim", X, "X"), as_variable("cos_sim", Y, "Y")

    def length(data: Symbol) -> Any:
        return sym.sqrt(sym.sum(sym.square(data), axis=-1, keepdims=True))

    def made(name: str) -> Any:
        product = sym.sum(sym.broadcast_mul(left.symbol, right.symbol), axis=-1, keepdims=True)
        lengths = sym.broadcast_mul(length(left.symbol), length(right.symbol), name=f"{name}_lengths")
        return sym.broadcast_div(product, lengths, name=name)

    return add_layer("cos_sim", [left, right], made, shape=(*left.shape[:-1], 1))


def mse_loss(input: Any, label: Any) -> Variable:
    """Return the mean of the squared differences, a scalar.

    Args:
        label: the target.
    """
    return mean(square_error_cost(input, label))


def kldiv_loss(x: Any, target: Any, reduction: str = "mean", name: str | None = None) -> Variable:
    """Return the Kullback-Leibler divergence of each element, ``target * (log(target) - x)``; 0 where target is 0.

    Shape:
        x: (N, ...), logs of probabilities.
        target: as x, probabilities.

    Args:
        target: the target distribution.
        reduction: "mean", "sum", "batchmean" (the sum, divided by N), or "none".

    Raises:
        ArgumentError: the reduction is unknown.
    """
    logs, wanted = as_variable("kldiv_loss", x, "x"), as_variable("kldiv_loss", target, "target")
    kinds = ("mean", "sum", "batchmean", "none")
    if reduction not in kinds:
        raise ArgumentError(f"kldiv_loss: reduction is {reduction!r}, expected one of {', '.join(kinds)}")

    def made(name: str) -> Any:
        above = sym._internal._maximum_scalar(wanted.symbol, scalar=_MIN_PROBABILITY)
        difference = sym.broadcast_sub(sym.log(above), logs.symbol, name=f"{name}_difference")
        last = name if reduction == "none" else f"{name}_all"
        losses = sym.broadcast_mul(wanted.symbol, difference, name=last)
        if reduction == "none":
            return losses
        if reduction == "batchmean":
            return sym.mean(sym.sum(sym.Flatten(losses), axis=1), name=name)
        return (sym.mean if reduction == "mean" else sym.sum)(losses, name=name)

    shape = logs.shape if reduction == "none" else (1,)
    return add_layer("kldiv_loss", [logs, wanted], made, name, shape=shape)


def rank_loss(label: Any, left: Any, right: Any, name: str | None = None) -> Variable:
    """Return the cross-entropy of the order of two scores (RankNet).

    Shape:
        label: (N, 1), the probability that left ranks above right.
        left, right, output: (N, 1).

    Args:
        left: scores.
        right: other scores.

    Source: Burges et al., "Learning to rank using gradient descent", 2005.
    """
    higher, lower = as_variable("rank_loss", left, "left"), as_variable("rank_loss", right, "right")
    wanted = as_variable("rank_loss", label, "label")

    def made(name: str) -> Any:
        lead = sym.broadcast_sub(higher.symbol, lower.symbol, name=f"{name}_lead")
        product = sym.broadcast_mul(_cast_label(wanted, higher.dtype), lead)
        return sym.broadcast_sub(sym.Activation(lead, act_type="softrelu"), product, name=name)

    return add_layer("rank_loss", [higher, lower, wanted], made, name)


def margin_rank_loss(
    label: Any, left: Any, right: Any, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Return ``max(0, margin - label * (left - right))``.

    Shape:
        label: (N, 1), 1 if left ranks above right, else -1.
        left, right, output: (N, 1).

    Args:
        left: scores.
        right: other scores.
        margin: lead from which the loss is 0.
    """
    layer = "margin_rank_loss"
    higher, lower = as_variable(layer, left, "left"), as_variable(layer, right, "right")
    wanted = as_variable(layer, label, "label")
    check_number(layer, "margin", margin)

    def made(name: str) -> Any:
        lead = sym.broadcast_sub(higher.symbol, lower.symbol)
        product = sym.broadcast_mul(_cast_label(wanted, higher.dtype), lead, name=f"{name}_lead")
        return sym.relu(sym._internal._rminus_scalar(product, scalar=float(margin)), name=name)

    return add_layer(layer, [higher, lower, wanted], made, name)


def label_smooth(
    label: Any,
    prior_dist: Any = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Return probabilities mixed with a distribution: ``(1 - epsilon) * label + epsilon * prior_dist``.

    Shape:
        label: (N, classes).
        prior_dist: (1, classes).

    Args:
        label: probabilities.
        prior_dist: the distribution; None: uniform.
        epsilon: share of the distribution.
        dtype: ignored.
    """
    right = as_variable("label_smooth", label, "label")
    check_number("label_smooth", "epsilon", epsilon)
    rest = [] if prior_dist is None else [as_variable("label_smooth", prior_dist, "prior_dist")]

    def made(name: str) -> Any:
        kept = sym._internal._mul_scalar(right.symbol, scalar=1.0 - epsilon, name=f"{name}_kept")
        if not rest:
            return sym._internal._plus_scalar(
                kept, scalar=epsilon / width_of("label_smooth", right), name=name
            )
        return sym.broadcast_add(
            kept, sym._internal._mul_scalar(rest[0].symbol, scalar=float(epsilon)), name=name
        )

    return add_layer("label_smooth", [right, *rest], made, name)
