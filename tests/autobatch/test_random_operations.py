"""Operations that draw numbers, and others that the table of cases leaves out: gradients, batched and not."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy


@pytest.fixture(params=[(e, b) for e in ("python", "auto") for b in (False, True)], autouse=True)
def _engine(request):
    engine, autobatch = request.param
    dy.configure(engine=engine, autobatch=autobatch)
    yield
    dy.configure(engine="auto", autobatch=False)


MASKED = {
    "dropout": lambda x: dy.dropout(x, 0.5),
    "dropout_dim": lambda x: dy.dropout_dim(x, 0, 0.5),
    "dropout_batch": lambda x: dy.dropout_batch(x, 0.5),
    "block_dropout": lambda x: dy.block_dropout(x, 0.5),
}


@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("name", MASKED)
def test_masks_of_values_are_those_of_gradients(name, is_batched):
    array = np.arange(1.0, 25.0).reshape(3, 4, 2)
    xs = [dy.inputTensor(array, batched=is_batched) for _ in range(6)]
    ys = [MASKED[name](x) for x in xs]
    dy.esum([dy.sum_batches(dy.sum_elems(y)) for y in ys]).backward(full=True)
    found = np.stack([x.gradient() for x in xs])
    assert set(found.ravel().tolist()) <= {0.0, 2.0}
    for x, y in zip(xs, ys):
        np.testing.assert_allclose(x.gradient() * array, y.npvalue(), rtol=1e-6)


def test_noise_passes_gradients_on():
    xs = [dy.inputTensor(np.zeros(2000)) for _ in range(2)]
    ys = [dy.noise(x, 0.5) for x in xs]
    dy.esum([dy.sum_elems(y * 3) for y in ys]).backward(full=True)
    np.testing.assert_array_equal(xs[1].gradient(), np.full(2000, 3.0))
    drawn = np.stack([y.npvalue() for y in ys])
    assert drawn.std() == pytest.approx(0.5, rel=0.1)
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.1, "every node draws its own numbers"


def test_gates_with_masks_and_joined_inputs():
    draw = np.random.RandomState(0)
    shapes = {"x": 2, "y": 2, "h": 3, "mx": 4, "mh": 3, "wx": (12, 4), "wh": (12, 3), "b": 12}
    arrays = {name: draw.uniform(-1, 1, shape) for name, shape in shapes.items()}

    def run(function):
        dy.renew_cg()
        x = {name: dy.inputTensor(array) for name, array in arrays.items()}
        gates = function(x, dy.concatenate([x["x"], x["y"]]))
        dy.dot_product(gates, dy.inputTensor(np.linspace(-1, 1, 12))).backward(full=True)
        return [gates.npvalue(), *[each.gradient() for each in x.values()]]

    def spelled(x, joined):
        masked = dy.cmult(joined, x["mx"]), dy.cmult(x["h"], x["mh"])
        return dy.vanilla_lstm_gates(*masked, x["wx"], x["wh"], x["b"])

    weights = ("wx", "wh", "b", "mx", "mh")
    wanted = run(spelled)
    for function in (
        lambda x, joined: dy.vanilla_lstm_gates_dropout(joined, x["h"], *[x[w] for w in weights]),
        lambda x, joined: dy.vanilla_lstm_gates_dropout_concat(
            [x["x"], x["y"]], x["h"], *[x[w] for w in weights]
        ),
    ):
        for one, other in zip(wanted, run(function)):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_rows_of_tables():
    m = dy.ParameterCollection()
    table = m.lookup_parameters_from_numpy(np.arange(8.0).reshape(4, 2))
    row, rows, constant = dy.lookup(table, 1), dy.lookup_batch(table, [3, 1, 3]), dy.lookup(table, 2, False)
    loss = dy.sum_elems(row * 5) + dy.sum_batches(dy.sum_elems(rows)) + dy.sum_elems(constant)
    assert loss.value() == 5 * 5 + (13 + 5 + 13) + 9
    loss.backward()
    np.testing.assert_array_equal(table.grad_as_array(), [[0, 0], [6, 6], [0, 0], [2, 2]])


def test_to_device_is_the_identity():
    x = dy.inputTensor([1.0, 2.0])
    y = dy.to_device(x, "CPU")
    dy.squared_norm(y).backward(full=True)
    assert y.vec_value() == [1.0, 2.0]
    np.testing.assert_array_equal(x.gradient(), [2.0, 4.0])
