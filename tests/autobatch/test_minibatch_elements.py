"""A minibatch gives what its elements give one after the other: values and gradients, of many minibatches at once."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")
SIZE, HIDDEN = 5, 4
KINDS = ["VanillaLSTM", "CompactVanillaLSTM", "CoupledLSTM", "FastLSTM", "GRU", "SimpleRNN"]


class Model:
    """Parameters and recurrent networks with drawn values."""

    def __init__(self):
        draw, self.m = np.random.RandomState(0), dy.ParameterCollection()
        self.W, self.V, self.b = (
            self.m.add_parameters(d) for d in ((HIDDEN, SIZE), (HIDDEN, HIDDEN), (HIDDEN,))
        )
        self.networks = {name: getattr(dy, f"{name}Builder")(2, SIZE, HIDDEN, self.m) for name in KINDS}
        for p in self.m.parameters_list():
            p.set_value(draw.uniform(-0.7, 0.7, p.shape()))


def sequence(name):
    def run(m, x, labels):
        states = m.networks[name].initial_state().add_inputs([x, x * 0.5, dy.tanh(x)])
        return dy.concatenate([states[0].output(), states[-1].output(), *states[-1].s()])

    return run


def begun(m, x, labels):
    h = m.W * x
    state = m.networks["VanillaLSTM"].initial_state([h, dy.tanh(h), h * 0.3, dy.square(h)])
    return state.add_input(x).add_input(x * 2).output()


def as_matrix(x):
    return dy.concatenate_cols([x, dy.square(x)])


PROGRAMS = {
    **{name: sequence(name) for name in KINDS},
    "with a beginning": begun,
    "terms": lambda m, x, y: dy.affine_transform([m.b, m.W, x, m.V, dy.tanh(m.W * x)]),
    "fused": lambda m, x, y: dy.cmult(m.W * x, dy.logistic(m.W * x) + m.V * dy.tanh(m.W * x)),
    "columns": lambda m, x, y: dy.tanh(m.W * dy.reshape(x, (SIZE, 1), x.dim()[1])),
    "softmax": lambda m, x, y: dy.softmax(m.W * x) + dy.log_softmax(m.W * x),
    "losses": lambda m, x, y: dy.pickneglogsoftmax(m.W * x, y) + dy.hinge(m.W * x, y, 0.3) + dy.hinge(x, 1),
    "labels": lambda m, x, y: (
        dy.pickneglogsoftmax_batch(x, np.atleast_1d(y)) + dy.pickneglogsoftmax(m.W * x, 2)
    ),
    "pick": lambda m, x, y: (
        dy.pick(m.W * x, y) + dy.pick(x, y) + dy.pick_batch(dy.square(x), np.atleast_1d(y))
    ),
    "rows of matrices": lambda m, x, y: dy.pick(as_matrix(x), y),
    "columns of matrices": lambda m, x, y: dy.pick(as_matrix(x), 1, 1),
    "ranges": lambda m, x, y: dy.concatenate([x[1:4], dy.tanh(m.W * x)[0:2]]),
    "numbers": lambda m, x, y: dy.pick(x, 1) * dy.pick(x, y) * dy.squared_norm(m.b),
    "distances": lambda m, x, y: dy.squared_distance(m.W * x, m.b) + dy.dot_product(x, dy.tanh(x)),
    "layer_norm": lambda m, x, y: dy.layer_norm(dy.tanh(m.W * x), m.b, m.V * m.b),
}


def run(m, program, xs, labels, is_batched):
    """Return the outputs, and the gradients of inputs and parameters, of `program` on every x."""
    dy.renew_cg()
    inputs = [dy.inputTensor(x, batched=is_batched) for x in xs]
    outs = [program(m, x, y) for x, y in zip(inputs, labels)]
    (width, *_), _ = outs[0].dim()
    weights = dy.inputTensor(np.linspace(0.3, 1, width))
    curved = [dy.sqrt(dy.square(dy.reshape(out, (width,), out.dim()[1])) + 1) for out in outs]
    dy.esum([dy.sum_batches(dy.sum_elems(dy.cmult(each, weights))) for each in curved]).backward(full=True)
    found = (
        dy.npvalues(outs),
        [x.gradient() for x in inputs],
        [p.grad_as_array() for p in m.m.parameters_list()],
    )
    m.m.reset_gradient()
    return found


@walks([(batch, name) for batch in (2, 7) for name in PROGRAMS], family=lambda batch, name: batch)
def test_programs(batch, name):
    m, draw, count = Model(), np.random.RandomState(1), 3
    xs = [draw.uniform(-1, 1, (SIZE, batch)) for _ in range(count)]
    labels = draw.randint(0, HIDDEN, (count, batch))
    values, gradients, weights = run(m, PROGRAMS[name], xs, labels.tolist(), is_batched=True)
    singles = [x[:, k] for x in xs for k in range(batch)]
    expected = run(m, PROGRAMS[name], singles, labels.ravel().tolist(), is_batched=False)
    for k in range(count):
        own = slice(k * batch, (k + 1) * batch)
        wanted = np.stack(expected[0][own], -1).reshape(values[k].shape)
        np.testing.assert_allclose(values[k], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradients[k], np.stack(expected[1][own], -1), rtol=1e-4, atol=1e-5)
    for found, wanted in zip(weights, expected[2]):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_elements_of_minibatches():
    """Some that lie side by side, and some that do not; others see what they are, too."""
    array = np.arange(12.0).reshape(3, 4)
    xs = [dy.inputTensor(array * k, batched=True) for k in (1, 2, 3)]
    places = [[2], [1, 2, 3], [3, 0, 0]]
    found = [[dy.pick_batch_elems(dy.square(x), some) for some in places] for x in xs]
    for k, parts in enumerate(found, 1):
        for some, part in zip(places, parts):
            assert part.dim() == ((3,), len(some))
            np.testing.assert_array_equal(part.npvalue(), ((array * k)[:, some] ** 2).squeeze())
    dy.esum([dy.sum_batches(dy.sum_elems(part)) for parts in found for part in parts]).backward(full=True)
    for k, x in enumerate(xs, 1):
        np.testing.assert_array_equal(x.gradient(), 2 * k * array * [2, 1, 2, 2])


def test_labels_outlive_nodes_that_are_taken_back():
    """Those of nodes before a checkpoint, and those of nodes that come where others were."""
    x = dy.inputTensor(np.log([[1.0, 2.0], [3.0, 6.0]]), batched=True)
    before = [dy.pick(x, labels) for labels in ([0, 1], [1, 0])]
    dy.cg_checkpoint()
    np.testing.assert_allclose(np.exp(dy.pick(x, [0, 0]).npvalue()), [[1, 2]], rtol=1e-6)
    dy.cg_revert()
    found = [np.exp(each.npvalue())[0] for each in (*before, dy.pick(x, [1, 1]), dy.pick(x, [1, 0]))]
    np.testing.assert_allclose(found, [[1, 6], [3, 2], [3, 6], [3, 2]], rtol=1e-6)
