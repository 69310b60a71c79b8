"""AUC and LogLoss against their definitions, and with what is not a probability."""

import math
import pickle

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError


def area(labels, scores):
    """How often a 1 has a higher score than a 0; equal scores count half."""
    ones, zeros = scores[labels == 1][:, None], scores[labels == 0][None]
    return float(((ones > zeros) + 0.5 * (ones == zeros)).mean())


def drawn(seed, count=400):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    return labels, np.clip(generator.normal(0.4 + 0.2 * labels, 0.25), 0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_area_of_scores_in_buckets_is_exact(seed):
    labels, scores = drawn(seed)
    scores = np.floor(scores * 64) / 64
    one = mx.metric.AUC(num_thresholds=64)
    for piece in range(0, 400, 90):
        one.update([labels[piece : piece + 90]], [scores[piece : piece + 90]])
    assert one.get()[1] == pytest.approx(area(labels, scores), abs=1e-12)
    assert one.num_inst == 400


@pytest.mark.parametrize("seed", range(20))
def test_area_is_near_the_one_of_exact_scores(seed):
    labels, scores = drawn(seed)
    one = mx.metric.create("auc")
    one.update([labels], [scores])
    assert one.get()[1] == pytest.approx(area(labels, scores), abs=2e-3)


def test_shapes_of_one_and_of_two_classes():
    labels, scores = drawn(0)
    expected = mx.metric.AUC()
    expected.update([labels], [scores])
    shapes = [
        (labels[:, None], scores),
        (labels, scores[:, None]),
        (labels, np.stack([1 - scores, scores], 1)),
    ]
    for kind in (mx.metric.AUC, mx.metric.LogLoss):
        found = set()
        for label, pred in [(labels, scores), *shapes]:
            one = kind()
            one.update([mx.nd.array(label)], [torch.from_numpy(pred)])
            found.add(round(one.get()[1], 12))
        assert len(found) == 1


def test_the_area_needs_both_classes():
    one = mx.metric.AUC()
    assert math.isnan(one.get()[1])
    one.update([np.ones(3)], [np.ones(3)])
    assert math.isnan(one.get()[1])
    one.update([np.zeros(3)], [np.zeros(3)])
    assert one.get() == ("auc", 1.0)


def test_stretches_and_whole():
    one = mx.metric.AUC()
    one.update([np.array([0, 1])], [np.array([0.1, 0.9])])
    one.reset_local()
    assert math.isnan(one.get()[1])
    one.update([np.array([0, 1])], [np.array([0.9, 0.1])])
    assert (one.get()[1], one.get_global()[1], one.global_num_inst) == (0.0, 0.5, 4)
    other = pickle.loads(pickle.dumps(one))
    other.update([np.array([0, 1])], [np.array([0.0, 1.0])])
    assert one.num_inst == 2
    assert other.num_inst == 4
    one.reset()
    assert math.isnan(one.get_global()[1])


def test_log_loss_is_its_formula():
    labels, scores = drawn(1)
    one = mx.metric.create("logloss", eps=1e-3)
    one.update([labels], [scores])
    p = np.clip(scores, 1e-3, 1 - 1e-3)
    assert one.get()[1] == pytest.approx(-(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean())
    sure = mx.metric.LogLoss(eps=0.0)
    sure.update([np.array([0, 1])], [np.array([0.0, 1.0])])
    assert sure.get()[1] == 0.0


@pytest.mark.parametrize("kind", ["AUC", "LogLoss"])
@pytest.mark.parametrize(
    ("label", "pred"),
    [([2, 1], [0.5, 0.5]), ([0, 1], [0.5, 1.5]), ([0, 1], [0.5, math.nan]), ([-1, 1], [0, 1])],
)
def test_what_is_no_probability_is_refused_and_not_counted(kind, label, pred):
    one = getattr(mx.metric, kind)()
    with pytest.raises(ArgumentError, match=f"{kind.lower()}: 1 examples have .* expected probabilities"):
        one.update([np.array(label)], [np.array(pred)])
    assert one.num_inst == 0


@pytest.mark.parametrize("kind", ["AUC", "LogLoss"])
def test_shapes_that_do_not_fit_are_refused(kind):
    for pred in (np.zeros((4, 3)), np.zeros(3), np.zeros((2, 2))):
        with pytest.raises(ShapeError, match=r"label of shape \(4,\).*expected one probability"):
            getattr(mx.metric, kind)().update([np.zeros(4)], [pred])


def test_arguments_are_checked():
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ArgumentError, match=f"num_thresholds is {wrong}"):
            mx.metric.AUC(wrong)
    with pytest.raises(ArgumentError, match=r"eps is 0\.5"):
        mx.metric.LogLoss(0.5)


def test_fit_takes_them():
    data = np.random.RandomState(0).rand(40, 4).astype("float32")
    labels = (data.sum(1) > 2).astype("float32")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), name="softmax")
    mod = mx.mod.Module(net)
    both = mx.metric.create(["auc", "logloss"])
    batches = mx.io.NDArrayIter(data, labels, 10)
    mod.fit(batches, num_epoch=12, eval_metric=both, optimizer_params={"learning_rate": 0.5})
    found = dict(mod.score(batches, both))
    probabilities = mod.predict(batches).asnumpy()[:, 1]
    assert found["auc"] == pytest.approx(area(labels, probabilities), abs=5e-3)
    assert found["auc"] > 0.8
