"""Merged metrics give the number of one that saw everything."""

import copy
import math
import pickle

import numpy as np
import pytest

from dpmodule import metric
from dpmodule.base import ArgumentError
from helpers.walk import walks


def spread(label, pred):
    return float(np.abs(label - pred).sum()), label.size


def classes(generator, count):
    scores = generator.random((count, 2)).astype("float32")
    scores /= scores.sum(1, keepdims=True)
    return generator.integers(0, 2, count).astype("float32"), scores


def numbers(generator, count):
    return tuple(generator.random(count).astype("float32") for _ in range(2))


def many_classes(generator, count):
    return generator.integers(0, count, count).astype("float32"), generator.random((count, count))


KINDS = {
    classes: [
        *(metric.create("acc"), metric.create("ce", eps=1e-6), metric.create("nll_loss"), metric.AUC()),
        *(kind(average=average) for kind in (metric.F1, metric.MCC) for average in ("macro", "micro")),
        *(metric.Perplexity(ignore_label=1), metric.LogLoss(), metric.create([["acc", "ce"], "mcc"])),
        metric.create(["acc", "auc", metric.F1(average="micro")]),
    ],
    many_classes: [metric.create("top_k_acc", top_k=2), metric.PCC()],
    numbers: [
        *(metric.MAE(), metric.MSE(), metric.RMSE(), metric.Loss(), metric.Torch(), metric.Caffe()),
        *(metric.PearsonCorrelation(average=average) for average in ("macro", "micro")),
        metric.np(spread),
    ],
}
ROWS = [(one, draw) for draw, ones in KINDS.items() for one in ones]


def shown(one):
    return one.get_name_value() + one.get_global_name_value()


def same(found, expected):
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, value), (_, other) in zip(found, expected, strict=True):
        assert value == pytest.approx(other, rel=1e-12, nan_ok=True), name


def test_every_metric_is_here():
    public = [vars(metric)[name] for name in metric.__all__ if isinstance(getattr(metric, name), type)]
    wanted = {each for each in public if issubclass(each, metric.EvalMetric)} - {metric.EvalMetric}
    assert {type(one) for one, _ in ROWS} == wanted


@walks([(*row, workers) for row in ROWS for workers in (1, 2, 5)])
def test_merged_workers_give_one_metrics_number(new, draw, workers):
    generator = np.random.default_rng(workers)
    whole, total, *parts = (copy.deepcopy(new) for _ in range(workers + 2))
    for step in range(11):
        label, pred = draw(generator, int(generator.integers(3, 9)))
        if step == 6:  # local and global sums differ from here on
            for each in (whole, *parts):
                each.reset_local()
        for each in (whole, parts[step % workers]):
            each.update([label], [pred])
    for part in parts:
        before = shown(part)
        total.merge(pickle.loads(pickle.dumps(part)) if part.get()[0] != "custom" else part)
        same(shown(part), before)
    same(shown(total), shown(whole))
    label, pred = draw(generator, 6)
    for each in (whole, total):
        each.update([label], [pred])
    same(shown(total), shown(whole))


@walks(ROWS)
def test_one_that_has_seen_nothing_changes_nothing(new, draw):
    one, other, both = (copy.deepcopy(new) for _ in range(3))
    one.update(*([each] for each in draw(np.random.default_rng(0), 8)))
    before = shown(one)
    one.merge(other)
    same(shown(one), before)
    both.merge(other)
    assert all(math.isnan(value) for _, value in shown(both))


class Worst(metric.EvalMetric):
    """Keeps more than a sum and a count."""

    def __init__(self):
        self.seen = []
        super().__init__("worst")

    def update(self, labels, preds):
        self.seen.append(float(np.abs(labels[0] - preds[0]).max()))
        self.sum_metric, self.num_inst = max(self.seen), 1

    def reset(self):
        super().reset()
        self.seen = []


class WorstOfAll(Worst):
    def merge(self, other):
        super().merge(other)
        self.seen = self.seen + other.seen
        self.sum_metric, self.num_inst = max(self.seen), 1


class OldStyle(metric.EvalMetric):
    """Sums in lists, as programs for MXNet have them."""

    def __init__(self):
        super().__init__("old")

    def reset(self):
        self.sum_metric, self.num_inst = [0.0, 0.0], [0, 0]

    def update(self, labels, preds):
        for i in range(2):
            self.sum_metric[i] += float(preds[0].sum()) * (i + 1)
            self.num_inst[i] += 1

    def get(self):
        return ["a", "b"], [s / n if n else math.nan for s, n in zip(self.sum_metric, self.num_inst)]


@pytest.mark.parametrize("kind", [Worst, WorstOfAll])
def test_a_subclass_that_keeps_more_is_refused_by_name_until_it_merges_that(kind):
    first, second = kind(), kind()
    first.update([np.zeros(2)], [np.array([1.0, 2.0])])
    second.update([np.zeros(2)], [np.array([1.0, 3.0])])
    if kind is WorstOfAll:
        first.merge(second)
        assert first.get() == ("worst", 3.0)
        return
    with pytest.raises(ArgumentError, match="metric 'worst' cannot be merged: Worst has the state 'seen'"):
        first.merge(second)
    assert first.get() == ("worst", 2.0)
    both = [metric.create(["acc", each]) for each in (first, second)]
    with pytest.raises(ArgumentError, match="'worst' cannot be merged"):
        both[0].merge(both[1])


def test_sums_in_lists_are_added_one_by_one():
    first, second = OldStyle(), OldStyle()
    for step in range(3):
        (first if step else second).update([None], [np.full(2, step + 1.0)])
    first.merge(second)
    assert first.get() == (["a", "b"], [4.0, 8.0])
