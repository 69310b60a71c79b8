"""A minibatch gives what its elements give one after the other: values and gradients, of many minibatches at once."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy

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


@pytest.mark.parametrize("batch", [2, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, batch):
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
