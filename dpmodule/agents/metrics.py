"""`Metrics`: quality of the answers to a teacher, over rows of batches and workers.

Source: metrics of ParlAI, 2018. Answers are compared as in SQuAD (Rajpurkar et al., 2016): in lower case,
without punctuation and articles. BLEU after Papineni et al. (2002), over sentences, smoothed as method 1 of Chen and
Cherry (2014).
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any

from ..base import ArgumentError, DTypeError
from .shared_state import SumColumns

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))
_RANKS = (1, 5, 10, 100)
_SMOOTH = 1e-12
_RESERVED = frozenset(
    {"total", "correct", "accuracy", "f1", "bleu", "mean_rank", *(f"hits@{k}" for k in _RANKS)}
)

_TOTAL, _CORRECT, _F1, _BLEU, _MEAN_RANK = "total", "accuracy", "f1", "bleu", "mean_rank"
_ALWAYS_REPORTED = (_CORRECT, _F1, "loss", "ppl")
"""Metrics that the report of several tasks always has."""


@lru_cache(maxsize=4096)
def normalize_answer(text: str) -> str:
    """Return a text in lower case, without punctuation and articles, and with single spaces.

    Example:
        >>> normalize_answer("The cat,  a dog!")
        'cat dog'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(guess: str, answers: Iterable[str]) -> bool:
    """Return True if a guess equals one of the answers after `normalize_answer`."""
    return _is_among(normalize_answer(guess), answers)


def _is_among(words: str, answers: Iterable[str]) -> bool:
    for answer in answers:  # noqa: SIM110  # `any` with a generator takes twice as long
        if normalize_answer(answer) == words:
            return True
    return False


def f1_score(guess: str, answers: Iterable[str]) -> float:
    """Return the largest F1 score of words over the answers; 0 without an answer."""
    return max((_f1(normalize_answer(guess), normalize_answer(answer)) for answer in answers), default=0.0)


@lru_cache(maxsize=4096)
def _f1(guess: str, answer: str) -> float:
    words, expected = guess.split(), answer.split()
    common = sum((Counter(words) & Counter(expected)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(words), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def bleu(guess: str, answers: Iterable[str]) -> float:
    """Return the BLEU-4 of a sentence against its answers, smoothed where a precision is 0."""
    words = normalize_answer(guess).split()
    references = [normalize_answer(answer).split() for answer in answers]
    if not words or not references:
        return 0.0
    logs = 0.0
    for size in range(1, 5):
        own = _grams(words, size)
        most: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            most |= _grams(reference, size)
        hits = sum((own & most).values())
        if size == 1 and not hits:
            return 0.0
        logs += math.log((hits or _SMOOTH) / max(sum(own.values()), 1)) / 4
    nearest = min((abs(len(reference) - len(words)), len(reference)) for reference in references)[1]
    brevity = 0.0 if len(words) > nearest else 1 - nearest / len(words)
    return math.exp(brevity + logs)


def _grams(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(size))))


def round_sigfigs(number: float, digits: int = 4) -> float:
    """Return a number rounded to significant digits.

    Example:
        >>> round_sigfigs(0.123456)
        0.1235
    """
    if number == 0 or not math.isfinite(number):
        return number
    return round(number, digits - 1 - math.floor(math.log10(abs(number))))


class Metrics:
    """Counts answers and averages their metrics.

    Each of several workers adds to its own column in shared memory (`for_worker`), without a lock, and `report` sums
    the columns exactly, so that the result equals that of one process to the last digit.

    Args:
        opt: ``numthreads``: number of workers; ``metrics``: metrics in addition to accuracy, ranks, and those of
            replies: ``f1``, the default, ``bleu``, or ``all``, separated by commas.

    Raises:
        ArgumentError: a metric is unknown.
        MemoryError: there is no shared memory left.

    Example:
        >>> metrics = Metrics({})
        >>> metrics.update({"text": "The cat."}, ["cat"])
        {'correct': 1}
        >>> metrics.report()
        {'total': 1, 'accuracy': 1.0, 'f1': 1.0}
    """

    def __init__(self, opt: Mapping[str, Any]) -> None:
        workers = int(opt.get("numthreads") or 1)
        wanted = {name.strip() for name in str(opt.get("metrics") or "default").split(",")}
        if unknown := wanted - _RESERVED - {"default", "all", "loss", "ppl", "lr"}:
            raise ArgumentError(
                f"metrics names {', '.join(sorted(unknown))}, expected default (f1), accuracy, f1, bleu or all, "
                "separated by commas"
            )
        self._with_f1 = not wanted.isdisjoint({"default", "all", _F1})
        self._with_bleu = not wanted.isdisjoint({"all", _BLEU})
        self._sums = SumColumns(workers + 1 if workers > 1 else 1)
        self._index = 0
        self._column = self._sums.column(0)

    def expect_workers(self, workers: int) -> None:
        """Make room for more workers than in the options; copies made earlier no longer count.

        Args:
            workers: number of workers.
        """
        if self._sums.columns <= workers:
            self._sums = self._sums.with_columns(workers + 1)
            self._column = self._sums.column(self._index)

    def for_worker(self, threadindex: int) -> Metrics:
        """Return metrics that add to the column of a worker.

        Args:
            threadindex: number of the worker, from 0.
        """
        metrics = copy(self)
        if self._sums.columns > 1:
            metrics._index = threadindex + 1
            metrics._column = self._sums.column(metrics._index)
        return metrics

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_column"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._column = self._sums.column(self._index)

    def __deepcopy__(self, memo: Any) -> Metrics:
        return self  # shared state is deep-copied, but all copies add to the same sums

    def update(self, observation: Mapping[str, Any], labels: Sequence[str] | None) -> dict[str, Any]:
        """Count a reply.

        Args:
            observation: the reply, with ``text``, and optionally ``text_candidates`` (best first) and ``metrics``, a
                dict of numbers, each averaged over the replies that have it.
            labels: the correct answers.

        Returns:
            ``{"correct": 1}`` for a correct reply, else ``{"correct": 0}``.

        Raises:
            DTypeError: the text is not a str.
            ArgumentError: one of `metrics` is not a number, or its name is not a string.
        """
        add, labels = self._column.add, labels or ()
        guess = observation.get("text")
        if guess is not None and not isinstance(guess, str):
            raise _text_type_error(observation)
        words = "" if guess is None else normalize_answer(guess)
        correct = int(guess is not None and _is_among(words, labels))
        add(_TOTAL, 1)
        if guess is not None:
            add(_CORRECT, correct)
            if self._with_f1:
                add(_F1, bool(words) if correct else f1_score(guess, labels))
        self._add_others(observation, labels)
        return {"correct": correct}

    def update_all(
        self, observations: Sequence[Mapping[str, Any]], labels: Sequence[Sequence[str] | None]
    ) -> None:
        """Count the replies of the rows of a batch; faster than `update` for each of them.

        Args:
            labels: the correct answers of each row.

        Raises:
            DTypeError, ArgumentError: as `update` does.
        """
        answered = correct = exact = 0
        scores, others = [], []
        for observation, answers in zip(observations, labels):
            guess = observation.get("text")
            if guess is not None:
                if not isinstance(guess, str):
                    raise _text_type_error(observation)
                answered += 1
                words = normalize_answer(guess)
                if _is_among(words, answers or ()):
                    correct += 1
                    exact += bool(words)  # F1 is 0 if no words are left
                elif self._with_f1 and (score := f1_score(guess, answers or ())):
                    scores.append(score)
            if self._with_bleu or "text_candidates" in observation or "metrics" in observation:
                others.append((observation, answers or ()))
        count = self._column.count
        count(_TOTAL, len(observations), len(observations))
        count(_CORRECT, answered, correct)
        if self._with_f1:
            count(_F1, answered - len(scores), exact)
        for score in scores:
            self._column.add(_F1, score)
        for observation, answers in others:
            self._add_others(observation, answers)

    def _add_others(self, observation: Mapping[str, Any], labels: Sequence[str]) -> None:
        """Add BLEU, ranks and metrics, which not every reply has."""
        guess = observation.get("text")
        if guess is not None and self._with_bleu:
            self._column.add(_BLEU, bleu(guess, labels))
        candidates = observation.get("text_candidates")
        if candidates is not None:
            self._add_ranks(candidates, labels)
        reported = observation.get("metrics")
        if reported:
            self._add_reported(reported)

    def _add_ranks(self, candidates: Iterable[str], labels: Iterable[str]) -> None:
        wanted = set(map(normalize_answer, labels))
        ranked = list(candidates)
        ranks = (rank for rank, text in enumerate(ranked, start=1) if normalize_answer(text) in wanted)
        rank = next(ranks, None)
        for most in _RANKS:
            self._column.add(f"hits@{most}", int(rank is not None and rank <= most))
        self._column.add(_MEAN_RANK, len(ranked) + 1 if rank is None else rank)

    def _add_reported(self, reported: Mapping[str, Any]) -> None:
        for name, value in reported.items():
            if name in _RESERVED:
                continue  # computed from the reply itself
            try:
                number = float(value)
            except (TypeError, ValueError, RuntimeError):
                number = None
            if number is None or not isinstance(name, str):
                raise ArgumentError(
                    f"metrics of a reply: {name!r} is {value!r}, expected a number named by a string"
                )
            self._column.add(name, number)

    def report(self) -> dict[str, Any]:
        """Return ``total`` and the means of all other metrics, to 4 significant digits."""
        report: dict[str, Any] = {_TOTAL: 0}
        for name, (total, count) in self._sums.totals().items():
            if name == _TOTAL:
                report[_TOTAL] = count
            elif count:
                report[name] = round_sigfigs(total / count)
        return report

    def clear(self) -> None:
        """Reset all columns; no worker may add at the same time."""
        self._sums.clear()


def _text_type_error(reply: Mapping[str, Any]) -> DTypeError:
    kind = type(reply["text"]).__name__
    return DTypeError(f"the text of a reply of agent {reply.get('id')!r} is of type {kind}, expected a str")


def reports_by_name(reports: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Mapping[str, Any]]:
    """Return the reports of tasks by name; duplicates of a name get the suffixes ``#2``, ``#3``, ..."""
    named: dict[str, Mapping[str, Any]] = {}
    counts: Counter[str] = Counter()
    for name, report in reports:
        counts[name] += 1
        named[name if counts[name] == 1 else f"{name}#{counts[name]}"] = report
    return named


def aggregate_metrics(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report over several tasks.

    Args:
        reports: the report of each task, by its name.

    Returns:
        ``tasks``: the reports; ``total``: the sum; all other keys: the mean over the tasks that have them (macro
        average), to 4 significant digits; ``micro``: the same, weighted by the totals. ``accuracy``, ``f1``, ``loss``
        and ``ppl`` are 0 if no task has them.
    """
    combined: dict[str, Any] = {"tasks": {name: dict(report) for name, report in reports.items()}}
    combined[_TOTAL] = sum(report.get(_TOTAL, 0) for report in reports.values())
    combined.update(dict.fromkeys(_ALWAYS_REPORTED, 0.0))
    keys = [key for report in reports.values() for key in report if key != _TOTAL and _is_number(report[key])]
    micro = {}
    for key in dict.fromkeys(keys):
        having = [report for report in reports.values() if key in report]
        combined[key] = round_sigfigs(math.fsum(report[key] for report in having) / len(having))
        weight = sum(report.get(_TOTAL, 0) for report in having)
        if weight:
            summed = math.fsum(report[key] * report.get(_TOTAL, 0) for report in having)
            micro[key] = round_sigfigs(summed / weight)
    combined["micro"] = micro
    return combined


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
