import math
import random

import pytest

from dpmodule.agents import (
    BatchWorld,
    DialogPartnerWorld,
    Metrics,
    RepeatLabelAgent,
    ReverseTeacher,
    aggregate_metrics,
)
from dpmodule.agents.metrics import bleu, exact_match, f1_score, normalize_answer, round_sigfigs
from dpmodule.agents.shared_state import SumColumns
from dpmodule.base import ArgumentError


@pytest.mark.parametrize(
    ("guess", "answers", "f1"),
    [
        ("the cat sat", ["cat sat"], 1.0),  # articles do not count
        ("cat sat down", ["cat sat"], 0.8),  # precision 2/3, recall 1
        ("cat", ["cat sat on mat"], 0.4),  # precision 1, recall 1/4
        ("dog dog dog", ["dog"], 0.5),  # a word counts as often as in both
        ("Cat!", ["cat"], 1.0),
        ("cow", ["cat"], 0.0),
        ("", ["cat"], 0.0),
        ("cat sat", ["dog", "cat sat down", "sat"], 0.8),  # the best of the answers
        ("cat", [], 0.0),
    ],
)
def test_f1_by_hand(guess, answers, f1):
    assert f1_score(guess, answers) == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize(
    ("guess", "answers", "value"),
    [
        ("cat sat on my mat", ["cat sat on my mat"], 1.0),
        # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 fours
        ("cat sat on my hat", ["cat sat on my mat"], (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25),
        # all four words, but 4 against 8: exp(1 - 8 / 4)
        ("one two three four", ["one two three four five six seven eight"], math.exp(-1)),
        # the nearest length of several answers: no penalty
        ("one two three four", ["one two three four five six", "one two three four"], 1.0),
        ("cow", ["cat sat"], 0.0),
        ("", ["cat"], 0.0),
        ("cat", [], 0.0),
    ],
)
def test_bleu_by_hand(guess, answers, value):
    assert bleu(guess, answers) == pytest.approx(value, abs=1e-9)


def test_precisions_of_no_hits_count_as_almost_nothing():
    """2 of 4 words and none of the longer ones: 1e-12 of 3, 2 and 1 in their place."""
    expected = math.exp((math.log(2 / 4) + math.log(1e-12 / 3) + math.log(1e-12 / 2) + math.log(1e-12)) / 4)
    assert bleu("one b three d", ["one x three y"]) == pytest.approx(expected, rel=1e-9)


def test_hits_and_mean_rank_by_hand():
    metrics = Metrics({})
    candidates = [f"c{n}" for n in range(1, 201)]
    for rank in (1, 2, 5, 6, 10, 11, 100, 101):
        metrics.update({"text": candidates[0], "text_candidates": candidates}, [f"c{rank}"])
    report = metrics.report()
    assert (report["hits@1"], report["hits@5"], report["hits@10"], report["hits@100"]) == (
        1 / 8,
        3 / 8,
        5 / 8,
        7 / 8,
    )
    assert report["mean_rank"] == round_sigfigs((1 + 2 + 5 + 6 + 10 + 11 + 100 + 101) / 8)
    assert report["accuracy"] == 1 / 8


def test_a_label_that_is_no_candidate_ranks_behind_all():
    metrics = Metrics({})
    metrics.update({"text_candidates": ["a", "b"]}, ["z"])
    hits = dict.fromkeys(("hits@1", "hits@5", "hits@10", "hits@100"), 0.0)
    assert metrics.report() == {"total": 1, "mean_rank": 3.0, **hits}


def test_the_best_of_several_labels_counts():
    metrics = Metrics({})
    metrics.update({"text": "b", "text_candidates": ["x", "b", "a"]}, ["a", "b"])
    assert metrics.report()["mean_rank"] == 2
    assert metrics.report()["accuracy"] == 1


def test_report_accuracy_and_f1_rounded_to_four_significant_digits():
    metrics = Metrics({})
    for guess in ("right", "wrong", "wrong"):
        metrics.update({"text": guess}, ["right"])
    assert metrics.report() == {"total": 3, "accuracy": 0.3333, "f1": 0.3333}


def test_total_counts_answered_rows_also_those_without_a_text():
    metrics = Metrics({})
    assert metrics.update({}, ["a"]) == {"correct": 0}
    assert metrics.update({"text": "b"}, ["b"]) == {"correct": 1}
    assert metrics.report() == {"total": 2, "accuracy": 1.0, "f1": 1.0}, "means over replies with a text"


def test_a_text_of_articles_alone_is_right_but_has_no_f1():
    replies = [{"text": "The"}, {"text": "a!"}, {"text": "cat"}, {}]
    labels = [["the"], ["an", "x"], ["the cat"], ["a"]]
    one, rows = Metrics({}), Metrics({})
    for reply, answers in zip(replies, labels):
        one.update(reply, answers)
    rows.update_all(replies, labels)
    assert one.report() == rows.report() == {"total": 4, "accuracy": 1.0, "f1": 0.3333}


def test_metrics_of_any_name_are_means_over_the_replies_that_have_them():
    metrics = Metrics({})
    metrics.update({"text": "a", "metrics": {"loss": 2.0, "my own": 1}}, ["a"])
    metrics.update({"text": "a", "metrics": {"loss": 4.0, "accuracy": 99}}, ["a"])
    report = metrics.report()
    assert (report["loss"], report["my own"], report["accuracy"]) == (3.0, 1.0, 1.0)


@pytest.mark.parametrize("wrong", [{"loss": "much"}, {"loss": None}, {3: 1.0}, {"loss": [1, 2]}])
def test_metrics_that_are_no_numbers(wrong):
    with pytest.raises(ArgumentError, match="metrics of a reply"):
        Metrics({}).update({"metrics": wrong}, ["a"])


def test_names_that_are_too_long_or_too_many():
    metrics = Metrics({})
    with pytest.raises(ArgumentError, match="at most 120"):
        metrics.update({"metrics": {"x" * 121: 1}}, ["a"])
    with pytest.raises(ArgumentError, match="one too many"):
        metrics.update({"metrics": {f"m{n}": 1 for n in range(200)}}, ["a"])


def test_which_metrics():
    metrics = Metrics({"metrics": "bleu, accuracy"})
    metrics.update({"text": "one two three four"}, ["one two three four"])
    assert "f1" not in metrics.report()
    assert metrics.report()["bleu"] == 1.0
    with pytest.raises(ArgumentError, match="metrics names rouge"):
        Metrics({"metrics": "rouge"})


def test_clear():
    metrics = Metrics({})
    metrics.update({"text": "a"}, ["a"])
    metrics.clear()
    assert metrics.report() == {"total": 0}


def test_sums_over_workers_equal_one_process_to_the_last_digit():
    rng = random.Random(1)
    values = [rng.choice((1e-9, 1.0, 1e9)) * rng.gauss(0, 1) for _ in range(4000)]
    one, several = SumColumns(1), SumColumns(4)
    columns = [several.column(index) for index in range(4)]
    for value in values:
        one.column(0).add("loss", value)
        rng.choice(columns).add("loss", value)
    assert one.totals() == several.totals() == {"loss": (math.fsum(values), 4000)}


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e308, 2**80, 0.1, -0.0])
def test_large_and_odd_numbers(value):
    tally = SumColumns(2)
    for index in (0, 1):
        tally.column(index).add("x", value)
    assert tally.totals()["x"] == (value + value, 2)


def test_nan_is_reported():
    metrics = Metrics({})
    metrics.update({"metrics": {"loss": math.nan}}, ["a"])
    assert math.isnan(metrics.report()["loss"])


def test_macro_and_micro_averages():
    reports = {
        "a": {"total": 10, "accuracy": 0.5, "loss": 3.0},
        "b": {"total": 30, "accuracy": 0.1},
        "c": {"total": 0},
    }
    found = aggregate_metrics(reports)
    assert found["total"] == 40
    assert found["accuracy"] == 0.3
    assert found["loss"] == 3.0
    assert found["micro"] == {"accuracy": 0.2, "loss": 3.0}
    assert found["tasks"] == reports


def test_a_report_of_several_tasks_has_four_means_whatever_the_tasks_have():
    found = aggregate_metrics({"a": {"loss": 1.0}, "b": {}})
    assert (found["total"], found["accuracy"], found["f1"], found["loss"], found["ppl"]) == (0, 0, 0, 1.0, 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The  Cat, a dog!", "cat dog"),
        ("an apple's", "apple s"),
        ("theatre", "theatre"),
        ("", ""),
        ("Ünï", "ünï"),
    ],
)
def test_normal_form(text, found):
    assert normalize_answer(text) == found


def test_exact_match():
    assert exact_match("The cat.", ["dog", "cat"])
    assert not exact_match("cats", ["cat"])


@pytest.mark.parametrize(
    ("number", "rounded"), [(0.0, 0.0), (123456, 123500), (-0.00123456, -0.001235), (math.inf, math.inf)]
)
def test_significant_digits(number, rounded):
    assert round_sigfigs(number) == rounded


def test_the_rows_of_a_batch_are_counted_as_one_by_one():
    rng = random.Random(0)
    words = ["a", "cat", "dog", "sat", "there"]
    replies, labels = [], []
    for number in range(200):
        reply = {} if number % 7 == 0 else {"text": " ".join(rng.choices(words, k=3))}
        if number % 3 == 0:
            reply["text_candidates"] = rng.sample(words, 3)
        if number % 5 == 0:
            reply["metrics"] = {"loss": rng.random()}
        replies.append(reply)
        labels.append([" ".join(rng.choices(words, k=rng.randint(1, 3)))])
    for opt in ({}, {"metrics": "f1,bleu"}, {"metrics": "accuracy"}):
        one_by_one, at_once = Metrics(opt), Metrics(opt)
        for reply, label in zip(replies, labels):
            one_by_one.update(reply, label)
        for start in range(0, 200, 20):
            at_once.update_all(replies[start : start + 20], labels[start : start + 20])
        assert at_once.report() == one_by_one.report()
        at_once.update_all([], [])
        assert at_once.report() == one_by_one.report()
    assert Metrics({}).update_all([{}], [None]) is None


@pytest.mark.parametrize("sort", [False, True])
def test_a_teacher_that_observes_in_its_own_way_does_so_in_a_batch(sort):
    seen = []

    class Listening(ReverseTeacher):
        def observe(self, observation):
            seen.append(observation)
            return super().observe(observation)

    opt = {"task_arguments": "valid:size=12", "batchsize": 4, "batch_sort": sort, "task": "reverse"}
    world = BatchWorld(opt, DialogPartnerWorld(opt, [Listening(opt), RepeatLabelAgent(opt)]))
    for _ in range(3):
        world.parley()
    assert len(seen) == 12
    assert world.report() == {"total": 12, "accuracy": 1.0, "f1": 1.0}
