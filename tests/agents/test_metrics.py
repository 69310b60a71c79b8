import math

import pytest

from dpmodule.agents import Metrics, aggregate_metrics
from dpmodule.agents.metrics import bleu, exact_match, f1_score, normalize_answer, round_sigfigs


def test_f1_by_hand():
    for guess, answers, f1 in (
        ("the cat sat", ["cat sat"], 1.0),  # articles do not count
        ("cat sat down", ["cat sat"], 0.8),  # precision 2/3, recall 1
        ("cat", ["cat sat on mat"], 0.4),  # precision 1, recall 1/4
        ("dog dog dog", ["dog"], 0.5),  # a word counts as often as in both
        *(("Cat!", ["cat"], 1.0), ("", ["cat"], 0.0)),
        ("cat sat", ["dog", "cat sat down", "sat"], 0.8),  # the best of the answers
    ):
        assert f1_score(guess, answers) == pytest.approx(f1, abs=1e-12)


def test_bleu_by_hand():
    for guess, answers, value in (
        ("cat sat on my mat", ["cat sat on my mat"], 1.0),
        # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 fours
        ("cat sat on my hat", ["cat sat on my mat"], (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25),
        # all four words, but 4 against 8: exp(1 - 8 / 4)
        ("one two three four", ["one two three four five six seven eight"], math.exp(-1)),
        # the nearest length of several answers: no penalty
        ("one two three four", ["one two three four five six", "one two three four"], 1.0),
        # 2 of 4 words and none of the longer ones: 1e-12 of 3, 2 and 1 in their place
        ("one b three d", ["one x three y"], (2 / 4 * 1e-12 / 3 * 1e-12 / 2 * 1e-12) ** 0.25),
        *(("cow", ["cat sat"], 0.0), ("", ["cat"], 0.0)),
    ):
        assert bleu(guess, answers) == pytest.approx(value, rel=1e-9, abs=1e-9)


HITS = ("hits@1", "hits@5", "hits@10", "hits@100")
RANKS = (1, 2, 5, 6, 10, 11, 100, 101)
NAMES = [f"c{n}" for n in range(1, 201)]


@pytest.mark.parametrize(
    ("opt", "replies", "report"),
    [
        ({}, [({"text": "c1", "text_candidates": NAMES}, [f"c{rank}"]) for rank in RANKS],
         {**dict(zip(HITS, (1 / 8, 3 / 8, 5 / 8, 7 / 8))), "mean_rank": 29.5, "accuracy": 1 / 8, "f1": 1 / 8}),
        # a label that is no candidate ranks behind all
        ({}, [({"text_candidates": ["a", "b"]}, ["z"])], {"mean_rank": 3.0, **dict.fromkeys(HITS, 0.0)}),
        # the best of several labels counts
        ({"metrics": "accuracy"}, [({"text": "b", "text_candidates": ["x", "b", "a"]}, ["a", "b"])],
         {"accuracy": 1, "mean_rank": 2, "hits@1": 0, "hits@5": 1, "hits@10": 1, "hits@100": 1}),
        # four significant digits; means over replies with a text
        ({}, [({"text": g}, ["right"]) for g in ("right", "wrong", "wrong")], {"accuracy": 0.3333, "f1": 0.3333}),
        ({}, [({}, ["a"]), ({"text": "b"}, ["b"])], {"accuracy": 1.0, "f1": 1.0}),
        # a text of articles alone is right but has no F1
        ({}, [({"text": "The"}, ["the"]), ({"text": "a!"}, ["an", "x"]), ({"text": "cat"}, ["the cat"]), ({}, ["a"])],
         {"accuracy": 1.0, "f1": 0.3333}),
        # means over the replies that have them, under any name but those of the teacher
        ({}, [({"text": "a", "metrics": {"loss": 2.0, "my own": 1}}, ["a"]),
              ({"text": "a", "metrics": {"loss": 4.0, "accuracy": 99}}, ["a"])],
         {"accuracy": 1.0, "f1": 0.0, "loss": 3.0, "my own": 1.0}),
        ({"metrics": "bleu, accuracy"}, [({"text": "one two three four"}, ["one two three four"])],
         {"accuracy": 1.0, "bleu": 1.0}),
        ({"metrics": "all"}, [({"text": "one two three four"}, ["one two three four"])],
         {"accuracy": 1.0, "f1": 1.0, "bleu": 1.0}),
        ({"metrics": "hits@1,loss"}, [({"text": "a", "metrics": {"loss": 2.0}}, ["a"])],
         {"accuracy": 1.0, "loss": 2.0}),
    ],
)  # fmt: skip
def test_reports_by_hand(opt, replies, report):
    one, rows = Metrics(opt), Metrics(opt)
    for reply, labels in replies:
        one.update(reply, labels)
    rows.update_all(*map(list, zip(*replies)))
    assert one.report() == rows.report() == {"total": len(replies), **report}
    one.clear()
    assert one.report() == {"total": 0}


def test_macro_and_micro_averages():
    reports = {"a": {"total": 10, "accuracy": 0.5, "loss": 3.0}, "b": {"total": 30, "accuracy": 0.1}}
    reports["c"] = {"total": 0}
    found = aggregate_metrics(reports)
    assert (found["total"], found["accuracy"], found["loss"], found["tasks"]) == (40, 0.3, 3.0, reports)
    assert found["micro"] == {"accuracy": 0.2, "loss": 3.0}
    found = aggregate_metrics({"a": {"loss": 1.0}, "b": {}})  # four means whatever the tasks have
    assert (found["total"], found["accuracy"], found["f1"], found["loss"], found["ppl"]) == (0, 0, 0, 1.0, 0)


def test_normal_forms():
    for function, given, found in (
        (normalize_answer, ("The  Cat, a dog!",), "cat dog"),
        (normalize_answer, ("an apple's theatre Ünï",), "apple s theatre ünï"),
        *((exact_match, ("The cat.", ["dog", "cat"]), True), (exact_match, ("cats", ["cat"]), False)),
        *((round_sigfigs, (0.0,), 0.0), (round_sigfigs, (123456,), 123500)),
        *((round_sigfigs, (-0.00123456,), -0.001235), (round_sigfigs, (math.inf,), math.inf)),
    ):
        assert function(*given) == found
