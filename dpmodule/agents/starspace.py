"""`StarspaceAgent`: texts and answers as bags of words in one space, in which the right answer lies near the text.

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
from ..base import ArgumentError
from ..files import regular_file
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
    """Answers that were right elsewhere, from which wrong ones are drawn.

    Args:
        seed: of what draws; None: another one each time.
    """

    def __init__(self, size: int, seed: Any) -> None:
        self._known: deque[str] = deque(maxlen=size)
        self._set: set[str] = set()
        self._rng = Random(seed)

    def add(self, text: str) -> None:
        """Keep an answer."""
        if text in self._set:
            return
        if len(self._known) == self._known.maxlen:
            self._set.discard(self._known[0])
        self._known.append(text)
        self._set.add(text)

    def draw(self, count: int, besides: Mapping[str, int]) -> list[str]:
        """Return at most a number of different answers that are none of some others."""
        found: dict[str, None] = {}
        for _ in range(2 * count if self._known else 0):
            text = self._known[self._rng.randrange(len(self._known))]
            if text not in besides:
                found[text] = None
                if len(found) == count:
                    break
        return list(found)


class StarspaceAgent(ModuleAgent):
    """Ranks candidates by how near their bags of words lie to that of the text.

    It is trained to tell the label of a row from those of the other rows, from the row's ``label_candidates``, and from
    labels seen before. It answers with the nearest of ``label_candidates``, of ``opt["candidates"]``, or of all labels
    of a file, ``opt["fixed_candidates_file"]``, one a line.

    Args:
        opt: options, besides those of `ModuleAgent` (default optimizer: "adagrad", ``learningrate`` 0.1):
            ``embeddingsize`` (default 64); ``similarity``: ``"cosine"`` (default) or ``"dot"``; ``pool``: how words
            become a bag: ``"sqrt"`` (default; sum / sqrt(length)), ``"sum"`` or ``"mean"``; ``share_embeddings``:
            whether texts and answers have one table (default True); ``negatives``: how many wrong answers a batch has
            besides those of its rows (default 10); ``negatives_kept``: of how many seen before they are drawn (default
            1000); ``temperature``: what cosines are divided by (default 0.1); ``truncate``: words that count (default
            -1: all); ``seed``.

    Raises:
        ArgumentError: an option is no such thing; or there are no candidates to rank.
    """

    default_optimizer = "adagrad"
    default_learningrate = 0.1
    default_initializer = "normal"

    @staticmethod
    def add_cmdline_args(parser: Any) -> Any:
        ModuleAgent.add_cmdline_args(parser)
        group = parser.add_argument_group("starspace", argument_default=argparse.SUPPRESS)
        group.add_argument("-esz", "--embeddingsize", type=int, help="numbers of a word (default: 64)")
        group.add_argument(
            "--similarity", choices=_SIMILARITIES, help="of texts and answers (default: cosine)"
        )
        group.add_argument("--pool", choices=_POOLS, help="of words (default: sqrt)")
        group.add_argument("--share-embeddings", type="bool", help="one table for both (default: yes)")
        group.add_argument("--negatives", type=int, help="wrong answers of a batch (default: 10)")
        group.add_argument("--negatives-kept", type=int, help="answers these are drawn of (default: 1000)")
        group.add_argument("--temperature", type=float, help="what cosines are divided by (default: 0.1)")
        group.add_argument("--truncate", type=int, help="words that count (default: -1, all)")
        group.add_argument("--fixed-candidates-file", metavar="FILE", help="answers, one a line")
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
        places = dict(zip(answers, range(len(answers))))
        # as many in every batch of this size, so that one binding does
        size = len(observations) + self._count
        texts = [*answers, *wrong][:size]
        batch = self._inputs(
            observations, texts, size, {"label": vectors.dense([*map(places.__getitem__, labels)])}
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
        kind = rows, size, label is None
        if kind not in self._descriptions:
            batch = vectors.batch_of(data, label, whole=("answer", "mask"))
            self._descriptions[kind] = batch.provide_data, batch.provide_label
            return batch
        of_data, of_label = self._descriptions[kind]
        labels = [*label.values()] if label else None
        return DataBatch([*data.values()], labels, provide_data=of_data, provide_label=of_label)

    def _wrong_answers(self, observations: Observations, labels: Sequence[str]) -> list[str]:
        """Return wrong answers: of the rows' candidates first, then of labels seen before."""
        right = dict.fromkeys(labels, 0)
        offered = {
            text: None
            for each in observations
            for text in each.get("label_candidates") or ()
            if text not in right
        }
        found = list(offered)[: self._count]
        if len(found) < self._count:
            found += self._negatives.draw(self._count - len(found), {**right, **dict.fromkeys(found, 0)})
        for text in right:
            self._negatives.add(text)
        return found

    def reply(self, observations: Observations, batch: Any, outputs: Sequence[NDArray]) -> list[Message]:
        found = outputs[0].asnumpy()
        targets = batch.label[0].asnumpy().astype("int64")
        losses = -np.log(np.maximum(found[np.arange(len(targets)), targets], np.finfo("float32").tiny))
        return [
            {"text": batch.answers[best], "metrics": {"loss": float(loss)}}
            for best, loss in zip(found.argmax(1).tolist(), losses)
        ]

    def answer(self, observations: Observations) -> Sequence[Message]:
        own = [self._candidates(each) for each in observations]
        places: dict[str, int] = {}
        for text in (text for texts in own for text in texts):
            places.setdefault(text, len(places))
        size = 1 << max(len(places) - 1, 0).bit_length()  # few shapes
        batch = self._inputs(observations, list(places), size, None)
        near = self.network.predict(batch)[0].asnumpy()
        replies = []
        for row, texts in zip(near, own):
            order = np.argsort(-row[[places[text] for text in texts]], kind="stable").tolist()
            ranked = [texts[place] for place in order]
            replies.append({"text": ranked[0], "text_candidates": ranked})
        return replies

    def _candidates(self, observation: Message) -> list[str]:
        found = list(observation.get("label_candidates") or self._fixed or ())
        if not found:
            raise ArgumentError(
                f"agent {self.getID()!r} ranks candidates, and the observation {observation['text'][:80]!r} has none "
                'in label_candidates; choose a task that has some, or set opt["candidates"], a list of texts, or '
                'opt["fixed_candidates_file"]'
            )
        return found


def _label(observation: Message) -> str:
    """Return the label that a row is trained on; rows are predicted by `answer`, which needs none."""
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
    found = opt.get(name) or choices[0]
    if found not in choices:
        raise ArgumentError(f"{name} is {found!r}, expected one of {', '.join(choices)}")
    return str(found)
