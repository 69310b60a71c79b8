"""Losses and predictions of label sequences on ragged values, as in Paddle's `fluid.layers`.

Shape letters: N rows, D labels, C classes of CTC with the blank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, integer, ints
from ..nn.layer_shapes import unify_input
from ..registry import op
from ..spec import NEVER, Attr, Env, Shapes, Types, arg, param
from .dispatch import SparseRule, Stypes, add_ragged_rule, differentiated_by_torch
from .recurrent import packing_layout
from .sequences import NO_ONNX, add_sequence_rule, dense_error, row_sums
from .storage import Ragged

Tensor = torch.Tensor


def _labels_of(name: str, label: Ragged, count: int, data: Ragged | None = None) -> Tensor:
    """Return the labels of all rows, (T,), after checking them."""
    if data is not None and not data.has_same_rows(label):
        raise ShapeError(f"{name}: the rows of data and label have different lengths")
    numbers = label.values.detach().reshape(-1).long()
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < count:
        raise OpError(
            f"{name}: labels are from {int(numbers.min())} to {int(numbers.max())}, expected 0 to {count - 1}"
        )
    return numbers


def _two_ragged(name: str, dense: int) -> Any:
    def storage(a: Any, stypes: Stypes) -> Stypes:
        if tuple(stypes) != ("ragged", "ragged", *["default"] * dense):
            raise dense_error(name, "data and label")
        return ("default",)

    return storage


def _loss_shapes(ins: list[Shape], outs: list[Shape]) -> list[Shape]:
    """Return the shape of a loss, one number for each row."""
    rows = next((s[0] for s in (*ins[:2], *outs) if s and s[0]), 0)
    return [unify_input("output", outs[0], (rows, 1), ins[0])]


def _loss_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    kind = ins[0] or outs[0]
    return [kind, ins[1], *[one or kind for one in ins[2:]]], [kind]


# conditional random fields


def _crf_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, label, transition = ins
    labels = next((s[-1] for s in (data, transition) if s and s[-1]), 0)
    transition = unify_input("transition", transition, (labels + 2 if labels else 0, labels), data)
    return [data, label, transition], _loss_shapes(ins, outs)


def _partition(data: Ragged, transition: Tensor) -> Tensor:
    """Return the log of the sum over all paths of each row, 0 for an empty row, (N,)."""
    first, last, between = transition[0], transition[1], transition[2:]
    positions, order, batch_sizes = packing_layout(data)
    sizes = batch_sizes.tolist()
    steps = torch.split(data.values.index_select(0, positions.argsort()), sizes)
    score = steps[0] + first
    ended = []
    for step in steps[1:]:
        count = step.shape[0]
        ended.append(score[count:])
        score = torch.logsumexp(score[:count, :, None] + between, 1) + step
    ended.append(score)
    whole = torch.logsumexp(torch.cat(ended[::-1]) + last, 1)
    return whole.new_zeros(data.shape[0]).index_copy(0, order[: sizes[0]], whole)


def _crf(a: Any, env: Env, data: Ragged, label: Ragged, transition: Tensor) -> Tensor:
    labels = _labels_of("sequence_crf", label, transition.shape[1], data)
    if not labels.numel():
        return data.values.new_zeros(data.shape[0], 1)
    rows = data.row_numbers()
    numbers = torch.arange(labels.numel(), device=labels.device)
    is_first = numbers == data.offsets.index_select(0, rows)
    is_last = numbers == data.offsets[1:].index_select(0, rows) - 1
    before = 2 + labels.roll(1)
    scores = data.values.gather(1, labels[:, None])[:, 0]
    scores = scores + transition[torch.where(is_first, 0, before), labels]
    scores = scores + transition[1].index_select(0, labels) * is_last
    return (_partition(data, transition) - row_sums(data, scores))[:, None]


@op("sequence_crf", [arg("data", NEVER), arg("label", NEVER), param("transition")],
    infer=_crf_shapes, infer_type=_loss_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_crf(a: Any, env: Env, data: Tensor, label: Tensor, transition: Tensor) -> Tensor:
    """Return the negative log-likelihood of the labels of each row in a linear-chain conditional random field.

    Shape:
        data: (N, D), ragged: score of each label.
        label: (N,) or (N, 1), ragged: integers from 0 to D - 1.
        transition: (D + 2, D): scores of the first label, of the last one, and of a label after another (row: before).
        output: (N, 1), 0 for an empty row.

    Raises:
        OpError: a value is dense, or a label is out of range.
        ShapeError: the lengths of data and label differ.

    Source: Lafferty, McCallum and Pereira, "Conditional random fields", 2001; Paddle 1.x
    `fluid.layers.linear_chain_crf`.
    """
    raise dense_error("sequence_crf", "data and label")


add_ragged_rule(
    "sequence_crf",
    SparseRule(_two_ragged("sequence_crf", 1), _crf, None, None, differentiated_by_torch(_crf)),
    alone=lambda a: True,
)


def _decode_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, transition = ins
    labels = next((s[-1] for s in (data, transition) if s and s[-1]), 0)
    transition = unify_input("transition", transition, (labels + 2 if labels else 0, labels), data)
    rows = data[0] if data else 0
    return [data, transition], [unify_input("output", outs[0], (rows, 1), data)]


def _decode_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return [ins[0], ins[1] or ins[0]], ["int64"]


def _decode(a: Any, env: Env, data: Ragged, transition: Tensor) -> Ragged:
    values, transition = data.values.detach(), transition.detach()
    if not values.shape[0]:
        return data.replaced(torch.zeros(0, 1, dtype=torch.int64, device=values.device))
    positions, _, batch_sizes = packing_layout(data)
    steps = torch.split(values.index_select(0, positions.argsort()), batch_sizes.tolist())
    score, best, origins = steps[0] + transition[0], [], []
    for i, step in enumerate(steps):
        if i:
            found = (score[: step.shape[0], :, None] + transition[2:]).max(1)
            score = found.values + step
            origins.append(found.indices)
        ending = steps[i + 1].shape[0] if i + 1 < len(steps) else 0
        best.append((score[ending:] + transition[1]).argmax(1))
    path = [best[-1]]
    for origin, ended in zip(origins[::-1], best[-2::-1]):
        path.append(torch.cat([origin.gather(1, path[-1][:, None])[:, 0], ended]))
    return data.replaced(torch.cat(path[::-1]).index_select(0, positions)[:, None])


@op("sequence_crf_decode", [arg("data", NEVER), param("transition")],
    infer=_decode_shapes, infer_type=_decode_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_crf_decode(a: Any, env: Env, data: Tensor, transition: Tensor) -> Tensor:
    """Return the most likely labels of each row in a linear-chain conditional random field; not differentiable.

    Shape:
        data: (N, D), ragged: score of each label.
        transition: (D + 2, D), as in `sequence_crf`.
        output: (N, 1) int64, ragged.

    Raises:
        OpError: the data is dense.

    Source: Viterbi, "Error bounds for convolutional codes", 1967; Paddle 1.x `fluid.layers.crf_decoding`.
    """
    raise dense_error("sequence_crf_decode")


add_sequence_rule("sequence_crf_decode", _decode)


# connectionist temporal classification


def _ctc_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, _loss_shapes(ins, outs)


def _ctc(a: Any, env: Env, data: Ragged, label: Ragged) -> Tensor:
    classes, lengths, counts = data.values.shape[1], data.lengths(), label.lengths()
    numbers = _labels_of("sequence_ctc", label, classes)
    if data.shape[0] != label.shape[0]:
        raise ShapeError(f"sequence_ctc: {data.shape[0]} rows of data and {label.shape[0]} of labels")
    if not a.blank < classes:
        raise OpError(f"sequence_ctc: blank is {a.blank}, expected 0 to {classes - 1}")
    if not data.values.shape[0]:
        return data.values.new_zeros(data.shape[0], 1)
    rows, longest = data.row_numbers(), int(lengths.max())
    steps = torch.arange(rows.numel(), device=rows.device) - data.offsets.index_select(0, rows)
    logits = torch.log_softmax(data.values, 1)
    padded = logits.new_zeros(longest * data.shape[0], classes).index_copy(
        0, steps * data.shape[0] + rows, logits
    )
    losses = F.ctc_loss(
        padded.view(longest, data.shape[0], classes),
        numbers,
        lengths,
        counts,
        a.blank,
        "none",
        zero_infinity=True,
    )
    if a.norm_by_times:  # of the gradient only
        scaled = losses / lengths.clamp(min=1)
        losses = scaled + (losses - scaled).detach()
    return losses[:, None]


@op("sequence_ctc", [arg("data", NEVER), arg("label", NEVER)],
    {"blank": Attr(integer(low=0), "number of the blank", 0),
     "norm_by_times": Attr(boolean, "divide the gradient by the length of the row", False)},
    infer=_ctc_shapes, infer_type=_loss_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_ctc(a: Any, env: Env, data: Tensor, label: Tensor) -> Tensor:
    """Return the negative log-likelihood of each label sequence, summed over all alignments; includes softmax.

    A sequence without a valid alignment has zero loss and gradient. `CTCLoss` takes dense arrays.

    Shape:
        data: (N, C), ragged: unnormalized scores of each time step.
        label: (N,) or (N, 1), ragged, of other lengths: class numbers.
        output: (N, 1).

    Raises:
        OpError: a value is dense, or a label or the blank is out of range.
        ShapeError: data and label have different numbers of rows.

    Source: Graves et al., "Connectionist temporal classification", 2006; Paddle 1.x `fluid.layers.warpctc`.
    """
    raise dense_error("sequence_ctc", "data and label")


add_ragged_rule(
    "sequence_ctc",
    SparseRule(_two_ragged("sequence_ctc", 0), _ctc, None, None, differentiated_by_torch(_ctc)),
    alone=lambda a: True,
)


# chunks of labels

_BREAKS = {
    "IOB": (2, [0], []),
    "IOE": (2, [], [1]),
    "IOBES": (4, [0, 3], [2, 3]),
    "plain": (1, [], []),
}
"""Number of tags of a scheme, those that begin a chunk, and those that end one."""


def _chunks(a: Any, labels: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return the kind of the chunk that begins at each place, -1 for none, and the place after the end of it."""
    tags, begin, end = _BREAKS[a.scheme]
    other, device = a.num_chunk_types, labels.device
    kind, tag = labels // tags, labels % tags
    begins, ends = (
        torch.isin(tag, torch.tensor(some, dtype=tag.dtype, device=device)) for some in (begin, end)
    )
    breaks = first | (kind != kind.roll(1)) | begins | ends.roll(1)
    places = torch.where(breaks, torch.arange(len(labels), device=device), len(labels))
    after = torch.cat([places[1:], places.new_full((1,), len(labels))]).flip(0).cummin(0).values.flip(0)
    counted = breaks & (kind != other)
    for excluded in a.excluded_chunk_types:
        counted &= kind != excluded
    return torch.where(counted, kind, -1), after


def _chunk_counts(a: Any, env: Env, data: Ragged, label: Ragged) -> Tensor:
    count = a.num_chunk_types * _BREAKS[a.scheme][0] + 1
    labels = _labels_of("_sequence_chunks", label, count, data)
    if not labels.numel():
        return labels.new_zeros(3)
    first = torch.zeros_like(labels, dtype=torch.bool)
    first[label.offsets[:-1][label.lengths() > 0]] = True
    found, found_end = _chunks(a, _labels_of("_sequence_chunks", data, count), first)
    right, right_end = _chunks(a, labels, first)
    hits = (found >= 0) & (found == right) & (found_end == right_end)
    return torch.stack([(found >= 0).sum(), (right >= 0).sum(), hits.sum()])


@op("_sequence_chunks", [arg("data", NEVER), arg("label", NEVER)],
    {"scheme": Attr(choice(*_BREAKS), "tags in the label of a kind of chunk"),
     "num_chunk_types": Attr(integer(low=1), "number of kinds"),
     "excluded_chunk_types": Attr(ints, "kinds that do not count", ())},
    infer=lambda a, ins, outs: (ins, [unify_input("output", outs[0], (3,), ins[0])]),
    infer_type=lambda a, ins, outs: (ins, ["int64"]), batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_chunks(a: Any, env: Env, data: Tensor, label: Tensor) -> Tensor:
    """Count the chunks of rows of labels; not differentiable.

    Shape:
        data, label: (N,) or (N, 1), ragged: kind * number of tags + tag, and num_chunk_types * number of tags outside
            of chunks.
        output: (3,) int64: chunks of data, of label, and those that are in both with the same ends and kind.

    Raises:
        OpError: a value is dense, or a label is out of range.
        ShapeError: the lengths of data and label differ.

    Source: Paddle 1.x `fluid.layers.chunk_eval`.
    """
    raise dense_error("_sequence_chunks", "data and label")


add_ragged_rule(
    "_sequence_chunks",
    SparseRule(_two_ragged("_sequence_chunks", 0), _chunk_counts, None, None, None),
    alone=lambda a: True,
)
