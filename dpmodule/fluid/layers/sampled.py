"""Losses for many classes, which read only some of them."""

from __future__ import annotations

import math
from typing import Any

from ... import initializer as init
from ... import symbol as sym
from ...base import ArgumentError
from ...symbol import Symbol
from ..program import Program
from ..variable import ParamAttr, Variable
from .layer_helper import add_layer, as_variable, check_integer, parameter, program_of, width_of


def _inputs(layer: str, input: Any, label: Any) -> tuple[Variable, Variable]:
    rows, right = as_variable(layer, input), as_variable(layer, label, "label")
    program_of(layer, rows, right)
    if rows.lod_level != right.lod_level:
        raise ArgumentError(f"{layer}: only one of {rows.name!r} and {right.name!r} holds sequences")
    width_of(layer, rows)
    width_of(layer, right)
    return rows, right


def _refuse(layer: str, instead: str, **given: Any) -> None:
    for name, value in given.items():
        if value:
            raise ArgumentError(f"{layer}: {name} is {value!r}, which is not supported; {instead}")


class _ClassScores:
    """Weights and biases of classes, which are looked up for some of them."""

    def __init__(
        self, program: Program, own: str, rows: Variable, count: int, attrs: tuple[Any, Any], is_sparse: bool
    ) -> None:
        self._rows, self._count, self._sparse = rows, count, is_sparse
        features = rows.shape[-1]
        self._weight = parameter(program, f"{own}_weight", (count, features), ParamAttr.of(attrs[0]))
        self._bias = None
        if attrs[1] is not False:
            start, attr = init.Constant(0.0), ParamAttr.of(attrs[1])
            self._bias = parameter(program, f"{own}_bias", (count, 1), attr, initializer=start)

    def of(self, numbers: Symbol) -> Any:
        """Return the scores of classes by number.

        Shape:
            numbers: (N, K).
            returns: (N, K).
        """
        sizes = {"input_dim": self._count, "sparse_grad": self._sparse}
        weights = sym.Embedding(numbers, self._weight, output_dim=self._rows.shape[-1], **sizes)
        products = sym.broadcast_mul(weights, sym.expand_dims(self._rows.symbol, axis=1))
        scores = sym.sum(products, axis=2)
        if self._bias is None:
            return scores
        biases = sym.Embedding(numbers, self._bias, output_dim=1, **sizes)
        return sym.broadcast_add(scores, sym.squeeze(biases, axis=2))


def nce(
    input: Any,
    label: Any,
    num_total_classes: int,
    sample_weight: Any = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Return the noise-contrastive loss of each line, with classes that are drawn for each line.

    Shape:
        input: (N, D).
        label: (N, T), numbers of T right classes.
        sample_weight: (N, 1).
        weight: (num_total_classes, D).
        bias: (num_total_classes, 1).
        output: (N, 1).

    Args:
        num_total_classes: number of classes.
        sample_weight: factors of the losses.
        bias_attr: attributes of the bias; False: no bias.
        num_neg_samples: number of classes to draw for each line; None: 10.
        sampler: "uniform", or "log_uniform", which draws classes with small numbers more often.
        custom_dist: must be None.
        seed: must be 0; use `mx.random.seed`.
        is_sparse: whether the gradients are row-sparse.

    Raises:
        ArgumentError: an argument is not valid or not supported.

    Source: Gutmann and Hyvärinen, "Noise-contrastive estimation", 2010; Paddle 1.8 `nce`.
    """
    layer = "nce"
    rows, right = _inputs(layer, input, label)
    classes = check_integer(layer, "num_total_classes", num_total_classes, 2)
    drawn = check_integer(layer, "num_neg_samples", 10 if num_neg_samples is None else num_neg_samples, 1)
    if sampler not in ("uniform", "log_uniform"):
        raise ArgumentError(f'{layer}: sampler is {sampler!r}, expected "uniform" or "log_uniform"')
    if custom_dist is not None:
        raise ArgumentError(f'{layer}: custom_dist is not supported; use sampler="log_uniform"')
    _refuse(layer, "mx.random.seed(n) seeds all random numbers", seed=seed)
    factors = None if sample_weight is None else as_variable(layer, sample_weight, "sample_weight")
    program, known = rows.program, right.shape[-1]
    own = program.unique(layer) if name is None else name
    scores = _ClassScores(program, own, rows, classes, (param_attr, bias_attr), is_sparse)

    def made(name: str) -> Any:
        numbers = sym.Cast(sym.BlockGrad(right.symbol), dtype="float64")
        first = sym.zeros_like(sym.slice_axis(numbers, axis=1, begin=0, end=1))
        like = sym.broadcast_add(first, sym.zeros(shape=(1, drawn), dtype="float64"))
        level = sym._internal._random_uniform_like(like, name=f"{name}_draw")
        if sampler == "uniform":
            others = sym.clip(sym.floor(level * classes), a_min=0, a_max=classes - 1)
        else:
            others = sym.clip(sym.floor(sym.exp(level * math.log(classes))) - 1, a_min=0, a_max=classes - 1)
        noise = _noise(sym.Concat(numbers, others, dim=1), classes, sampler) * drawn
        # two lookups, so that feeds are checked: labels are classes
        found = sym.sigmoid(sym.Concat(scores.of(right.symbol), scores.of(others), dim=1))
        noise = sym.Cast(noise, dtype="float32")
        total = sym.log(found + noise)
        begin = {"axis": 1, "begin": 0, "end": known}
        rest = {"axis": 1, "begin": known, "end": known + drawn}
        hits = sym.log(sym.slice_axis(found, **begin)) - sym.slice_axis(total, **begin)
        misses = sym.log(sym.slice_axis(noise, **rest)) - sym.slice_axis(total, **rest)
        loss = sym.negative(
            sym.sum(hits, axis=1, keepdims=True) + sym.sum(misses, axis=1, keepdims=True),
            name=name if factors is None else f"{name}_plain",
        )
        return loss if factors is None else sym.broadcast_mul(loss, factors.symbol, name=name)

    return add_layer(layer, [rows, right], made, own, shape=(-1, 1), dtype="float32")


def _noise(numbers: Symbol, classes: int, sampler: str) -> Any:
    """Return the probability of each class of a sampler."""
    if sampler == "uniform":
        return sym.zeros_like(numbers) + 1.0 / classes
    return sym.log((numbers + 2) / (numbers + 1)) * (1 / math.log(classes))


def hsigmoid(
    input: Any,
    label: Any,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: None = None,
    path_code: None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Return the loss of each line over a complete binary tree of the classes (hierarchical softmax).

    The gradient is Paddle's. Paddle adds log 2 to the loss for each level that the path of a class lacks.

    Shape:
        input: (N, D).
        label: (N, 1), numbers of classes.
        weight: (num_classes - 1, D), of the inner nodes.
        bias: (num_classes - 1, 1).
        output: (N, 1).

    Args:
        num_classes: number of classes.
        bias_attr: attributes of the bias; False: no bias.
        path_table: must be None.
        path_code: must be None.
        is_custom: must be False.
        is_sparse: whether the gradients are row-sparse.

    Raises:
        ArgumentError: an argument is not valid or not supported.

    Source: Morin and Bengio, "Hierarchical probabilistic neural network language model", 2005; Paddle 1.8 `hsigmoid`.
    """
    layer = "hsigmoid"
    rows, right = _inputs(layer, input, label)
    classes = check_integer(layer, "num_classes", num_classes, 2)
    for argument, given in (("path_table", path_table), ("path_code", path_code)):
        if given is not None:
            raise ArgumentError(f"{layer}: {argument} is not supported; the tree is that of num_classes")
    _refuse(layer, "the tree is that of num_classes", is_custom=is_custom)
    program = rows.program
    own = program.unique(layer) if name is None else name
    scores = _ClassScores(program, own, rows, classes - 1, (param_attr, bias_attr), is_sparse)

    def made(name: str) -> Any:
        nodes, bits, kept = sym._internal._tree_path(
            sym.BlockGrad(rows.symbol), right.symbol, num_classes=classes, name=f"{name}_path"
        )
        found = sym.clip(scores.of(nodes), a_min=-40, a_max=40)
        losses = sym.Activation(found, act_type="softrelu") - bits * found
        return sym.sum(losses * kept, axis=1, keepdims=True, name=name)

    return add_layer(layer, [rows, right], made, own, shape=(-1, 1), dtype="float32")


def sampled_softmax_with_cross_entropy(
    logits: Any,
    label: Any,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: None = None,
    customized_probabilities: None = None,
    seed: int = 0,
) -> Variable:
    """Return the cross-entropy of each line after a softmax over the right class and classes drawn for the batch.

    Classes are drawn without repetition, small numbers more often, and their scores are reduced by the log of their
    expected number.

    Shape:
        logits: (N, classes).
        label: (N, num_true), numbers of the right classes.
        output: (N, 1).

    Args:
        logits: scores of all classes.
        num_samples: number of classes to draw.
        num_true: number of right classes of a line, which have equal probabilities.
        remove_accidental_hits: whether drawn classes do not count where they are right.
        use_customized_samples: must be False.
        customized_samples: must be None.
        customized_probabilities: must be None.
        seed: must be 0; use `mx.random.seed`.

    Raises:
        ArgumentError: an argument is not valid or not supported.

    Source: Jean et al., "On using very large target vocabulary", 2015; Paddle 1.8.
    """
    layer = "sampled_softmax_with_cross_entropy"
    scores, right = _inputs(layer, logits, label)
    if scores.lod_level:
        raise ArgumentError(f"{layer}: {scores.name!r} holds sequences; pool them first")
    classes = scores.shape[-1]
    count = check_integer(layer, "num_samples", num_samples, 1)
    known = check_integer(layer, "num_true", num_true, 1)
    if count > classes or right.shape[-1] != known:
        raise ArgumentError(
            f"{layer}: num_samples is {num_samples!r} and num_true {num_true!r} for {classes} classes and labels of "
            f"shape {right.shape}"
        )
    _refuse(
        layer,
        "classes are drawn",
        use_customized_samples=use_customized_samples,
        customized_samples=customized_samples is not None,
        customized_probabilities=customized_probabilities is not None,
    )
    _refuse(layer, "mx.random.seed(n) seeds all random numbers", seed=seed)

    def made(name: str) -> Any:
        drawn = sym._internal._sample_unique_zipfian(range_max=classes, shape=(1, count), name=f"{name}_draw")
        tries = sym.Reshape(sym.Cast(drawn[1], dtype="float64"), shape=(1, 1))
        wanted = sym.Cast(sym.BlockGrad(right.symbol), dtype="float64")
        others = sym.Cast(drawn[0], dtype="float64")

        def reduced(found: Symbol, numbers: Symbol) -> Any:
            probability = sym.log((numbers + 2) / (numbers + 1)) * (1 / math.log(classes + 1))
            expected = sym.negative(sym.expm1(sym.broadcast_mul(sym.log1p(sym.negative(probability)), tries)))
            return sym.broadcast_sub(found, sym.Cast(sym.log(expected), dtype=scores.dtype))

        rows = sym.Reshape(drawn[0], shape=(-1,))
        chosen = reduced(sym.take(scores.symbol, rows, axis=1), others)
        if remove_accidental_hits:
            equal = sym.broadcast_equal(sym.expand_dims(wanted, axis=2), sym.expand_dims(others, axis=1))
            chosen = chosen - sym.Cast(sym.max(equal, axis=1), dtype=scores.dtype) * 1e20
        true = [
            sym.pick(scores.symbol, sym.slice_axis(wanted, axis=1, begin=i, end=i + 1), axis=1, keepdims=True)
            for i in range(known)
        ]
        hits = reduced(sym.Concat(*true, dim=1) if known > 1 else true[0], wanted)
        logs = sym.log_softmax(sym.Concat(hits, chosen, dim=1), axis=-1)
        of_hits = sym.slice_axis(logs, axis=1, begin=0, end=known)
        return sym.negative(sym.mean(of_hits, axis=1, keepdims=True), name=name)

    return add_layer(layer, [scores, right], made, shape=(-1, 1))
