"""Metrics of fluid, against counts."""

import numpy as np
import pytest

import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, ShapeError

PREDICTIONS = np.array([0.1, 0.9, 0.8, 0.4, 0.55, 0.2])
LABELS = np.array([0, 1, 0, 1, 1, 0])


def in_batches(metric, preds=PREDICTIONS[:, None]):
    for part in (slice(0, 2), slice(2, 6)):
        metric.update(preds[part], LABELS[part, None])
    return metric


def test_area_counts_pairs_in_order():
    both = np.stack([1 - PREDICTIONS, PREDICTIONS], 1)
    for preds in (both, PREDICTIONS[:, None]):
        metric = in_batches(fluid.metrics.Auc("auc"), preds)
        pairs = [(a > b) for a in PREDICTIONS[LABELS == 1] for b in PREDICTIONS[LABELS == 0]]
        assert (metric.eval(), str(metric)) == (pytest.approx(np.mean(pairs)), "auc")
    metric.reset()
    metric.update([[0.5]], [[1]])
    assert metric.eval() == 0.0


def test_chunks_of_batches_are_added_up():
    metric = fluid.metrics.ChunkEvaluator()
    assert metric.eval() == (0.0, 0.0, 0.0)
    for counts in (np.array([10]), np.array([8]), np.array([6])), (0, 2, 0):
        metric.update(*counts)
    assert metric.eval() == pytest.approx((0.6, 0.6, 0.6))


def test_shares_of_hits():
    assert in_batches(fluid.metrics.Precision()).eval() == pytest.approx(2 / 3)
    assert in_batches(fluid.metrics.Recall()).eval() == pytest.approx(2 / 3)
    both = fluid.metrics.CompositeMetric()
    both.add_metric(fluid.metrics.Precision())
    both.add_metric(fluid.metrics.Recall())
    assert in_batches(both).eval() == [pytest.approx(2 / 3)] * 2
    both.reset()
    assert both.eval() == [0.0, 0.0]


def test_accuracy_is_weighted():
    metric = fluid.metrics.Accuracy()
    metric.update(np.array([0.5]), 2)
    metric.update(np.array([1.0]), np.array(6))
    assert metric.eval() == 0.875
    metric.reset()
    with pytest.raises(ArgumentError, match="update has not been called"):
        metric.eval()


def test_wrong_calls():
    for call, error, text in (
        (lambda: fluid.metrics.Auc(curve="PR"), ArgumentError, "curve is 'PR', expected \"ROC\""),
        (lambda: fluid.metrics.Auc().update([[0.1]], [0, 1]), ShapeError, "got 1 predictions and 2 labels"),
        (
            lambda: fluid.metrics.Recall().update([[0.1]], [0, 1]),
            ShapeError,
            "got 1 predictions and 2 labels",
        ),
        (
            lambda: fluid.metrics.Accuracy().update(1.0, -1),
            ArgumentError,
            "weight is -1, expected a number from 0",
        ),
        (
            lambda: fluid.metrics.CompositeMetric().add_metric(3),
            ArgumentError,
            "metric is 3, expected a metric",
        ),
    ):
        with pytest.raises(error, match=text):
            call()
