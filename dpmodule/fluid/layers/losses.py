"""Losses and accuracy."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ...base import ArgumentError
from ...symbol import Symbol
from ..variable import Variable
from .layer_helper import add_layer, as_variable, width_of

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
    logits: Any, label: Any, soft_label: bool = False, ignore_index: int | None = None
) -> Variable:
    """Return the cross-entropy of each line after a softmax, in one operation.

    Shape:
        logits: (N, classes).
        label: (N, 1), class numbers; with `soft_label` (N, classes).
        output: (N, 1).

    Args:
        logits: inputs of softmax.
        soft_label: whether `label` has a probability for each class.
        ignore_index: class whose lines have loss 0; None: there is none (Paddle: -100).
    """
    layer = "softmax_with_cross_entropy"
    scores, right = as_variable(layer, logits, "logits"), as_variable(layer, label, "label")

    def logarithms(name: str) -> Any:
        log_probabilities = sym.log_softmax(
            scores.symbol, axis=-1, name=name if soft_label else f"{name}_all"
        )
        return log_probabilities if soft_label else _pick_label(log_probabilities, right.symbol, name)

    return _entropy(layer, scores, right, logarithms, soft_label, ignore_index)


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


def sigmoid_cross_entropy_with_logits(x: Any, label: Any, name: str | None = None) -> Variable:
    """Return the binary cross-entropy of each element after a sigmoid.

    Shape:
        x, output: any.
        label: as x; from 0 to 1.

    Args:
        x: inputs of the sigmoid.
    """
    layer = "sigmoid_cross_entropy_with_logits"
    scores, right = as_variable(layer, x, "x"), as_variable(layer, label, "label")

    def made(name: str) -> Any:
        wanted = _cast_label(right, scores.dtype)
        above = sym.broadcast_sub(
            sym.relu(scores.symbol), sym.broadcast_mul(scores.symbol, wanted, name=f"{name}_product")
        )
        rest = sym.Activation(sym.negative(sym.abs(scores.symbol)), act_type="softrelu", name=f"{name}_rest")
        return sym.broadcast_add(above, rest, name=name)

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

    def made(name: str) -> Any:
        wanted = _cast_label(right, prediction.dtype)
        return sym.square(sym.broadcast_sub(prediction.symbol, wanted, name=f"{name}_difference"), name=name)

    return add_layer("square_error_cost", [prediction, right], made)


def accuracy(input: Any, label: Any, k: int = 1, correct: None = None, total: None = None) -> Variable:
    """Return the share of lines whose label is among the k largest scores.

    Shape:
        input: (N, classes).
        label: (N, 1), class numbers.
        output: (1,).

    Args:
        input: scores or probabilities.
        k: number of largest scores.
        correct: must be None.
        total: must be None.

    Raises:
        ArgumentError: `correct` or `total` is given, or `k` is out of range.
    """
    scores, right = as_variable("accuracy", input), as_variable("accuracy", label, "label")
    if correct is not None or total is not None:
        raise ArgumentError("accuracy: correct and total are not supported")
    if not 1 <= k <= width_of("accuracy", scores):
        raise ArgumentError(f"accuracy: k is {k!r}, expected 1 to {scores.shape[-1]}")
    if scores.lod_level:
        raise ArgumentError(f"accuracy: {scores.name!r} holds sequences; pool them first")

    def made(name: str) -> Any:
        if k == 1:
            best = sym.argmax(scores.symbol, axis=-1, keepdims=True, name=f"{name}_best")
            numbers = sym.Cast(right.symbol, dtype="float32", name=f"{name}_label")
            hits = sym.broadcast_equal(best, numbers, name=f"{name}_hits")
        else:
            mask = sym.topk(scores.symbol, axis=-1, k=k, ret_typ="mask", name=f"{name}_best")
            hits = _pick_label(sym.BlockGrad(mask), right.symbol, f"{name}_hits")
        return sym.mean(hits, name=name)

    return add_layer("accuracy", [scores, right], made, shape=(1,), dtype="float32", lod_level=0)
