"""Merged metrics give the number of one that saw everything."""

import math
import pickle

import numpy as np
import pytest

import dpmodule as mx
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
    "acc": (lambda: metric.create("acc"), classes),
    "ce": (lambda: metric.create("ce", eps=1e-6), classes),
    "nll_loss": (lambda: metric.create("nll_loss"), classes),
    "top_k": (lambda: metric.create("top_k_acc", top_k=2), many_classes),
    "f1 macro": (lambda: metric.F1(average="macro"), classes),
    "f1 micro": (lambda: metric.F1(average="micro"), classes),
    "mcc macro": (lambda: metric.MCC(average="macro"), classes),
    "mcc micro": (lambda: metric.MCC(average="micro"), classes),
    "pcc": (metric.PCC, many_classes),
    "mae": (metric.MAE, numbers),
    "mse": (metric.MSE, numbers),
    "rmse": (metric.RMSE, numbers),
    "pearson macro": (lambda: metric.PearsonCorrelation(average="macro"), numbers),
    "pearson micro": (lambda: metric.PearsonCorrelation(average="micro"), numbers),
    "perplexity": (lambda: metric.Perplexity(ignore_label=1), classes),
    "loss": (metric.Loss, numbers),
    "torch": (metric.Torch, numbers),
    "caffe": (metric.Caffe, numbers),
    "custom": (lambda: metric.np(spread), numbers),
    "auc": (metric.AUC, classes),
    "logloss": (metric.LogLoss, classes),
    "composite": (lambda: metric.create(["acc", "auc", metric.F1(average="micro")]), classes),
    "nested": (lambda: metric.create([["acc", "ce"], "mcc"]), classes),
}


def shown(one):
    return one.get_name_value() + one.get_global_name_value()


def same(found, expected):
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, value), (_, other) in zip(found, expected, strict=True):
        assert value == pytest.approx(other, rel=1e-12, nan_ok=True), name


def test_every_metric_is_here():
    made = {type(make()) for make, _ in KINDS.values()}
    public = [vars(metric)[name] for name in metric.__all__ if isinstance(getattr(metric, name), type)]
    assert made == {each for each in public if issubclass(each, metric.EvalMetric)} - {metric.EvalMetric}


@walks([(*kind, workers) for kind in KINDS.values() for workers in (1, 2, 5)])
def test_merged_workers_give_one_metrics_number(make, draw, workers):
    generator = np.random.default_rng(workers)
    whole, parts = make(), [make() for _ in range(workers)]
    for step in range(11):
        label, pred = draw(generator, int(generator.integers(3, 9)))
        if step == 6:  # local and global sums differ from here on
            for each in (whole, *parts):
                each.reset_local()
        for each in (whole, parts[step % workers]):
            each.update([label], [pred])
    total = make()
    for part in parts:
        before = shown(part)
        total.merge(pickle.loads(pickle.dumps(part)) if part.get()[0] != "custom" else part)
        same(shown(part), before)
    same(shown(total), shown(whole))
    label, pred = draw(generator, 6)
    for each in (whole, total):
        each.update([label], [pred])
    same(shown(total), shown(whole))


@walks(KINDS.values())
def test_one_that_has_seen_nothing_changes_nothing(make, draw):
    one = make()
    one.update(*([each] for each in draw(np.random.default_rng(0), 8)))
    before = shown(one)
    one.merge(make())
    same(shown(one), before)
    both = make()
    both.merge(make())
    assert all(math.isnan(value) for _, value in shown(both))


def test_areas_merge_to_the_bit():
    generator = np.random.default_rng(0)
    whole, parts = metric.AUC(), [metric.AUC() for _ in range(3)]
    for step in range(30):
        label, pred = classes(generator, 50)
        for each in (whole, parts[step % 3]):
            each.update([label], [pred])
    for part in parts[1:]:
        parts[0].merge(part)
    assert parts[0].get() == whole.get()


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


def test_a_subclass_that_keeps_more_is_refused_by_name_until_it_merges_that():
    for kind in (Worst, WorstOfAll):
        first, second = kind(), kind()
        first.update([np.zeros(2)], [np.array([1.0, 2.0])])
        second.update([np.zeros(2)], [np.array([1.0, 3.0])])
        if kind is Worst:
            with pytest.raises(
                ArgumentError, match="metric 'worst' cannot be merged: Worst has the state 'seen'"
            ):
                first.merge(second)
            assert first.get() == ("worst", 2.0)
            both = [metric.create(["acc", each]) for each in (first, second)]
            with pytest.raises(ArgumentError, match="'worst' cannot be merged"):
                both[0].merge(both[1])
        else:
            first.merge(second)
            assert first.get() == ("worst", 3.0)


class ByName(metric.EvalMetric):
    """Sums that do not add."""

    def __init__(self):
        super().__init__("by name")

    def reset(self):
        self.sum_metric, self.num_inst = {}, 0


class Configured(OldStyle):
    """Attributes that only compare by their values after a copy."""

    def __init__(self, offset=0.0):
        self.offset, self.helper = np.full(3, offset), OldStyle
        self.part = Part(offset)
        super().__init__()


class Part:
    def __init__(self, offset):
        self.offset = offset


def test_sums_that_do_not_add_are_refused_by_name():
    with pytest.raises(
        ArgumentError, match="metric 'by name' cannot be merged: its sums cannot be added .* ByName"
    ):
        ByName().merge(ByName())


def test_attributes_are_compared_by_value():
    first, second = Configured(), pickle.loads(pickle.dumps(Configured()))
    second.update([None], [np.ones(2)])
    first.merge(second)
    assert first.get() == (["a", "b"], [2.0, 4.0])
    with pytest.raises(
        ArgumentError, match="metric 'old': cannot merge a Configured .* different arguments: offset is"
    ):
        first.merge(Configured(1.0))


def test_sums_in_lists_are_added_one_by_one():
    first, second = OldStyle(), OldStyle()
    for step in range(3):
        (first if step else second).update([None], [np.full(2, step + 1.0)])
    first.merge(second)
    assert first.get() == (["a", "b"], [4.0, 8.0])


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (metric.Accuracy(), metric.MSE(), "metric 'accuracy': cannot merge MSE, expected another Accuracy"),
        (metric.Accuracy(), None, "cannot merge NoneType"),
        (metric.F1(), metric.F1(average="micro"), "with different arguments"),
        (metric.CrossEntropy(1e-3), metric.CrossEntropy(), "with different arguments: eps is 0.001 here"),
        (metric.AUC(10), metric.AUC(), "with different arguments"),
        (metric.create(["acc"]), metric.create(["acc", "ce"]), "composite of 2 metrics, expected one of 1"),
        (metric.create(["acc"]), metric.create(["ce"]), "cannot merge CrossEntropy"),
        (metric.np(spread), metric.np(lambda label, pred: 0.0), "with different arguments"),
    ],
)
def test_what_does_not_fit_is_refused(first, second, text):
    with pytest.raises(ArgumentError, match=text):
        first.merge(second)


def test_a_metric_does_not_merge_itself():
    one = mx.metric.Accuracy()
    with pytest.raises(ArgumentError, match="cannot merge itself"):
        one.merge(one)
