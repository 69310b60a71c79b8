"""`StarspaceAgent`: embeds texts and answers as bags of words, so that the correct answer is near the text.

Source: Wu et al., "StarSpace: Embed All The Things!" (AAAI 2018), with the softmax over the answer and negatives.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from random import Random
from typing import Any

import numpy as np

from .. import symbol as sym
from .._files import regular_file
from ..base import ArgumentError
from ..io import DataBatch
from ..ndarray import NDArray
from . import vectors
from .agent import float_option, int_option
from .module_agent import ModuleAgent

Message = dict[str, Any]
Observations = Sequence[Message]

_MASKED = -1e30
_SIMILARITIES = ("cosine", "dot")
_POOLS = ("sqrt", "sum", "mean")


class _Negatives:
    """Answers to other texts, from which wrong answers are sampled.

    Args:
        seed: seed of the sampling; None: a random one.
    """

    def __init__(self, size: int, seed: Any) -> None:
        self._known: deque[str] = deque(maxlen=size)
        self._set: set[str] = set()
        self._rng = Random(seed)

    def add(self, text: str) -> None:
        """Store an answer."""
        if text in self._set:
            return
        if len(self._known) == self._known.maxlen:
            self._set.discard(self._known[0])
        self._known.append(text)
        self._set.add(text)

    def draw(self, count: int, exclude: Mapping[str, int]) -> list[str]:
        """Return at most `count` different answers that are not in `exclude`."""
        drawn: dict[str, None] = {}
        for _ in range(2 * count if self._known else 0):
            text = self._known[self._rng.randrange(len(self._known))]
            if text not in exclude:
                drawn[text] = None
                if len(drawn) == count:
                    break
        return list(drawn)


class StarspaceAgent(ModuleAgent):
    """Ranks candidates by the similarity of their bags of words to that of the text.

    Training separates the label of a row from the labels of other rows, from the row's ``label_candidates``, and from
    earlier labels. It answers with the nearest of ``label_candidates``, of ``opt["candidates"]``, or of the lines of
    ``opt["fixed_candidates_file"]``.

    Args:
        opt: options, in addition to those of `ModuleAgent` (default optimizer: "adagrad", ``learningrate`` 0.1):
            ``embeddingsize`` (default 64); ``similarity``: ``"cosine"`` (default) or ``"dot"``; ``pool``: pooling
            of words: ``"sqrt"`` (default; sum / sqrt(length)), ``"sum"`` or ``"mean"``; ``share_embeddings``: whether
            texts and answers share a table (default True); ``negatives``: number of wrong answers in a batch, in
            addition to those of its rows (default 10); ``negatives_kept``: number of earlier labels that they are
            sampled from (default 1000); ``temperature``: divisor of cosines (default 0.1); ``truncate``: number of
            words that are used (default -1: all); ``seed``.

    Raises:
        ArgumentError: an option has an invalid value, or there are no candidates to rank.
    """

    default_optimizer = "adagrad"
    default_learningrate = 0.1
    default_initializer = "normal"

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        ModuleAgent.add_cmdline_args(parser)
        group = parser.add_argument_group("starspace", argument_default=argparse.SUPPRESS)
        group.add_argument("-esz", "--embeddingsize", type=int, help="size of word embeddings (default: 64)")
        group.add_argument(
            "--similarity", choices=_SIMILARITIES, help="similarity of texts and answers (default: cosine)"
        )
        group.add_argument("--pool", choices=_POOLS, help="pooling of words (default: sqrt)")
        group.add_argument(
            "--share-embeddings", type="bool", help="one table for texts and answers (default: yes)"
        )
        group.add_argument("--negatives", type=int, help="number of wrong answers in a batch (default: 10)")
        group.add_argument(
            "--negatives-kept", type=int, help="number of answers these are sampled from (default: 1000)"
        )
        group.add_argument("--temperature", type=float, help="divisor of cosines (default: 0.1)")
        group.add_argument("--truncate", type=int, help="largest number of words (default: -1, all)")
        group.add_argument("--fixed-candidates-file", metavar="FILE", help="file with an answer in each line")
        return group

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "Starspace"
        self._count = int_option(self.opt, "negatives", 10)
        self._vectors = vectors.TextVectors(int_option(self.opt, "truncate", -1, -1))
        self._descriptions: dict[tuple[int, int, bool], tuple[Any, Any]] = {}
        seed = self.opt.get("seed")
        worker = (shared or {}).get("threadindex", 0)
        self._negatives = _Negatives(
            int_option(self.opt, "negatives_kept", 1000), None if seed is None else f"{seed} {worker}"
        )
        self._fixed: Sequence[str] | None = shared["fixed"] if shared else _fixed_candidates(self.opt)

    def share(self) -> dict[str, Any]:
        return {**super().share(), "fixed": self._fixed}

    def sample(self) -> list[Message]:
        return [{"text": "", "labels": [""]}]

    def sym_gen(self, opt: Mapping[str, Any], dict: Any) -> Any:
        similarity = _choice(opt, "similarity", _SIMILARITIES)
        pool = _choice(opt, "pool", _POOLS)
        first = sym.Variable("text_weight")
        second = first if opt.get("share_embeddings", True) else sym.Variable("answer_weight")
        bags = []
        for name, table in (("text", first), ("answer", second)):
            words = sym.Embedding(
                sym.Variable(name, stype="ragged"),
                weight=table,
                input_dim=len(dict),
                output_dim=int_option(opt, "embeddingsize", 64),
                sparse_grad=True,
                name=f"{name}_words",
            )
            bag = sym.sequence_pool(words, pool_type=pool, name=f"{name}_bag")
            bags.append(sym.L2Normalization(bag, name=f"{name}_unit") if similarity == "cosine" else bag)
        near = sym.dot(*bags, transpose_b=True, name="near")
        if similarity == "cosine":
            near = near * (1.0 / float_option(opt, "temperature", 0.1, 1e-6))
        scores = sym.broadcast_add(near, sym.Variable("mask"), name="scores")
        return sym.SoftmaxOutput(scores, sym.Variable("label"), name="softmax")

    def vectorize(self, observations: Observations) -> Any:
        labels = [*map(_label, observations)]
        wrong = self._wrong_answers(observations, labels)
        answers = dict.fromkeys(labels)
        columns = dict(zip(answers, range(len(answers))))
        # the same number in every batch of this size, so that one binding fits
        size = len(observations) + self._count
        texts = [*answers, *wrong][:size]
        batch = self._inputs(
            observations, texts, size, {"label": vectors.dense([*map(columns.__getitem__, labels)])}
        )
        batch.answers = texts
        return batch

    def _inputs(
        self, observations: Observations, texts: Sequence[str], size: int, label: Mapping[str, Any] | None
    ) -> Any:
        mask = np.zeros((1, size), "float32")
        mask[0, len(texts) :] = _MASKED
        rows = len(observations)
        words = self._vectors.of(self.dict, [*map(itemgetter("text"), observations), *texts])
        empty: list[int] = []
        data = {
            "text": vectors.ragged(words[:rows]),
            "answer": vectors.ragged([*words[rows:], *[empty] * (size - len(texts))]),
            "mask": vectors.dense(mask),
        }
        key = rows, size, label is None
        if key not in self._descriptions:
            batch = vectors.batch_of(data, label, whole=("answer", "mask"))
            self._descriptions[key] = batch.provide_data, batch.provide_label
            return batch
        provide_data, provide_label = self._descriptions[key]
        labels = [*label.values()] if label else None
        return DataBatch([*data.values()], labels, provide_data=provide_data, provide_label=provide_label)

    def _wrong_answers(self, observations: Observations, labels: Sequence[str]) -> list[str]:
        """Return wrong answers: first from the rows' candidates, then from earlier labels."""
        right = dict.fromkeys(labels, 0)
        candidates = {
            text: None
            for observation in observations
            for text in observation.get("label_candidates") or ()
            if text not in right
        }
        wrong = list(candidates)[: self._count]
        if len(wrong) < self._count:
            wrong += self._negatives.draw(self._count - len(wrong), {**right, **dict.fromkeys(wrong, 0)})
        for text in right:
            self._negatives.add(text)
        return wrong

    def reply(self, observations: Observations, batch: Any, outputs: Sequence[NDArray]) -> list[Message]:
        probabilities = outputs[0].asnumpy()
        targets = batch.label[0].asnumpy().astype("int64")
        losses = -np.log(
            np.maximum(probabilities[np.arange(len(targets)), targets], np.finfo("float32").tiny)
        )
        return [
            {"text": batch.answers[best], "metrics": {"loss": float(loss)}}
            for best, loss in zip(probabilities.argmax(1).tolist(), losses)
        ]

    def answer(self, observations: Observations) -> Sequence[Message]:
        own = [self._candidates(observation) for observation in observations]
        columns: dict[str, int] = {}
        for text in (text for texts in own for text in texts):
            columns.setdefault(text, len(columns))
        size = 1 << max(len(columns) - 1, 0).bit_length()  # few shapes
        batch = self._inputs(observations, list(columns), size, None)
        near = self.network.predict(batch)[0].asnumpy()
        replies = []
        for row, texts in zip(near, own):
            order = np.argsort(-row[[columns[text] for text in texts]], kind="stable").tolist()
            ranked = [texts[index] for index in order]
            replies.append({"text": ranked[0], "text_candidates": ranked})
        return replies

    def _candidates(self, observation: Message) -> list[str]:
        candidates = list(observation.get("label_candidates") or self._fixed or ())
        if not candidates:
            raise ArgumentError(
                f"agent {self.getID()!r} ranks candidates, but the observation {observation['text'][:80]!r} has no "
                'label_candidates; choose a task with candidates, or set opt["candidates"], a list of texts, or '
                'opt["fixed_candidates_file"]'
            )
        return candidates


def _label(observation: Message) -> str:
    """Return the label to train a row on; prediction by `answer` needs no label."""
    labels = observation.get("labels") or observation.get("eval_labels") or ("",)
    return str(next(iter(labels)))


def _fixed_candidates(opt: Mapping[str, Any]) -> list[str] | None:
    if opt.get("candidates"):
        return list(opt["candidates"])
    path = opt.get("fixed_candidates_file")
    if not path:
        return None
    with open(path, encoding="utf-8", opener=regular_file) as file:
        return [line.rstrip("\n") for line in file if line.strip()]


def _choice(opt: Mapping[str, Any], name: str, choices: Sequence[str]) -> str:
    choice = opt.get(name) or choices[0]
    if choice not in choices:
        raise ArgumentError(f"{name} is {choice!r}, expected one of {', '.join(choices)}")
    return str(choice)
