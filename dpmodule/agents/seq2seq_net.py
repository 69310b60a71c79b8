"""The networks of `Seq2seqAgent`: one to train, one that reads a text, one that goes on from what was said.

Source: Sutskever et al., "Sequence to Sequence Learning with Neural Networks" (2014); attention after Luong et al.,
"Effective Approaches to Attention-based Neural Machine Translation" (2015), with dot products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import symbol as sym
from ..rnn import FusedRNNCell
from ..symbol import Symbol

_FAR = -1e9
Bucket = tuple[Symbol, list[str], list[str] | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the networks.

    Args:
        has_attention: whether the decoder looks at all of the encoder's outputs.
    """

    tokens: int
    embedding: int
    hidden: int
    layers: int
    dropout: float
    has_attention: bool
    nothing: int


def train(shape: Shape) -> Bucket:
    """Return the network that reads a text and is told the answer (teacher forcing).

    Its outputs: probabilities, (N * T, V), whose gradient it trains with; the likeliest tokens, and the probabilities
    of the right ones, both (N * T,).
    """
    weight, source = sym.Variable("embedding_weight"), sym.Variable("source")
    memory, states = _encoder(shape, weight, source)
    target = sym.reshape(sym.Variable("target"), shape=(-1,))
    scores, _ = _decoder(shape, weight, source, memory, states)
    found = sym.SoftmaxOutput(
        sym.reshape(scores, shape=(-1, shape.tokens)),
        target,
        use_ignore=True,
        ignore_label=shape.nothing,
        name="softmax",
    )
    fixed = sym.BlockGrad(found)
    outputs = [found, sym.argmax(fixed, axis=1), sym.pick(fixed, target, axis=1)]
    return sym.Group(outputs), ["source", "length", "said"], ["target"]


def encode(shape: Shape) -> Bucket:
    """Return the network that reads a text: its outputs (N, S, H), and the last states, (N, L, H) each."""
    memory, states = _encoder(shape, sym.Variable("embedding_weight"), sym.Variable("source"))
    return sym.Group([memory, *map(_rows_first, states)]), ["source", "length"], None


def decode(shape: Shape) -> Bucket:
    """Return the network that goes on: log probabilities of the next token, (N, V), and the states after it."""
    source, memory = sym.Variable("source"), sym.Variable("memory")
    states = [_rows_first(sym.Variable(name)) for name in ("state", "state_cell")]
    scores, after = _decoder(shape, sym.Variable("embedding_weight"), source, memory, states)
    likely = sym.log_softmax(sym.reshape(scores, shape=(-1, shape.tokens)))
    names = ["source", "memory"] if shape.has_attention else []
    return sym.Group([likely, *map(_rows_first, after)]), [*names, "state", "state_cell", "said"], None


def _rows_first(state: Symbol) -> Symbol:
    """Swap layers and rows, so that batches are cut along the first axis everywhere."""
    swapped: Symbol = sym.swapaxes(state, dim1=0, dim2=1)
    return swapped


def _lstm(
    shape: Shape, name: str, words: Symbol, states: Any, lengths: Any
) -> tuple[Symbol, Sequence[Symbol]]:
    """Return the outputs (N, T, H) of an LSTM over (N, T, C), and its last states, (L, N, H)."""
    cell = FusedRNNCell(
        shape.hidden, shape.layers, "lstm", dropout=shape.dropout, get_next_state=True, prefix=f"{name}_"
    )
    # how many steps there are, the operator sees itself
    outputs, after = cell.unroll(1, words, states, "NTC", True, lengths)
    return outputs, after  # type: ignore[return-value]


def _embedded(shape: Shape, weight: Symbol, tokens: Symbol) -> Symbol:
    words: Symbol = sym.Embedding(
        tokens,
        weight=weight,
        input_dim=shape.tokens,
        output_dim=shape.embedding,
        name=f"{tokens.name}_words",
    )
    return sym.Dropout(words, p=shape.dropout) if shape.dropout else words


def _encoder(shape: Shape, weight: Symbol, source: Symbol) -> tuple[Symbol, Sequence[Symbol]]:
    return _lstm(shape, "encoder", _embedded(shape, weight, source), None, sym.Variable("length"))


def _decoder(
    shape: Shape, weight: Symbol, source: Symbol, memory: Symbol, states: Any
) -> tuple[Symbol, Sequence[Symbol]]:
    """Return the scores of every token behind every step, (N, T, V), and the last states."""
    outputs, after = _lstm(shape, "decoder", _embedded(shape, weight, sym.Variable("said")), states, None)
    if shape.has_attention:
        near = sym.batch_dot(outputs, memory, transpose_b=True)
        is_empty = sym.expand_dims(sym.cast(source == shape.nothing, dtype="float32"), axis=1)
        weights = sym.softmax(sym.broadcast_add(near, is_empty * _FAR), axis=2)
        seen = sym.concat(outputs, sym.batch_dot(weights, memory), dim=2)
        outputs = sym.FullyConnected(seen, num_hidden=shape.hidden, flatten=False, name="attention")
        outputs = sym.Activation(outputs, act_type="tanh")
    if shape.dropout:
        outputs = sym.Dropout(outputs, p=shape.dropout)
    return sym.FullyConnected(outputs, num_hidden=shape.tokens, flatten=False, name="output"), after


Array = np.ndarray[Any, Any]
Step = Callable[[Array, Array], Array]
_NEVER = -1e30


def beam_search(step: Step, rows: int, width: int, longest: int, start: int, end: int) -> list[list[int]]:
    """Return the likeliest sequence that beam search finds for each row; greedy search with a width of 1.

    Args:
        step: ``(origins, tokens) -> log probabilities``, for rows * width sequences: which of those of the step before
            each continues, (R,), and its last token, (R,); returns (R, V) for the next one.
        rows: number of rows.

    Example:
        >>> always = np.log(np.array([0.1, 0.6, 0.3]))  # token 0 ends
        >>> beam_search(lambda origins, tokens: np.tile(always, (len(tokens), 1)), 1, 2, 3, start=9, end=0)
        [[1, 1, 1]]
    """
    count = rows * width
    first = np.arange(rows)[:, None] * width
    tokens, origins = np.full(count, start), np.repeat(first, width)
    scores = np.full((rows, width), _NEVER)
    scores[:, 0] = 0.0  # all are alike in the beginning
    done = np.zeros(count, bool)
    steps: list[tuple[Array, Array]] = []
    for _ in range(longest):
        likely = np.array(step(origins, tokens), "float64")
        size = likely.shape[1]
        if done.any():  # one that has ended stays as it is
            likely[done] = _NEVER
            likely[done, end] = 0.0
        total = (scores.reshape(count, 1) + likely).reshape(rows, width * size)
        best = _largest(total, width)
        scores = np.take_along_axis(total, best, 1)
        origins = (first + best // size).reshape(count)
        tokens = (best % size).reshape(count)
        done = done[origins] | (tokens == end)
        steps.append((origins, tokens))
        if done.all():
            break
    return [_read(steps, int(row * width + scores[row].argmax()), end) for row in range(rows)]


def _largest(values: Array, count: int) -> Array:
    """Return where the largest numbers of each row are, in no order."""
    found: Array = values.argmax(1)[:, None] if count == 1 else np.argpartition(values, -count, 1)[:, -count:]
    return found


def _read(steps: list[tuple[Array, Array]], place: int, end: int) -> list[int]:
    found = []
    for origins, tokens in reversed(steps):
        found.append(int(tokens[place]))
        place = int(origins[place])
    found.reverse()
    return found[: found.index(end)] if end in found else found
