"""AUC and LogLoss against their definitions, and with what is not a probability."""

import math

import numpy as np
import pytest

import dpmodule as mx


def area(labels, scores):
    """How often a 1 has a higher score than a 0; equal scores count half."""
    ones, zeros = scores[labels == 1][:, None], scores[labels == 0][None]
    return float(((ones > zeros) + 0.5 * (ones == zeros)).mean())


def drawn(seed, count=400):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    return labels, np.clip(generator.normal(0.4 + 0.2 * labels, 0.25), 0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_area(seed):
    labels, scores = drawn(seed)
    one, near = mx.metric.AUC(num_thresholds=64), mx.metric.create("auc")
    near.update([labels], [scores])
    assert near.get()[1] == pytest.approx(area(labels, scores), abs=2e-3)
    scores = np.floor(scores * 64) / 64  # in buckets the area is exact
    for piece in range(0, 400, 90):
        one.update([labels[piece : piece + 90]], [scores[piece : piece + 90]])
    assert (one.get()[1], one.num_inst) == (pytest.approx(area(labels, scores), abs=1e-12), 400)


def test_the_area_needs_both_classes():
    one = mx.metric.AUC()
    assert math.isnan(one.get()[1])
    one.update([np.ones(3)], [np.ones(3)])
    assert math.isnan(one.get()[1])
    one.update([np.zeros(3)], [np.zeros(3)])
    assert one.get() == ("auc", 1.0)


def test_log_loss_is_its_formula():
    labels, scores = drawn(1)
    one = mx.metric.create("logloss", eps=1e-3)
    one.update([labels], [scores])
    p = np.clip(scores, 1e-3, 1 - 1e-3)
    assert one.get()[1] == pytest.approx(-(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean())
    sure = mx.metric.LogLoss(eps=0.0)
    sure.update([np.array([0, 1])], [np.array([0.0, 1.0])])
    assert sure.get()[1] == 0.0


@pytest.mark.parametrize(("kind", "wanted"), [(mx.metric.F1, 0.8), (mx.metric.MCC, 0.577350)])
def test_labels_in_a_column_are_one_for_each_row(kind, wanted):
    metric, label = kind(), mx.nd.array([1, 0, 1, 0])
    metric.update([label.reshape((4, 1))], [mx.nd.array([[0, 1], [1, 0], [0, 1], [0, 1]])])
    assert metric.get()[1] == pytest.approx(wanted)
