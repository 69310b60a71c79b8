"""Wrong calls of `mx.metric`."""

import math

import numpy as np

import dpmodule as mx
from dpmodule import metric
from dpmodule.base import ArgumentError, BoundsError, ShapeError

two = mx.nd.ones(2)


def update(one, *shapes):
    label, *preds = [mx.nd.zeros(shape) for shape in shapes]
    one.update([label], preds)


def spread(label, pred):
    return float(np.abs(label - pred).sum()), label.size


class ByName(metric.EvalMetric):
    """Sums that do not add."""

    def reset(self):
        self.sum_metric, self.num_inst = {}, 0


def not_counted(kind, label, pred):
    """Update a metric with what is not a probability, which it does not count."""
    one = kind()
    try:
        one.update([np.array(label)], [np.array(pred)])
    finally:
        assert one.num_inst == 0


def composite():
    metric.CompositeEvalMetric(["acc", "ce"]).get_metric(2)


def itself(one):
    one.merge(one)


def named(**options):
    one = metric.Accuracy(output_names=["z"], label_names=["b"])
    one.update_dict({"b": two}, {"x": mx.nd.ones((2, 2))})


FITTING = [
    (metric.Accuracy(), r"accuracy: label of shape \(3,\).*\(2,\)", (3,), (2, 4)),
    (metric.TopKAccuracy(top_k=2), r"top_k_accuracy_2: label of shape \(3,\)", (3,), (2, 4)),
    (metric.TopKAccuracy(top_k=2), r"\(2, 4, 1\), expected at most 2", (2,), (2, 4, 1)),
    (metric.F1(), r"f1: label of shape \(3,\)", (3,), (2, 2)),
    (metric.F1(), r"f1: predictions have shape \(3,\)", (3,), (3,)),
    (metric.PCC(), r"pcc: label of shape \(3,\)", (3,), (2, 2)),
    (metric.CrossEntropy(), r"cross-entropy: label of shape \(3,\).*\(2, 2\)", (3,), (2, 2)),
    (metric.NegativeLogLikelihood(), r"nll-loss.*\(2, 2, 1\)", (2,), (2, 2, 1)),
    (metric.Perplexity(None), r"perplexity: label of shape \(3,\).*\(2, 2\)", (3,), (2, 2)),
    (metric.MAE(), r"mae: label of shape \(3,\).*\(4, 1\)", (3,), (4, 1)),
    (metric.PearsonCorrelation(), r"pearsonr: label of shape \(4,\).*\(2, 2\)", (4,), (2, 2)),
    *[
        (kind(), r"label of shape \(4,\).*expected one probability", (4,), shape)
        for kind in (metric.AUC, metric.LogLoss)
        for shape in ((4, 3), (3,), (2, 2))
    ],
]
ROWS = [
    *[(lambda o=o, s=s: update(o, *s), ShapeError, said) for o, said, *s in FITTING],
    *[(lambda o=o, s=s: update(o, *s, s[1]), ShapeError, "1 labels for 2 pred") for o, _, *s in FITTING[:11]],
    *[
        (lambda k=k, a=a: not_counted(k, *a), ArgumentError, ": 1 examples have .* expected prob")
        for k in (metric.AUC, metric.LogLoss)
        for a in (([2, 1], [0.5] * 2), ([0, 1], [0.5, 1.5]), ([0, 1], [0.5, math.nan]), ([-1, 1], [0, 1]))
    ],
    *[(lambda n=n: metric.AUC(n), ArgumentError, f"num_thresholds is {n}") for n in (0, -1, 2.5, True)],
    (lambda: metric.LogLoss(0.5), ArgumentError, r"eps is 0\.5"),
    (lambda: metric.create("foo"), ArgumentError, "unknown metric 'foo'.*perplexity"),
    (lambda: metric.create(3), ArgumentError, "metric is 3"),
    (lambda: metric.create("[1"), ArgumentError, "metric is .*, expected JSON of the form"),
    (lambda: metric.create('["acc", 3]'), ArgumentError, "metric is .*, expected JSON of the form"),
    (lambda: metric.create({"axis": 1}), ArgumentError, "metric is None, expected an instance of"),
    (lambda: metric.np(spread).update([two], [two, two]), ShapeError, "1 does not match.* 2"),
    (named, KeyError, "z"),
    (composite, ArgumentError, "index is 2"),
    (lambda: metric.EvalMetric("x").update(None, None), NotImplementedError, "EvalMetric"),
    (lambda: metric.TopKAccuracy(), ArgumentError, "top_k is 1"),
    (lambda: metric.MCC(average="x"), ArgumentError, "MCC: average is 'x'"),
    (lambda: metric.PearsonCorrelation(average="x"), ArgumentError, "PearsonCorrelation: average is 'x'"),
    (lambda: metric.F1().update([mx.nd.arange(3)], [mx.nd.ones((3, 3))]), ArgumentError, "binary class"),
    (
        lambda: metric.CrossEntropy().update([mx.nd.array([5])], [mx.nd.ones((1, 3))]),
        BoundsError,
        "outside the 3",
    ),
    (lambda: metric.PCC().update([mx.nd.array([-1])], [mx.nd.ones((1, 3))]), ArgumentError, "class number"),
    (lambda: metric.check_label_shapes(mx.nd.ones(1), two, shape=True), ShapeError, r"\(1,\) does not"),
    # merging
    *[
        (lambda a=a, b=b: a.merge(b), ArgumentError, said)
        for a, b, said in (
            (metric.Accuracy(), metric.MSE(), "metric 'accuracy': cannot merge MSE, expected another"),
            (metric.F1(), metric.F1(average="micro"), "with different arguments"),
            (metric.CrossEntropy(1e-3), metric.CrossEntropy(), "with different arguments: eps is 0.001 here"),
            (metric.create(["acc"]), metric.create(["acc", "ce"]), "composite of 2 metrics, expected one"),
            (ByName("by name"), ByName("by name"), "'by name' cannot be merged: its sums cannot be added"),
        )
    ],
    (lambda: itself(metric.Accuracy()), ArgumentError, "cannot merge itself"),
]
