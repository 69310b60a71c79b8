"""Losses and predictions of label sequences: conditional random fields, and temporal classification."""

from __future__ import annotations

from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ...symbol import Symbol
from ..variable import ParamAttr, Variable
from .layer_helper import (
    add_layer,
    add_result,
    as_sequences,
    as_variable,
    check_integer,
    parameter,
    program_of,
    width_of,
)
from .sequence_parts import sequence_pad, sequence_unpad
from .shapes import squeeze


def _sequences_of(layer: str, given: Any, length: Any, argument: str = "input") -> Variable:
    """Return an input, which holds sequences or has padded rows of these lengths, as sequences."""
    variable = as_variable(layer, given, argument)
    return as_sequences(layer, variable if length is None else sequence_unpad(variable, length), argument)


def _transition(layer: str, scores: Variable, param_attr: Any) -> tuple[str, Symbol]:
    """Return the name of a layer, and the transition scores, which start as small random numbers."""
    labels, own = width_of(layer, scores), scores.program.unique(layer)
    shape = labels + 2, labels
    return own, parameter(scores.program, f"{own}_transition", shape, ParamAttr.of(param_attr))


def linear_chain_crf(input: Any, label: Any, param_attr: Any = None, length: Any = None) -> Variable:
    """Return the negative log-likelihood of the labels of each sequence in a linear-chain conditional random field.

    Shape:
        input: sequences of D scores; or (N, T, D), with `length`.
        label: sequences of numbers from 0 to D - 1; or (N, T, 1), with `length`.
        length: (N,) or (N, 1), integers.
        transition: (D + 2, D): scores of the first label, of the last one, and of a label after another, as in Paddle.
        output: (N, 1).

    Args:
        param_attr: attributes of the transition scores; `crf_decoding` takes the same name.
        length: lengths of padded rows.

    Raises:
        ArgumentError: `input` or `label` does not hold sequences.
        OpError: when it runs, for a label out of range.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     scores = fluid.layers.data("scores", [4], lod_level=1)
        ...     label = fluid.layers.data("label", [1], dtype="int64", lod_level=1)
        ...     loss = fluid.layers.mean(fluid.layers.linear_chain_crf(scores, label, "crfw"))
        ...     path = fluid.layers.crf_decoding(scores, "crfw")
        >>> path
        <Variable crf_decoding_0: shape=(-1, 1), dtype=int64, lod_level=1>

    Source: Lafferty, McCallum and Pereira, "Conditional random fields", 2001; Paddle 1.8 `linear_chain_crf`.
    """
    layer = "linear_chain_crf"
    scores, right = _sequences_of(layer, input, length), _sequences_of(layer, label, length, "label")
    program_of(layer, scores, right)
    own, transition = _transition(layer, scores, param_attr)

    def made(name: str) -> Any:
        return sym.sequence_crf(scores.symbol, right.symbol, transition, name=name)

    return add_layer(layer, [scores, right], made, own, shape=(-1, 1), lod_level=0)


def crf_decoding(input: Any, param_attr: Any, label: Any = None, length: Any = None) -> Variable:
    """Return the most likely labels of each sequence in the field of `linear_chain_crf`.

    Shape:
        input: sequences of D scores; or (N, T, D), with `length`.
        label: sequences of numbers; or (N, T, 1), with `length`.
        length: (N,) or (N, 1), integers.
        output: sequences of numbers, int64; or (N, T), with 0 after the ends, with `length`.

    Args:
        param_attr: the name of the transition scores.
        label: the right labels; with them the result is 1 where the label is right, and 0 elsewhere.
        length: lengths of padded rows.

    Raises:
        ArgumentError: a variable does not hold sequences, or the number of columns of padded rows is unknown.
    """
    layer = "crf_decoding"
    scores = _sequences_of(layer, input, length)
    right = None if label is None else _sequences_of(layer, label, length, "label")
    own, transition = _transition(layer, scores, param_attr)

    def made(name: str) -> Any:
        path = sym.sequence_crf_decode(
            sym.BlockGrad(scores.symbol),
            sym.BlockGrad(transition),
            name=name if right is None else f"{name}_path",
        )
        if right is None:
            return path
        hits = sym.broadcast_equal(path, sym.Cast(right.symbol, dtype="int64"), name=f"{name}_hits")
        return sym.Cast(hits, dtype="int64", name=name)

    path = add_layer(layer, [scores], made, own, shape=(-1, 1), dtype="int64")
    if length is None:
        return path
    columns = as_variable(layer, input).shape[1]
    return squeeze(sequence_pad(path, 0, columns if columns > 0 else None)[0], [2])


def chunk_eval(
    input: Any,
    label: Any,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Any = None,
    seq_length: Any = None,
) -> tuple[Variable, ...]:
    """Compare the chunks of predicted labels with those of the right ones.

    A label is ``kind * number of tags + tag``, and ``num_chunk_types * number of tags`` outside of chunks. The tags are
    B and I of "IOB", I and E of "IOE", B, I, E and S of "IOBES", and one of "plain".

    Shape:
        input, label: sequences of numbers; or (N, T, 1), with `seq_length`.
        seq_length: (N,) or (N, 1), integers.
        output: (1,) each, three of float32 and three of int64.

    Args:
        chunk_scheme: "IOB", "IOE", "IOBES" or "plain".
        num_chunk_types: number of kinds of chunks.
        excluded_chunk_types: list of kinds that do not count.
        seq_length: lengths of padded rows.

    Returns:
        Precision, recall and F1 of the batch, and the numbers of predicted, of right and of common chunks, which
        `metrics.ChunkEvaluator` adds up.

    Raises:
        ArgumentError: `input` or `label` does not hold sequences.
        OpError: `chunk_scheme` is none of the four.
        NodeError: on running: a label is out of range, or the lengths of rows differ.

    Source: Paddle 1.8 `chunk_eval`.
    """
    layer = "chunk_eval"
    found = _sequences_of(layer, input, seq_length)
    right = _sequences_of(layer, label, seq_length, "label")
    own = program_of(layer, found, right).unique(layer)
    counts: Symbol = sym._internal._sequence_chunks(
        found.symbol, right.symbol, scheme=chunk_scheme, num_chunk_types=num_chunk_types,
        excluded_chunk_types=tuple(excluded_chunk_types or ()), name=f"{own}_counts",
    )  # fmt: skip
    parts = [sym.slice_axis(counts, axis=0, begin=i, end=i + 1) for i in range(3)]
    common, sums = sym.Cast(parts[2], dtype="float32"), [*parts[:2], parts[0] + parts[1]]
    rates = [
        common * times / sym._internal._maximum_scalar(sym.Cast(each, dtype="float32"), scalar=1.0)
        for times, each in zip((1, 1, 2), sums)
    ]
    known: dict[str, Any] = {"shape": (1,), "lod_level": 0}
    names = "precision", "recall", "f1_score", "num_infer_chunks", "num_label_chunks", "num_correct_chunks"
    return tuple(
        add_result(
            layer, [found, right], each, f"{own}_{name}", dtype="int64" if i > 2 else "float32", **known
        )
        for i, (name, each) in enumerate(zip(names, [*rates, *parts]))
    )


def warpctc(
    input: Any,
    label: Any,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Any = None,
    label_length: Any = None,
) -> Variable:
    """Return the negative log-likelihood of each label sequence, summed over all alignments; includes softmax.

    Shape:
        input: sequences of C scores; or (T, N, C), with the two lengths.
        label: sequences of class numbers; or (N, L).
        input_length, label_length: (N,) or (N, 1), integers.
        output: (N, 1).

    Args:
        blank: number of the blank; without sequences 0 or C - 1.
        norm_by_times: whether to divide the gradient by the length of the input; only of sequences.
        input_length: numbers of steps, for an input without sequences.
        label_length: numbers of labels.

    Raises:
        ArgumentError: only one of the variables holds sequences, or an argument does not suit.

    Source: Graves et al., "Connectionist temporal classification", 2006; Paddle 1.8 `warpctc`.
    """
    layer = "warpctc"
    scores, right = as_variable(layer, input), as_variable(layer, label, "label")
    classes = width_of(layer, scores)
    if check_integer(layer, "blank", blank, 0) >= classes:
        raise ArgumentError(f"{layer}: blank is {blank!r}, expected 0 to {classes - 1}")
    if input_length is not None or label_length is not None:
        return _padded_ctc(layer, scores, right, blank, norm_by_times, input_length, label_length)
    as_sequences(layer, scores)
    as_sequences(layer, right, "label")

    def made(name: str) -> Any:
        return sym.sequence_ctc(
            scores.symbol, right.symbol, blank=int(blank), norm_by_times=bool(norm_by_times), name=name
        )

    return add_layer(layer, [scores, right], made, shape=(-1, 1), lod_level=0)


def _padded_ctc(
    layer: str,
    scores: Variable,
    right: Variable,
    blank: int,
    norm_by_times: bool,
    input_length: Any,
    label_length: Any,
) -> Variable:
    """Add the loss of padded rows."""
    lengths = [
        as_variable(layer, input_length, "input_length"),
        as_variable(layer, label_length, "label_length"),
    ]
    if len(scores.shape) != 3 or len(right.shape) != 2 or scores.lod_level or right.lod_level:
        raise ShapeError(
            f"{layer}: with lengths, input and label have the shapes {scores.shape} and {right.shape}, expected "
            "(T, N, C) and (N, L) without sequences"
        )
    last = scores.shape[-1] - 1
    if norm_by_times or blank not in (0, last):
        raise ArgumentError(
            f"{layer}: blank is {blank!r} and norm_by_times {norm_by_times!r}; with lengths, expected 0 or {last}, and "
            "False"
        )

    def made(name: str) -> Any:
        numbers = (sym.Reshape(each.symbol, shape=(-1,)) for each in lengths)
        losses = sym.CTCLoss(
            scores.symbol, right.symbol, *numbers, use_data_lengths=True, use_label_lengths=True,
            blank_label="first" if blank == 0 else "last", name=f"{name}_rows",
        )  # fmt: skip
        return sym.expand_dims(losses, axis=1, name=name)

    return add_layer(layer, [scores, right, *lengths], made, shape=(-1, 1))
