"""Baselines: agents that repeat or guess, and `IrBaselineAgent`, which ranks candidates by TF-IDF.

Source: Salton and Buckley, "Term-Weighting Approaches in Automatic Text Retrieval" (1988): the cosine of two bags of
words, each word weighted by how rare it is.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._files import read_committed, write_set
from ..base import FileFormatError
from .agent import Agent, dump_options, int_option, options_file
from .dictionary import DictionaryAgent

Message = dict[str, Any]
_NO_ANSWER = "I don't know."


class RepeatLabelAgent(Agent):
    """Answers with one of the labels, which is correct whenever labels are visible.

    Args:
        opt: options; ``returnOneRandomAnswer`` (default True): reply with one random label, not with all of them in
            one text; ``cantAnswerPercent``: share of questions that it does not answer, from 0 to 1 (default 0);
            ``cantAnswerMessage``: its reply to those.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "RepeatLabelAgent"
        self.returnOneRandomAnswer = bool(self.opt.get("returnOneRandomAnswer", True))
        self.cantAnswerPercent = float(self.opt.get("cantAnswerPercent", 0))
        self.cantAnswerMessage = str(self.opt.get("cantAnswerMessage", _NO_ANSWER))

    def act(self) -> Message:
        reply: Message = {"id": self.getID()}
        seen = self.observation or {}
        labels = seen.get("labels") or seen.get("eval_labels")
        if labels and not (self.cantAnswerPercent and random.random() < self.cantAnswerPercent):
            labels = list(labels)
            reply["text"] = random.choice(labels) if self.returnOneRandomAnswer else ", ".join(labels)
        elif seen.get("text") is not None or labels:
            reply["text"] = self.cantAnswerMessage
        return reply


class RepeatQueryAgent(Agent):
    """Repeats the question."""

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "RepeatQueryAgent"

    def act(self) -> Message:
        text = (self.observation or {}).get("text")
        return {"id": self.getID(), "text": "Nothing to repeat yet." if text is None else text}


class RandomCandidateAgent(Agent):
    """Answers with a random candidate, and ranks all of them at random.

    Args:
        opt: options; random numbers are those of Python's `random`.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "RandomCandidateAgent"

    def act(self) -> Message:
        candidates = list((self.observation or {}).get("label_candidates") or ())
        if not candidates:
            return {"id": self.getID(), "text": _NO_ANSWER}
        random.shuffle(candidates)
        return {"id": self.getID(), "text": candidates[0], "text_candidates": candidates}


class _TfIdfIndex:
    """Inverted index of candidates.

    Args:
        counts: number of occurrences of each token; None: the number of candidates that contain it.
    """

    def __init__(
        self,
        candidates: Sequence[str],
        tokenize: Callable[[str], Iterable[str]],
        counts: Mapping[str, int] | None,
        total: int,
    ) -> None:
        self.candidates = candidates
        bags = [Counter(tokenize(text)) for text in candidates]
        if counts is None:
            counts, total = Counter(token for bag in bags for token in bag), len(bags)
        self._counts, self._total = counts, total
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for index, bag in enumerate(bags):
            for token, weight in self.weights(bag).items():
                self._postings.setdefault(token, []).append((index, weight))

    def weights(self, bag: Mapping[str, int]) -> dict[str, float]:
        """Return the weights of a bag of words, normalized to length 1."""
        weights = {
            token: count * math.log1p(self._total / (1 + self._counts.get(token, 0)))
            for token, count in bag.items()
        }
        norm = math.sqrt(math.fsum(weight**2 for weight in weights.values()))
        return {token: weight / norm for token, weight in weights.items()} if norm else weights

    def ranked(self, bag: Mapping[str, int]) -> list[str]:
        """Return the candidates by falling similarity to a question, ties in their order."""
        scores = [0.0] * len(self.candidates)
        for token, weight in self.weights(bag).items():
            for index, other in self._postings.get(token, ()):
                scores[index] += weight * other
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return [self.candidates[index] for index in order]


class IrBaselineAgent(Agent):
    """Answers with the candidate that is most similar to the question, and ranks all of them.

    Frequent words of the dictionary have smaller weights. In training it counts the words of questions and labels; if
    nothing has been counted, weights fall with the number of candidates that contain the word.

    Args:
        opt: options; ``label_candidates_file``: a file with a candidate in each line, for questions without candidates;
            ``history_size``: number of last texts of an episode that make up the question (default 1); ``model_file``:
            where `save` writes, and where the dictionary is read from without ``dict_file``; see also
            `DictionaryAgent`.

    Raises:
        ArgumentError: an option has an invalid value.
        FileError: a file cannot be read.
        FileFormatError: a file is not UTF-8 text.

    Example:
        >>> agent = IrBaselineAgent({"datatype": "valid"})
        >>> seen = agent.observe({"text": "Where is the milk?", "label_candidates": ["Sam.", "The milk.", "No."]})
        >>> agent.act()["text"]
        'The milk.'
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "IrBaselineAgent"
        self._trains = str(self.opt.get("datatype") or "train").startswith("train")
        self._history: deque[str] = deque(maxlen=int_option(self.opt, "history_size", 1))
        model_file = self.opt.get("model_file")
        if model_file and not self.opt.get("dict_file"):
            self.opt["dict_file"] = f"{model_file}.dict"
        self.dictionary = DictionaryAgent(self.opt, shared["dictionary"] if shared else None)
        self._fixed: Sequence[str] = (
            shared["fixed"] if shared else _lines(self.opt.get("label_candidates_file"))
        )
        self._total: list[int] = shared["total"] if shared else [self._counted()]
        self._index: _TfIdfIndex | None = None
        self._indexed: tuple[Any, int] = (None, -1)

    @staticmethod
    def add_cmdline_args(argparser: Any) -> Any:
        """Add the options to a parser, and return their group.

        Args:
            argparser: the `ParlaiParser`.
        """
        group = argparser.add_argument_group("ranking by common words")
        group.add_argument(
            "--label-candidates-file",
            metavar="PATH",
            help="file with a candidate in each line, for questions without candidates",
        )
        group.add_argument(
            "--history-size", type=int, default=1, help="number of texts in a question (default: 1)"
        )
        DictionaryAgent.add_cmdline_args(argparser)
        return group

    def _counted(self) -> int:
        words = self.dictionary
        special = {words.null_token, words.start_token, words.end_token, words.unk_token}
        return sum(count for token, count in words.freqs().items() if token not in special)

    def observe(self, observation: Any) -> Any:
        self.observation = observation
        if text := observation.get("text"):
            self._history.append(text)
        if self._trains:
            for counted in (text or "", *(observation.get("labels") or ())):
                tokens = self.dictionary.tokenize(counted)
                self.dictionary.add_to_dict(tokens)
                self._total[0] += len(tokens)
        return observation

    def act(self) -> dict[str, Any]:
        seen = self.observation or {}
        reply: dict[str, Any] = {"id": self.getID()}
        candidates = seen.get("label_candidates") or self._fixed
        if seen.get("text") is not None:
            reply["text"] = _NO_ANSWER
            if candidates:
                question = Counter(self.dictionary.tokenize("\n".join(self._history)))
                reply["text_candidates"] = self._index_of(candidates).ranked(question)
                reply["text"] = reply["text_candidates"][0]
        if seen.get("episode_done"):
            self._history.clear()
        return reply

    def _index_of(self, candidates: Any) -> _TfIdfIndex:
        """Return the index of candidates; the last index is reused if candidates and counts are the same."""
        total = self._total[0]
        if self._index is None or self._indexed[0] is not candidates or self._indexed[1] != total:
            counts = self.dictionary.freqs() if total else None
            self._index = _TfIdfIndex(tuple(candidates), self.dictionary.tokenize, counts, total)
            self._indexed = candidates, total
        return self._index

    def reset(self) -> None:
        super().reset()
        self._history.clear()

    def share(self) -> dict[str, Any]:
        own = {"dictionary": self.dictionary.share(), "fixed": self._fixed, "total": self._total}
        return {**super().share(), **own}

    def save(self, path: str | None = None) -> None:
        path = path or self.opt.get("model_file")
        if path:
            words = f"{path}.dict"
            opt = dump_options({**self.opt, "dict_file": words})
            write_set({options_file(path): opt, words: self.dictionary.packed()}, os.path.basename(path))


def _lines(path: str | None) -> Sequence[str]:
    if not path:
        return ()
    try:
        text = read_committed(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path}: not UTF-8 at byte {error.start}; expected a candidate in each line"
        ) from error
    return tuple(line.strip() for line in text.split("\n") if line.strip())
