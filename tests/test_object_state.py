"""What is kept of objects whose attributes change, and what is refused."""

import logging
import random
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.checkpoint import run_format


class Meter:
    def __init__(self):
        self.total, self.log = 0.0, logging.getLogger("meter")


class Slotted:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


class Everything(mx.metric.EvalMetric):
    """A metric that keeps what programs keep."""

    def __init__(self, name="everything"):
        self.function, self.logger = (lambda value: value), logging.getLogger("x")
        super().__init__(name)
        self.meter, self.slotted, self.mixed = Meter(), Slotted(), [self.function, 0]
        self.torch, self.nd, self.np = torch.zeros(2), mx.nd.zeros((2,)), np.zeros(2)
        self.list, self.dict, self.text, self.none = [], {1: (2,), "kind": 0}, "", None
        self.ordered, self.counter, self.default = OrderedDict(), Counter(), defaultdict(list)
        self.inner, self.alias, self.owned = mx.metric.MSE(), self.list, defaultdict(lambda: 7)
        self.deque, self.set = deque(maxlen=3), set()
        sources = np.random.default_rng, np.random.RandomState, random.Random
        self.sources = [*(each(3) for each in sources), torch.Generator()]

    def update(self, labels, preds):
        value = float(np.asarray(preds[0]).sum())
        self.num_inst += np.int64(1)
        self.sum_metric += np.float32(value) * self.draw()
        self.meter.total += value
        self.slotted.count += 1
        self.mixed[1] += 1
        self.inner.update([mx.nd.array([0.0])], [mx.nd.array([value])])
        self.torch, self.text, self.none = self.torch + value, self.text + "x", (1, None)
        self.nd += value
        self.np += value
        self.list.append({"a": [value]})
        self.dict[2.5] = self.ordered["z"] = (value, None)
        self.counter[value] += 1
        self.default[int(value)].append((value,))
        self.deque.append(value)
        self.set.add(int(value))
        self.owned[value] += 1

    def draw(self):
        numpy, old, python, of_torch = self.sources
        return numpy.random() + old.rand() + python.random() + torch.rand(1, generator=of_torch).item()


def shown(metric):
    """Return a metric's attributes as text, those of its parts too."""
    hidden = "name _before_update _pending meter slotted inner mixed sources function owned"
    plain = {key: value for key, value in vars(metric).items() if key not in hidden.split()}
    parts = [metric.meter.total, metric.slotted.count, metric.inner.get(), metric.mixed[1], metric.draw()]
    return repr([plain, dict(metric.owned), parts])


def test_all_that_update_changes_comes_back(tmp_path):
    first, second = Everything(), Everything("other")
    for value in (1.0, 2.0, 3.0):
        first.update([None], [np.full(2, value)])
    with open(tmp_path / "a", "wb") as file:
        run_format.write(file, {"metric": first.state_dict()})
    state = run_format.read(tmp_path / "a")["metric"]
    assert state.keys().isdisjoint({"name", "function", "logger", "_kwargs"})
    second.load_state_dict(state)
    for each in (first, second):
        each.update([None], [np.full(2, 9.0)])
    assert second.name == "other"
    assert second.alias is second.list
    assert shown(second) == shown(first)
    second.load_state_dict({})  # of one that has seen nothing
    assert shown(second) == shown(Everything())


CHANGES = {
    "function has changed and holds a function": lambda m: setattr(m, "function", lambda: 2),
    "cache has changed and holds a str_": lambda m: setattr(m, "cache", iter("ab")),
    "meter.log has changed and holds a builtin": lambda m: setattr(m.meter, "log", open),
    "counter has changed and holds a dict with keys of type": lambda m: m.counter.update([torch.float32]),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_that_cannot_be_kept_is_named(words):
    metric = type("Broken", (Everything,), {"update": lambda self, labels, preds: CHANGES[words](self)})()
    metric.update([None], [None])
    with pytest.raises(ArgumentError, match=f"Broken.{words}"):
        metric.state_dict()


def test_attributes_that_the_program_sets_stay_its_own():
    first, second = Everything(), Everything()
    first.hook, first.threshold, second.threshold = print, 1, 2
    first.update([None], [np.ones(2)])
    second.load_state_dict(first.state_dict())
    assert second.threshold == 2
    assert first.state_dict().keys().isdisjoint({"hook", "threshold"})
