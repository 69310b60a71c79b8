"""A minibatch gives what its elements give one after the other: values and gradients, of many minibatches at once."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

SIZE, HIDDEN = 5, 4


@pytest.fixture(params=[(e, b) for e in ("python", "auto") for b in (False, True)], autouse=True)
def _engine(request):
    engine, autobatch = request.param
    dy.configure(engine=engine, autobatch=autobatch)
    yield
    dy.configure(engine="auto", autobatch=False)


class Model:
    """Parameters, and the layers that programs use."""

    def __init__(self) -> None:
        draw = np.random.RandomState(0)
        self.collection = dy.ParameterCollection()
        shapes = {"W": (HIDDEN, SIZE), "V": (HIDDEN, HIDDEN), "b": (HIDDEN,)}
        for name, shape in shapes.items():
            setattr(self, name, self.collection.parameters_from_numpy(draw.uniform(-0.7, 0.7, shape)))
        builders = {
            "lstm": dy.VanillaLSTMBuilder,
            "compact": dy.CompactVanillaLSTMBuilder,
            "coupled": dy.CoupledLSTMBuilder,
            "fast": dy.FastLSTMBuilder,
            "gru": dy.GRUBuilder,
            "simple": dy.SimpleRNNBuilder,
        }
        self.builders = {name: kind(2, SIZE, HIDDEN, self.collection) for name, kind in builders.items()}
        for p in self.collection.parameters_list():
            p.set_value(draw.uniform(-0.7, 0.7, p.shape()))


def run_builder(name):
    def run(m, x, labels):
        states = m.builders[name].initial_state().add_inputs([x, x * 0.5, dy.tanh(x)])
        return dy.concatenate([states[0].output(), states[-1].output(), *states[-1].s()])

    return run


def begun(m, x, labels):
    h = m.W * x
    state = m.builders["lstm"].initial_state([h, dy.tanh(h), h * 0.3, dy.square(h)])
    return state.add_input(x).add_input(x * 2).output()


def as_matrix(x):
    return dy.concatenate_cols([x, dy.square(x)])


PROGRAMS = {
    "multiply": lambda m, x, labels: m.W * x,
    "affine": lambda m, x, labels: dy.affine_transform([m.b, m.W, x]),
    "two terms": lambda m, x, labels: dy.affine_transform([m.b, m.W, x, m.V, dy.tanh(m.W * x)]),
    "fused": lambda m, x, labels: dy.tanh(dy.affine_transform([m.b, m.W, x])),
    "fused products": lambda m, x, labels: dy.cmult(m.W * x, dy.logistic(m.W * x) + m.V * dy.tanh(m.W * x)),
    "columns": lambda m, x, labels: dy.tanh(m.W * dy.reshape(x, (SIZE, 1), x.dim()[1])),
    "softmax of a product": lambda m, x, labels: dy.softmax(m.W * x),
    **{
        f"builder {name}": run_builder(name)
        for name in ("lstm", "compact", "coupled", "fast", "gru", "simple")
    },
    "lstm with a beginning": begun,
    "softmax": lambda m, x, labels: dy.softmax(x),
    "log_softmax": lambda m, x, labels: dy.log_softmax(m.W * x),
    "softmax of columns": lambda m, x, labels: dy.softmax(dy.reshape(x, (SIZE, 1), x.dim()[1])),
    "pickneglogsoftmax": lambda m, x, labels: dy.pickneglogsoftmax(m.W * x, labels),
    "pickneglogsoftmax_batch": lambda m, x, labels: dy.pickneglogsoftmax_batch(x, np.atleast_1d(labels)),
    "one label": lambda m, x, labels: dy.pickneglogsoftmax(m.W * x, 2) + dy.hinge(x, 1),
    "hinge": lambda m, x, labels: dy.hinge(m.W * x, labels, 0.3),
    "pick": lambda m, x, labels: dy.pick(m.W * x, labels) + dy.pick(x, labels),
    "pick_batch": lambda m, x, labels: dy.pick_batch(dy.square(x), np.atleast_1d(labels)),
    "rows of matrices": lambda m, x, labels: dy.pick(as_matrix(x), labels),
    "one place": lambda m, x, labels: dy.pick(x, 3) - dy.pick(m.W * x, 0),
    "columns of matrices": lambda m, x, labels: dy.pick(as_matrix(x), 1, 1),
    "ranges": lambda m, x, labels: dy.concatenate([x[1:4], dy.tanh(m.W * x)[0:2]]),
    "ranges of matrices": lambda m, x, labels: dy.reshape(
        dy.pick_range(as_matrix(x), 1, 2, 1), (SIZE,), x.dim()[1]
    ),
    "numbers": lambda m, x, labels: dy.pick(x, 1) * dy.pick(x, labels) * dy.squared_norm(m.b),
    "squared_distance": lambda m, x, labels: (
        dy.squared_distance(m.W * x, m.b) + dy.squared_distance(x, dy.tanh(x))
    ),
    "layer_norm": lambda m, x, labels: dy.layer_norm(dy.tanh(m.W * x), m.b, m.V * m.b),
    "dot_product": lambda m, x, labels: dy.dot_product(x, dy.tanh(x)),
    "squared_norm": lambda m, x, labels: dy.squared_norm(m.W * x) + dy.squared_norm(x),
    "reshape": lambda m, x, labels: dy.reshape(dy.reshape(x, (1, SIZE)), (SIZE,), x.dim()[1]),
}


def run(m, program, xs, labels, is_batched):
    """Return the outputs, and the gradients of inputs and parameters, of `program` on every x."""
    dy.renew_cg()
    inputs = [dy.inputTensor(x, batched=is_batched) for x in xs]
    outs = [program(m, x, y) for x, y in zip(inputs, labels)]
    width = outs[0].dim()[0][0]
    weights = dy.inputTensor(np.linspace(0.3, 1, width))
    heads = [
        dy.sum_batches(
            dy.sum_elems(dy.cmult(dy.reshape(dy.sqrt(dy.square(out) + 1), (width,), out.dim()[1]), weights))
        )
        for out in outs
    ]
    dy.esum(heads).backward(full=True)
    parameters = m.collection.parameters_list()
    return (
        [out.npvalue() for out in outs],
        [x.gradient() for x in inputs],
        [p.grad_as_array() for p in parameters],
    )


@walks(product([2, 7], PROGRAMS), family=lambda batch, name: batch)
def test_programs(batch, name):
    m, draw, count = Model(), np.random.RandomState(1), 3
    xs = [draw.uniform(-1, 1, (SIZE, batch)) for _ in range(count)]
    labels = draw.randint(0, HIDDEN, (count, batch)).tolist()
    values, gradients, weights = run(m, PROGRAMS[name], xs, labels, is_batched=True)
    for p in m.collection.parameters_list():
        p.scale_gradient(0)
    singles = [x[:, k] for x in xs for k in range(batch)]
    picked = [label for some in labels for label in some]
    expected = run(m, PROGRAMS[name], singles, picked, is_batched=False)
    for k in range(count):
        own = slice(k * batch, (k + 1) * batch)
        np.testing.assert_allclose(
            values[k], np.stack(expected[0][own], -1).reshape(values[k].shape), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(gradients[k], np.stack(expected[1][own], -1), rtol=1e-4, atol=1e-5)
    for found, wanted in zip(weights, expected[2]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_elements_of_minibatches():
    """Some that lie side by side, and some that do not; what they are is seen by others, too."""
    array = np.arange(12.0).reshape(3, 4)
    xs = [dy.inputTensor(array * k, batched=True) for k in (1, 2, 3)]
    ys = [dy.square(x) for x in xs]
    places = [[2], [1, 2, 3], [3, 0, 0]]
    found = [[dy.pick_batch_elems(y, some) for some in places] for y in ys]
    for k, parts in enumerate(found, 1):
        for some, part in zip(places, parts):
            expected = (array * k)[:, some] ** 2
            assert part.dim() == ((3,), len(some))
            np.testing.assert_array_equal(part.npvalue(), expected[:, 0] if len(some) == 1 else expected)
    dy.esum([dy.sum_batches(dy.sum_elems(part)) for parts in found for part in parts]).backward(full=True)
    uses = np.array([2, 1, 2, 2])
    for k, x in enumerate(xs, 1):
        np.testing.assert_array_equal(x.gradient(), 2 * k * array * uses)


def test_labels_outlive_nodes_that_are_taken_back():
    """Those of nodes before a checkpoint, and those of nodes that come where others were."""
    x = dy.inputTensor(np.log([[1.0, 2.0], [3.0, 6.0]]), batched=True)
    before = [dy.pick(x, labels) for labels in ([0, 1], [1, 0])]
    dy.cg_checkpoint()
    taken_back = dy.pick(x, [0, 0])
    np.testing.assert_allclose(np.exp(taken_back.npvalue()), [[1, 2]], rtol=1e-6)
    dy.cg_revert()
    after = [dy.pick(x, [1, 1]), dy.pick(x, [1, 0])]
    found = [np.exp(each.npvalue())[0].tolist() for each in (*before, *after)]
    np.testing.assert_allclose(found, [[1, 6], [3, 2], [3, 6], [3, 2]], rtol=1e-6)


def test_labels_of_minibatches_outside():
    x = dy.inputTensor(np.ones((3, 2)), batched=True)
    for function in (dy.pickneglogsoftmax_batch, dy.pick_batch, dy.hinge_batch):
        with pytest.raises(dy.BoundsError, match="3 out of bounds"):
            function(x, [0, 3])
        with pytest.raises(dy.ShapeError):
            function(x, [0, 1, 2]).value()
    with pytest.raises(dy.BoundsError, match="requested element 2"):
        dy.pick_batch_elems(x, [0, 2])
