"""`Seq2seqAgent`: encodes a text with one LSTM, and decodes the answer token by token with another.

Source: Sutskever et al., "Sequence to Sequence Learning with Neural Networks" (2014); attention after Luong et al.,
"Effective Approaches to Attention-based Neural Machine Translation" (2015), with dot products.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from .. import symbol as sym
from ..base import ArgumentError
from ..ndarray import NDArray
from ..rnn import FusedRNNCell
from ..symbol import Symbol
from . import vectors
from .agent import float_option, int_option
from .module_agent import ModuleAgent

Message = dict[str, Any]
Observations = Sequence[Message]

_BUCKETS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_TRAIN, _ENCODE, _DECODE = "train", "encode", "decode"
_RANKED_ROWS = 64
"""Number of candidates that are ranked in one batch."""


class Seq2seqAgent(ModuleAgent):
    """Learns the labels of texts, and returns the likeliest reply or ranks candidates by their likelihood.

    Texts and labels are padded to one of a few lengths, each of which is a bucket. In training the decoder reads the
    label (teacher forcing), and the reply has the likeliest token at each step; otherwise it decodes by greedy or beam
    search.

    Args:
        opt: options, in addition to those of `ModuleAgent` (default optimizer: "adam", ``learningrate`` 0.003):
            ``hiddensize`` (default 128), ``embeddingsize`` (default 64), ``numlayers`` (default 1), ``dropout``
            (default 0); ``attention``: ``"dot"`` (default) or ``"none"``; ``beam_size`` (default 1: greedy);
            ``rank_candidates``: whether to answer with the likeliest of ``label_candidates`` and to rank all of them
            (default False); ``truncate``: number of last tokens of a text and of first tokens of a label that are used
            (default 128); ``longest_answer``: largest number of tokens in a reply (default: `truncate`);
            ``buckets``: lengths to pad to.

    Raises:
        ArgumentError: an option has an invalid value, or there are no candidates to rank.
    """

    default_optimizer = "adam"
    default_learningrate = 0.003

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        ModuleAgent.add_cmdline_args(parser)
        group = parser.add_argument_group("seq2seq", argument_default=argparse.SUPPRESS)
        group.add_argument("-hs", "--hiddensize", type=int, help="units of an LSTM (default: 128)")
        group.add_argument("-esz", "--embeddingsize", type=int, help="size of token embeddings (default: 64)")
        group.add_argument("-nl", "--numlayers", type=int, help="layers of each LSTM (default: 1)")
        group.add_argument("-dr", "--dropout", type=float, help="dropout rate (default: 0)")
        group.add_argument(
            "--attention", choices=["dot", "none"], help="attention of the decoder to the text (default: dot)"
        )
        group.add_argument("--beam-size", type=int, help="width of the beam search (default: 1, greedy)")
        group.add_argument(
            "--rank-candidates", type="bool", help="rank the candidates and choose the best (default: no)"
        )
        group.add_argument(
            "--truncate", type=int, help="largest number of tokens of a text or label (default: 128)"
        )
        group.add_argument(
            "--longest-answer", type=int, help="largest number of tokens in a reply (default: --truncate)"
        )
        return group

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "Seq2seq"
        self._buckets = _lengths(self.opt)
        self._longest = int_option(self.opt, "longest_answer", self._buckets[-1])
        self._width = int_option(self.opt, "beam_size", 1)
        self._uses_attention = _uses_attention(self.opt)
        self._ranks = bool(self.opt.get("rank_candidates", False))
        words = self.dict
        special = (words.null_token, words.start_token, words.end_token)
        if not all(token and token in words for token in special):
            raise ArgumentError(f"the dictionary lacks a null, start or end token; it has {special}")
        self._nothing, self._start, self._end = (int(words[token]) for token in special)
        if not self.network.is_ready:  # the first bucket has all parameters
            self.network.warm_up(self.vectorize(self.sample()))

    def sample(self) -> list[Message]:
        return [{"text": "", "labels": [""]}]

    # the network

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> Callable[[Any], Any]:
        shape = Seq2seqSizes(
            len(dict),
            int_option(opt, "embeddingsize", 64),
            int_option(opt, "hiddensize", 128),
            int_option(opt, "numlayers", 1),
            float_option(opt, "dropout", 0.0, 0.0, 1.0),
            _uses_attention(opt),
            int(dict[dict.null_token]),
        )
        networks = {_TRAIN: training_network, _ENCODE: encoder_network, _DECODE: decoder_network}
        return lambda key: networks[key[0]](shape)

    def vectorize(self, observations: Observations) -> Any:
        return self._training_batch(
            [self._read(observation["text"]) for observation in observations],
            list(map(self._label_tokens, observations)),
        )

    def _label_tokens(self, observation: Message) -> list[int]:
        labels = observation.get("labels") or observation.get("eval_labels")
        return self._answer_tokens(next(iter(labels or ("",))))

    def _read(self, text: str) -> list[int]:
        """Return the last tokens of a text, or the null token for an empty text."""
        return self.dict.txt2vec(text)[-self._buckets[-1] :] or [self._nothing]

    def _answer_tokens(self, text: str) -> list[int]:
        """Return the first tokens of an answer and the end token."""
        return [*islice(self.dict.txt2vec(text), self._buckets[-1] - 1), self._end]

    def _training_batch(self, texts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> Any:
        answer_length, source = self._bucket(answers), self._bucket(texts)
        target = vectors.padded(answers, answer_length, self._nothing, "float32")
        inputs = vectors.padded([[self._start, *row[:-1]] for row in answers], answer_length, self._nothing)
        return vectors.batch_of(
            {**self._source(texts, source), "said": inputs},
            {"target": target},
            (_TRAIN, source, answer_length),
        )

    def _bucket(self, rows: Sequence[Sequence[int]]) -> int:
        return vectors.bucket_of(max(map(len, rows)), self._buckets)

    def _source(self, texts: Sequence[Sequence[int]], length: int) -> dict[str, NDArray]:
        lengths = vectors.dense([len(row) for row in texts])
        return {"source": vectors.padded(texts, length, self._nothing), "length": lengths}

    # learning

    def reply(self, observations: Observations, batch: Any, outputs: Sequence[NDArray]) -> list[Message]:
        tokens = outputs[1].asnumpy().reshape(len(observations), -1).astype("int64")
        losses = self._row_losses(batch, outputs)
        counts = (batch.label[0].asnumpy() != self._nothing).sum(1)
        return [
            {"text": self._text(row[:count].tolist()), "metrics": {"loss": float(loss / count)}}
            for row, count, loss in zip(tokens, counts.tolist(), losses)
        ]

    def _row_losses(self, batch: Any, outputs: Sequence[NDArray]) -> Any:
        """Return the negative log likelihood of each row's label, (N,)."""
        target = batch.label[0].asnumpy()
        likely = np.maximum(outputs[2].asnumpy().reshape(target.shape), np.finfo("float32").tiny)
        return -(np.log(likely) * (target != self._nothing)).sum(1, dtype="float64")

    def _text(self, tokens: list[int]) -> str:
        length = tokens.index(self._end) if self._end in tokens else len(tokens)
        return str(self.dict.vec2txt(tokens[:length]))

    # answering

    def answer(self, observations: Observations) -> Sequence[Message]:
        replies = self._rank_candidates(observations) if self._ranks else self._generate_replies(observations)
        labelled = [row for row, observation in enumerate(observations) if observation.get("eval_labels")]
        if labelled:
            batch = self.vectorize([observations[row] for row in labelled])
            losses = self._row_losses(batch, self.network.predict(batch))
            counts = (batch.label[0].asnumpy() != self._nothing).sum(1)
            for row, loss in zip(labelled, losses / counts):
                replies[row]["metrics"] = {"loss": float(loss)}
        return replies

    def _generate_replies(self, observations: Observations) -> list[Message]:
        texts = [self._read(each["text"]) for each in observations]
        length, width = self._bucket(texts), self._width
        source = self._source(texts, length)
        memory, *states = self.network.predict(vectors.batch_of(source, None, (_ENCODE, length)))
        seen = memory if self._uses_attention else None
        steps = _DecoderSteps(self.network, length, source["source"], seen, states, width)
        answers = beam_search(steps, len(texts), width, self._longest, self._start, self._end)
        return [{"text": str(self.dict.vec2txt(row))} for row in answers]

    def _rank_candidates(self, observations: Observations) -> list[Message]:
        """Return the ranked candidates of each observation, the likeliest first."""
        candidates = [self._candidates(observation) for observation in observations]
        texts = [self._read(observation["text"]) for observation in observations]
        pairs = [(row, text) for row, own in enumerate(candidates) for text in own]
        losses: list[float] = []
        for start in range(0, len(pairs), _RANKED_ROWS):
            chunk = pairs[start : start + _RANKED_ROWS]
            padded = chunk + chunk[:1] * (_RANKED_ROWS - len(chunk))  # always the same number of rows
            batch = self._training_batch(
                [texts[row] for row, _ in padded], [self._answer_tokens(text) for _, text in padded]
            )
            losses += self._row_losses(batch, self.network.predict(batch))[: len(chunk)].tolist()
        remaining = iter(losses)
        replies = []
        for own in candidates:
            ranked = [text for _, text in sorted(zip(islice(remaining, len(own)), own), key=_first)]
            replies.append({"text": ranked[0], "text_candidates": ranked})
        return replies

    def _candidates(self, observation: Message) -> list[str]:
        candidates = list(observation.get("label_candidates") or ())
        if not candidates:
            raise ArgumentError(
                f"agent {self.getID()!r} ranks candidates, but the observation {observation['text'][:80]!r} has no "
                'label_candidates; choose a task with candidates, or set opt["rank_candidates"] to False'
            )
        return candidates


def _first(pair: tuple[float, str]) -> float:
    return pair[0]


class _DecoderSteps:
    """Runs one step of the decoder.

    Args:
        memory: outputs of the encoder, (N, S, H); None without attention.
    """

    def __init__(
        self,
        network: Any,
        length: int,
        source: NDArray,
        memory: NDArray | None,
        states: Sequence[NDArray],
        width: int,
    ) -> None:
        self._network, self._width = network, width
        self._key = (_DECODE, length)
        attended = {} if memory is None else {"source": source, "memory": memory}
        self._fixed = {name: self._repeated(array) for name, array in attended.items()}
        self._states = [self._repeated(state) for state in states]

    def _repeated(self, array: NDArray) -> NDArray:
        width = self._width
        raw = array.raw.clone() if width == 1 else array.raw.repeat_interleave(width, 0)
        return NDArray(raw, array.context)

    def __call__(self, origins: Any, tokens: Any) -> Any:
        """Return the log probabilities of the next token; see `beam_search`."""
        states = self._states
        if self._width > 1:
            picked = torch.from_numpy(origins)
            states = [
                NDArray(state.raw.index_select(0, picked.to(state.raw.device)), state.context)
                for state in states
            ]
        inputs = {**self._fixed, "state": states[0], "state_cell": states[1]}
        inputs["said"] = vectors.dense(tokens[:, None], "int64")
        likely, *self._states = self._network.predict(vectors.batch_of(inputs, None, self._key))
        return likely.asnumpy()


def _uses_attention(opt: Mapping[str, Any]) -> bool:
    attention = opt.get("attention") or "dot"
    if attention not in ("dot", "none"):
        raise ArgumentError(f"attention is {attention!r}, expected 'dot' or 'none'")
    return bool(attention == "dot")


def _lengths(opt: Mapping[str, Any]) -> list[int]:
    """Return the lengths of buckets, ascending."""
    most = int_option(opt, "truncate", _BUCKETS[-1], 2)
    option = opt.get("buckets")
    lengths = (
        sorted({*(size for size in _BUCKETS if size < most), most}) if option is None else sorted(option)
    )
    if not lengths or any(not isinstance(length, int) or length < 2 for length in lengths):
        raise ArgumentError(f"buckets is {lengths!r}, expected integers from 2, such as [8, 16]")
    return lengths


_MASKED = -1e9
Bucket = tuple[Symbol, list[str], list[str] | None]


@dataclass(frozen=True, slots=True)
class Seq2seqSizes:
    """Sizes of the networks.

    Args:
        has_attention: whether the decoder attends to the encoder's outputs.
    """

    tokens: int
    embedding: int
    hidden: int
    layers: int
    dropout: float
    has_attention: bool
    nothing: int


def training_network(shape: Seq2seqSizes) -> Bucket:
    """Return the training network, which reads a text and its answer (teacher forcing).

    Outputs: probabilities, (N * T, V), with the gradient of training; the likeliest tokens, and the probabilities of
    the correct ones, both (N * T,).
    """
    weight, source = sym.Variable("embedding_weight"), sym.Variable("source")
    memory, states = _encoder(shape, weight, source)
    target = sym.reshape(sym.Variable("target"), shape=(-1,))
    scores, _ = _decoder(shape, weight, source, memory, states)
    probabilities = sym.SoftmaxOutput(
        sym.reshape(scores, shape=(-1, shape.tokens)),
        target,
        use_ignore=True,
        ignore_label=shape.nothing,
        name="softmax",
    )
    fixed = sym.BlockGrad(probabilities)
    outputs = [probabilities, sym.argmax(fixed, axis=1), sym.pick(fixed, target, axis=1)]
    return sym.Group(outputs), ["source", "length", "said"], ["target"]


def encoder_network(shape: Seq2seqSizes) -> Bucket:
    """Return the encoder of a text: its outputs, (N, S, H), and the last states, (N, L, H) each."""
    memory, states = _encoder(shape, sym.Variable("embedding_weight"), sym.Variable("source"))
    return sym.Group([memory, *map(_rows_first, states)]), ["source", "length"], None


def decoder_network(shape: Seq2seqSizes) -> Bucket:
    """Return the decoder of one token: log probabilities of the next token, (N, V), and the new states."""
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
    shape: Seq2seqSizes, name: str, words: Symbol, states: Any, lengths: Any
) -> tuple[Symbol, Sequence[Symbol]]:
    """Return the outputs (N, T, H) of an LSTM over (N, T, C), and its last states, (L, N, H)."""
    cell = FusedRNNCell(
        shape.hidden, shape.layers, "lstm", dropout=shape.dropout, get_next_state=True, prefix=f"{name}_"
    )
    # the operator infers the number of steps
    outputs, after = cell.unroll(1, words, states, "NTC", True, lengths)
    return outputs, after  # type: ignore[return-value]


def _embedded(shape: Seq2seqSizes, weight: Symbol, tokens: Symbol) -> Symbol:
    words: Symbol = sym.Embedding(
        tokens,
        weight=weight,
        input_dim=shape.tokens,
        output_dim=shape.embedding,
        name=f"{tokens.name}_words",
    )
    return sym.Dropout(words, p=shape.dropout) if shape.dropout else words


def _encoder(shape: Seq2seqSizes, weight: Symbol, source: Symbol) -> tuple[Symbol, Sequence[Symbol]]:
    return _lstm(shape, "encoder", _embedded(shape, weight, source), None, sym.Variable("length"))


def _decoder(
    shape: Seq2seqSizes, weight: Symbol, source: Symbol, memory: Symbol, states: Any
) -> tuple[Symbol, Sequence[Symbol]]:
    """Return the scores of the next token at every step, (N, T, V), and the last states."""
    outputs, after = _lstm(shape, "decoder", _embedded(shape, weight, sym.Variable("said")), states, None)
    if shape.has_attention:
        near = sym.batch_dot(outputs, memory, transpose_b=True)
        is_empty = sym.expand_dims(sym.cast(source == shape.nothing, dtype="float32"), axis=1)
        weights = sym.softmax(sym.broadcast_add(near, is_empty * _MASKED), axis=2)
        seen = sym.concat(outputs, sym.batch_dot(weights, memory), dim=2)
        outputs = sym.FullyConnected(seen, num_hidden=shape.hidden, flatten=False, name="attention")
        outputs = sym.Activation(outputs, act_type="tanh")
    if shape.dropout:
        outputs = sym.Dropout(outputs, p=shape.dropout)
    return sym.FullyConnected(outputs, num_hidden=shape.tokens, flatten=False, name="output"), after


Array = np.ndarray[Any, Any]
Step = Callable[[Array, Array], Array]
_IMPOSSIBLE = -1e30


def beam_search(step: Step, rows: int, width: int, longest: int, start: int, end: int) -> list[list[int]]:
    """Return the likeliest sequence that beam search finds for each row; greedy search with a width of 1.

    Args:
        step: ``(origins, tokens) -> log probabilities``, for R = rows * width sequences: index of the previous sequence
            that each one continues, (R,), and its last token, (R,); returns (R, V) for the next token.
        rows: number of rows.

    Example:
        >>> always = np.log(np.array([0.1, 0.6, 0.3]))  # token 0 ends
        >>> beam_search(lambda origins, tokens: np.tile(always, (len(tokens), 1)), 1, 2, 3, start=9, end=0)
        [[1, 1, 1]]
    """
    count = rows * width
    first = np.arange(rows)[:, None] * width
    tokens, origins = np.full(count, start), np.repeat(first, width)
    scores = np.full((rows, width), _IMPOSSIBLE)
    scores[:, 0] = 0.0  # all sequences are equal at the start
    done = np.zeros(count, bool)
    steps: list[tuple[Array, Array]] = []
    for _ in range(longest):
        likely = np.array(step(origins, tokens), "float64")
        size = likely.shape[1]
        if done.any():  # an ended sequence does not change
            likely[done] = _IMPOSSIBLE
            likely[done, end] = 0.0
        total = (scores.reshape(count, 1) + likely).reshape(rows, width * size)
        best = _top_indices(total, width)
        scores = np.take_along_axis(total, best, 1)
        origins = (first + best // size).reshape(count)
        tokens = (best % size).reshape(count)
        done = done[origins] | (tokens == end)
        steps.append((origins, tokens))
        if done.all():
            break
    return [_trace_back(steps, int(row * width + scores[row].argmax()), end) for row in range(rows)]


def _top_indices(values: Array, count: int) -> Array:
    """Return the indices of the largest numbers of each row, in no particular order."""
    indices: Array = (
        values.argmax(1)[:, None] if count == 1 else np.argpartition(values, -count, 1)[:, -count:]
    )
    return indices


def _trace_back(steps: list[tuple[Array, Array]], row: int, end: int) -> list[int]:
    sequence = []
    for origins, tokens in reversed(steps):
        sequence.append(int(tokens[row]))
        row = int(origins[row])
    sequence.reverse()
    return sequence[: sequence.index(end)] if end in sequence else sequence
