"""What is kept of objects whose attributes change, and what is refused."""

import copy
import logging
import pickle
import random
import tempfile
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import dpmodule as mx
from dpmodule import autobatch
from dpmodule.agents import DictionaryAgent
from dpmodule.base import ArgumentError, MXNetError
from dpmodule.checkpoint import run_format
from helpers.nets import mlp


def described(value):
    """Return a value as plain text that tells types, dtypes, shapes and bits apart."""
    name = type(value).__name__
    if isinstance(value, dict):
        return name, [(described(key), described(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return name, [described(item) for item in value]
    if isinstance(value, torch.Tensor):
        return name, str(value.dtype), tuple(value.shape), repr(value.tolist())
    if isinstance(value, (np.ndarray, np.generic)):
        return name, value.dtype.str, value.shape, value.tobytes()
    return name, repr(value)


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


NUMBERS = st.one_of(
    *(
        arrays(dtype, array_shapes(min_dims=0, max_dims=2, max_side=3))
        for dtype in ("bool", "int8", "int64", "uint16", "float16", "float32", "float64")
    )
)
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    NUMBERS,
    NUMBERS.map(lambda array: array.reshape(-1)[0]),
    NUMBERS.filter(lambda array: array.dtype != "uint16").map(torch.from_numpy),
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.floats(allow_nan=False)), inner, max_size=3),
        st.lists(inner, max_size=3).map(deque),
    ),
    max_leaves=6,
)


class Kept(mx.metric.EvalMetric):
    """A metric whose update stores what it is given."""

    value = None

    def update(self, labels, preds):
        self.value, self.num_inst = preds, self.num_inst + 1


@given(VALUES)
@settings(max_examples=200)
def test_any_value_comes_back_with_its_type(value):
    first, second = Kept("kept"), Kept("kept")
    first.update(None, value)
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder, "a.run"), "wb") as file:
            run_format.write(file, {"metric": first.state_dict(), "value": value})
        state = run_format.read(Path(folder, "a.run"))
    second.load_state_dict(state["metric"])
    assert described(state["value"]) == described(second.value) == described(value)


def module(bound):
    made = mx.mod.Module(mlp(dropout=0.2))
    if bound:
        made.bind([("data", (2, 6))], [("softmax_label", (2,))])
        made.init_params(mx.init.One())
    return made


def epoch_of(data):
    return [batch.data[0].asnumpy().tolist() for batch in data]


def predicted(module):
    return module.predict(mx.io.NDArrayIter(np.ones((2, 6)))).asnumpy().tolist()


def steps(optimizer):
    weight = mx.nd.ones((3,))
    update = mx.optimizer.get_updater(optimizer)
    for index in (0, 0, 1):
        update(index, mx.nd.array([1.0, -2.0, 0.5]), weight)
    return weight.asnumpy().tolist()


def rows():
    return mx.io.NDArrayIter(np.arange(12.0).reshape(6, 2), np.arange(6), 2)


OBJECTS = {
    "symbol": (mlp, lambda each: each.tojson()),
    "array": (
        lambda: mx.nd.array([[1, 2]], dtype="int8"),
        lambda each: (each.dtype, each.asnumpy().tolist()),
    ),
    "sparse rows": (
        lambda: mx.nd.array([[0, 0], [1, 2]]).tostype("row_sparse"),
        lambda each: each.asnumpy().tolist(),
    ),
    "sparse matrix": (
        lambda: mx.nd.array([[0, 0], [1, 2]]).tostype("csr"),
        lambda each: each.asnumpy().tolist(),
    ),
    "ragged array": (
        lambda: mx.nd.ragged_array([[1, 2], [], [3]]),
        lambda each: each.values.asnumpy().tolist(),
    ),
    "context": (lambda: mx.cpu(1), str),
    "iterator": (rows, epoch_of),
    "resized iterator": (lambda: mx.io.ResizeIter(rows(), 5), epoch_of),
    "prefetching iterator": (lambda: mx.io.PrefetchingIter(rows()), epoch_of),
    "optimizer": (
        lambda: mx.optimizer.create(
            "adam", wd=0.1, lr_scheduler=mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.001)
        ),
        steps,
    ),
    "metric": (lambda: mx.metric.create(["acc", "ce"]), lambda each: each.get()),
    "initializer": (lambda: mx.init.Mixed([".*"], [mx.init.One()]), lambda each: type(each).__name__),
    "module": (lambda: module(False), lambda each: each.symbol.tojson()),
    "bound module": (lambda: module(True), predicted),
    "executor": (lambda: mlp().simple_bind(mx.cpu(), data=(2, 6)), lambda each: each.outputs[0].shape),
    "store": (lambda: mx.kv.create("local"), lambda each: each.type),
    "dictionary": (lambda: DictionaryAgent({"dict_lower": True}), lambda each: each.txt2vec("a B")),
    "network of parameters": (autobatch.ParameterCollection, lambda each: each.parameter_count()),
}
"""What makes an object, and what a program sees of it."""


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_copy_does_what_the_original_does_or_is_refused(name, copied):
    make, look = OBJECTS[name]
    try:
        other = copied(make())
    except MXNetError:
        return
    assert look(other) == look(make())
