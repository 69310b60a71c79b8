"""Metrics of other libraries: objects with update(preds, target), compute() and reset()."""

import math

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.small_fits import blobs, classifier


class Right(torch.nn.Module):
    """Share of right classes, in the form of TorchMetrics."""

    def __init__(self):
        super().__init__()
        self.reset()

    def reset(self):
        self.right, self.count = torch.tensor(0), torch.tensor(0)

    def update(self, preds, target):
        assert target.dtype is torch.int64
        self.right += (preds.argmax(1) == target).sum()
        self.count += len(target)

    def compute(self):
        return self.right / self.count


class Everything:
    """Keeps all it sees, and computes two numbers."""

    def reset(self):
        self.preds, self.targets = [], []

    def update(self, preds, target):
        self.preds.append(preds)
        self.targets.append(target)

    def compute(self):
        preds, target = torch.cat(self.preds), torch.cat(self.targets)
        picked = preds[torch.arange(len(target)), target]
        return {"ce": -picked.log().mean(), "count": len(target)}


def test_fit_and_score_take_them():
    mx.random.seed(1)
    module, options = mx.mod.Module(classifier()), {"num_epoch": 2, "initializer": "xavier"}
    history = module.fit(blobs(90), blobs(seed=4), eval_metric=[Right(), "acc"], **options)
    assert history["train-right"] == pytest.approx(history["train-accuracy"], abs=1e-6)
    assert history["validation-right"] == pytest.approx(history["validation-accuracy"], abs=1e-6)
    found = dict(module.score(blobs(90), [Everything(), "ce", "acc"]))
    assert found["count"] == 90  # without the rows that fill the last batch up
    assert found["ce"] == pytest.approx(module.score(blobs(90), "ce")[0][1], rel=1e-5)


def test_values_before_any_batch_and_of_several_outputs():
    metric = mx.metric.create(Everything())
    assert metric.get()[0] == "everything"
    assert math.isnan(metric.get()[1])

    class Pairs:
        def reset(self):
            self.seen = []

        def update(self, preds, target):
            self.seen.append((float(preds.sum()), float(target.sum())))

        def compute(self):
            return np.array(self.seen)[:, 0].sum()

    inner = Pairs()
    metric = mx.metric.create(inner)
    metric.update([mx.nd.array([1.0]), mx.nd.array([2.0])], [mx.nd.array([3.0]), mx.nd.array([4.0])])
    assert (inner.seen, metric.get_name_value()) == ([(3.0, 1.0), (4.0, 2.0)], [("pairs", 7.0)])
    metric.reset_local()
    assert metric.get_name_value() == [("pairs", 7.0)]
    metric.reset()
    assert math.isnan(metric.get()[1])


@pytest.mark.parametrize("kind", [Right, Everything])
def test_a_resumed_run_goes_on_with_their_sums(kind, tmp_path):
    def run(prefix, **options):
        mx.random.seed(1)
        module = mx.mod.Module(classifier())
        every = mx.callback.Checkpoint(tmp_path / prefix, every_n_batches=5)
        options |= {"num_epoch": 2, "initializer": "xavier", "checkpoint": every}
        return module.fit(blobs(), eval_metric=kind(), **options)

    whole = run("whole")
    run("part", max_batches=8)
    resumed = run("part", resume="auto")
    for name in whole.names:
        assert resumed[name][-2:] == whole[name]
