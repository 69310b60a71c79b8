"""`Seq2seqAgent`: reads a text with one LSTM, and says the answer, token by token, with another.

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
"""Candidates that are ranked together."""


class Seq2seqAgent(ModuleAgent):
    """Learns to say the label of a text, and says what is likeliest, or ranks candidates by how likely they are.

    Texts and labels are padded to one of a few lengths, each of which is a bucket. In training the decoder is told the
    label (teacher forcing), and the reply is what it would have said next at each step; else it goes on from what it
    says itself, by greedy or beam search.

    Args:
        opt: options, besides those of `ModuleAgent` (default optimizer: "adam", ``learningrate`` 0.003):
            ``hiddensize`` (default 128), ``embeddingsize`` (default 64), ``numlayers`` (default 1), ``dropout``
            (default 0); ``attention``: ``"dot"`` (default) or ``"none"``; ``beam_size`` (default 1: greedy);
            ``rank_candidates``: whether to answer with the likeliest of ``label_candidates``, all of which the reply
            then ranks (default False); ``truncate``: how many tokens of a text and of a label count, the last of the
            one and the first of the other (default 128); ``longest_answer``: tokens of what is said (default:
            `truncate`); ``buckets``: lengths that are padded to.

    Raises:
        ArgumentError: an option is no such thing, or there are no candidates to rank.
    """

    default_optimizer = "adam"
    default_learningrate = 0.003

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        ModuleAgent.add_cmdline_args(parser)
        group = parser.add_argument_group("seq2seq", argument_default=argparse.SUPPRESS)
        group.add_argument("-hs", "--hiddensize", type=int, help="units of an LSTM (default: 128)")
        group.add_argument("-esz", "--embeddingsize", type=int, help="numbers of a token (default: 64)")
        group.add_argument("-nl", "--numlayers", type=int, help="layers of each LSTM (default: 1)")
        group.add_argument("-dr", "--dropout", type=float, help="share that is dropped (default: 0)")
        group.add_argument(
            "--attention", choices=["dot", "none"], help="whether it looks back at the text (default: dot)"
        )
        group.add_argument("--beam-size", type=int, help="answers followed at once (default: 1, greedy)")
        group.add_argument(
            "--rank-candidates", type="bool", help="choose one of the candidates (default: no)"
        )
        group.add_argument("--truncate", type=int, help="tokens that count (default: 128)")
        group.add_argument(
            "--longest-answer", type=int, help="tokens of what is said (default: those that count)"
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
            raise ArgumentError(
                f"the dictionary lacks one of the tokens for nothing, start and end: {special}"
            )
        self._nothing, self._start, self._end = (int(words[token]) for token in special)
        if not self.network.is_ready:  # the bucket that has all parameters comes first
            self.network.warm_up(self.vectorize(self.sample()))

    def sample(self) -> list[Message]:
        return [{"text": "", "labels": [""]}]

    # the network

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> Callable[[Any], Any]:
        shape = NetworkSizes(
            len(dict),
            int_option(opt, "embeddingsize", 64),
            int_option(opt, "hiddensize", 128),
            int_option(opt, "numlayers", 1),
            float_option(opt, "dropout", 0.0, 0.0, 1.0),
            _uses_attention(opt),
            int(dict[dict.null_token]),
        )
        kinds = {_TRAIN: training_network, _ENCODE: encoder_network, _DECODE: decoder_network}
        return lambda key: kinds[key[0]](shape)

    def vectorize(self, observations: Observations) -> Any:
        return self._training_batch(
            [self._read(each["text"]) for each in observations], list(map(self._label_tokens, observations))
        )

    def _label_tokens(self, observation: Message) -> list[int]:
        labels = observation.get("labels") or observation.get("eval_labels")
        return self._answer_tokens(next(iter(labels or ("",))))

    def _read(self, text: str) -> list[int]:
        """Return the last tokens of a text; of one without any, that for nothing."""
        return self.dict.txt2vec(text)[-self._buckets[-1] :] or [self._nothing]

    def _answer_tokens(self, text: str) -> list[int]:
        """Return the first tokens of an answer, and the one that ends it."""
        return [*islice(self.dict.txt2vec(text), self._buckets[-1] - 1), self._end]

    def _training_batch(self, texts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> Any:
        said, source = self._bucket(answers), self._bucket(texts)
        target = vectors.padded(answers, said, self._nothing, "float32")
        told = vectors.padded([[self._start, *row[:-1]] for row in answers], said, self._nothing)
        return vectors.batch_of(
            {**self._source(texts, source), "said": told}, {"target": target}, (_TRAIN, source, said)
        )

    def _bucket(self, rows: Sequence[Sequence[int]]) -> int:
        return vectors.bucket_of(max(map(len, rows)), self._buckets)

    def _source(self, texts: Sequence[Sequence[int]], length: int) -> dict[str, NDArray]:
        lengths = vectors.dense([len(row) for row in texts])
        return {"source": vectors.padded(texts, length, self._nothing), "length": lengths}

    # learning

    def reply(self, observations: Observations, batch: Any, outputs: Sequence[NDArray]) -> list[Message]:
        said = outputs[1].asnumpy().reshape(len(observations), -1).astype("int64")
        losses = self._row_losses(batch, outputs)
        counts = (batch.label[0].asnumpy() != self._nothing).sum(1)
        return [
            {"text": self._text(row[:count].tolist()), "metrics": {"loss": float(loss / count)}}
            for row, count, loss in zip(said, counts.tolist(), losses)
        ]

    def _row_losses(self, batch: Any, outputs: Sequence[NDArray]) -> Any:
        """Return how unlikely the label of each row is: its negative log likelihood, (N,)."""
        target = batch.label[0].asnumpy()
        likely = np.maximum(outputs[2].asnumpy().reshape(target.shape), np.finfo("float32").tiny)
        return -(np.log(likely) * (target != self._nothing)).sum(1, dtype="float64")

    def _text(self, tokens: list[int]) -> str:
        cut = tokens.index(self._end) if self._end in tokens else len(tokens)
        return str(self.dict.vec2txt(tokens[:cut]))

    # answering

    def answer(self, observations: Observations) -> Sequence[Message]:
        replies = self._rank_candidates(observations) if self._ranks else self._generate_replies(observations)
        known = [row for row, each in enumerate(observations) if each.get("eval_labels")]
        if known:
            batch = self.vectorize([observations[row] for row in known])
            losses = self._row_losses(batch, self.network.predict(batch))
            counts = (batch.label[0].asnumpy() != self._nothing).sum(1)
            for row, loss in zip(known, losses / counts):
                replies[row]["metrics"] = {"loss": float(loss)}
        return replies

    def _generate_replies(self, observations: Observations) -> list[Message]:
        texts = [self._read(each["text"]) for each in observations]
        length, width = self._bucket(texts), self._width
        source = self._source(texts, length)
        memory, *states = self.network.predict(vectors.batch_of(source, None, (_ENCODE, length)))
        seen = memory if self._uses_attention else None
        steps = _DecoderSteps(self.network, length, source["source"], seen, states, width)
        found = beam_search(steps, len(texts), width, self._longest, self._start, self._end)
        return [{"text": str(self.dict.vec2txt(row))} for row in found]

    def _rank_candidates(self, observations: Observations) -> list[Message]:
        """Return the candidates of each observation, the likeliest first."""
        own = [self._candidates(each) for each in observations]
        texts = [self._read(each["text"]) for each in observations]
        pairs = [(row, text) for row, found in enumerate(own) for text in found]
        losses: list[float] = []
        for start in range(0, len(pairs), _RANKED_ROWS):
            part = pairs[start : start + _RANKED_ROWS]
            filled = part + part[:1] * (_RANKED_ROWS - len(part))  # one number of rows, for one binding
            batch = self._training_batch(
                [texts[row] for row, _ in filled], [self._answer_tokens(text) for _, text in filled]
            )
            losses += self._row_losses(batch, self.network.predict(batch))[: len(part)].tolist()
        following = iter(losses)
        replies = []
        for found in own:
            ranked = [text for _, text in sorted(zip(islice(following, len(found)), found), key=_first)]
            replies.append({"text": ranked[0], "text_candidates": ranked})
        return replies

    def _candidates(self, observation: Message) -> list[str]:
        found = list(observation.get("label_candidates") or ())
        if not found:
            raise ArgumentError(
                f"agent {self.getID()!r} is to rank candidates, and the observation {observation['text'][:80]!r} has "
                'none in label_candidates; choose a task that has some, or set opt["rank_candidates"] to False'
            )
        return found


def _first(pair: tuple[float, str]) -> float:
    return pair[0]


class _DecoderSteps:
    """Runs the decoder one token further.

    Args:
        memory: what the encoder made of them, (N, S, H); None: the decoder does not look at it.
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
        seen = {} if memory is None else {"source": source, "memory": memory}
        self._fixed = {name: self._repeated(array) for name, array in seen.items()}
        self._states = [self._repeated(state) for state in states]

    def _repeated(self, array: NDArray) -> NDArray:
        width = self._width
        raw = array.raw.clone() if width == 1 else array.raw.repeat_interleave(width, 0)
        return NDArray(raw, array.context)

    def __call__(self, origins: Any, tokens: Any) -> Any:
        """Return the log probabilities of the next token; see `beam.search`."""
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
    given = opt.get("buckets")
    found = sorted({*(each for each in _BUCKETS if each < most), most}) if given is None else sorted(given)
    if not found or any(not isinstance(each, int) or each < 2 for each in found):
        raise ArgumentError(f"buckets is {found!r}, expected whole numbers from 2, such as [8, 16]")
    return found


_MASKED = -1e9
Bucket = tuple[Symbol, list[str], list[str] | None]


@dataclass(frozen=True, slots=True)
class NetworkSizes:
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


def training_network(shape: NetworkSizes) -> Bucket:
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


def encoder_network(shape: NetworkSizes) -> Bucket:
    """Return the network that reads a text: its outputs (N, S, H), and the last states, (N, L, H) each."""
    memory, states = _encoder(shape, sym.Variable("embedding_weight"), sym.Variable("source"))
    return sym.Group([memory, *map(_rows_first, states)]), ["source", "length"], None


def decoder_network(shape: NetworkSizes) -> Bucket:
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
    shape: NetworkSizes, name: str, words: Symbol, states: Any, lengths: Any
) -> tuple[Symbol, Sequence[Symbol]]:
    """Return the outputs (N, T, H) of an LSTM over (N, T, C), and its last states, (L, N, H)."""
    cell = FusedRNNCell(
        shape.hidden, shape.layers, "lstm", dropout=shape.dropout, get_next_state=True, prefix=f"{name}_"
    )
    # how many steps there are, the operator sees itself
    outputs, after = cell.unroll(1, words, states, "NTC", True, lengths)
    return outputs, after  # type: ignore[return-value]


def _embedded(shape: NetworkSizes, weight: Symbol, tokens: Symbol) -> Symbol:
    words: Symbol = sym.Embedding(
        tokens,
        weight=weight,
        input_dim=shape.tokens,
        output_dim=shape.embedding,
        name=f"{tokens.name}_words",
    )
    return sym.Dropout(words, p=shape.dropout) if shape.dropout else words


def _encoder(shape: NetworkSizes, weight: Symbol, source: Symbol) -> tuple[Symbol, Sequence[Symbol]]:
    return _lstm(shape, "encoder", _embedded(shape, weight, source), None, sym.Variable("length"))


def _decoder(
    shape: NetworkSizes, weight: Symbol, source: Symbol, memory: Symbol, states: Any
) -> tuple[Symbol, Sequence[Symbol]]:
    """Return the scores of every token behind every step, (N, T, V), and the last states."""
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
    scores = np.full((rows, width), _IMPOSSIBLE)
    scores[:, 0] = 0.0  # all are alike in the beginning
    done = np.zeros(count, bool)
    steps: list[tuple[Array, Array]] = []
    for _ in range(longest):
        likely = np.array(step(origins, tokens), "float64")
        size = likely.shape[1]
        if done.any():  # one that has ended stays as it is
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
    return [_read(steps, int(row * width + scores[row].argmax()), end) for row in range(rows)]


def _top_indices(values: Array, count: int) -> Array:
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
