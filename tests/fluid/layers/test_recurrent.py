"""Recurrent layers of fluid, against loops over the steps."""

import numpy as np
import pytest

import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

layers = fluid.layers
ROWS = [3, 0, 1, 4]
START = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.7))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def gru_step(x, h, weight, bias, origin_mode):
    """Return the state, the reset state, and gates with candidate."""
    units = h.shape[-1]
    x = x + bias
    update, reset = np.split(sigmoid(x[..., : 2 * units] + h @ weight[: 2 * units].T), 2, -1)
    candidate = np.tanh(x[..., 2 * units :] + (reset * h) @ weight[2 * units :].T)
    kept, new = (h, candidate) if origin_mode else (candidate, h)
    return update * kept + (1 - update) * new, reset * h, np.concatenate([update, reset, candidate], -1)


@pytest.mark.parametrize(("is_reverse", "origin_mode", "starts"), [(False, True, True), (True, False, False)])
def test_gru_of_sequences(is_reverse, origin_mode, starts):
    x, first = layers.data("x", [6], lod_level=1), layers.data("first", [2])
    more = {"h_0": first} if starts else {}
    out = layers.dynamic_gru(x, 2, START, START, is_reverse=is_reverse, origin_mode=origin_mode, **more)
    given, begin = [numbers(n, 6, seed=n) for n in ROWS], numbers(4, 2)
    (found,) = run({"x": given, **({"first": begin} if starts else {})}, [out], return_numpy=False)
    weight, bias = values("gru_0_weight", "gru_0_bias")
    for i, row in enumerate(given):
        h, steps = begin[i] if starts else np.zeros(2), []
        for step in row[::-1] if is_reverse else row:
            h = gru_step(step, h, weight, bias, origin_mode)[0]
            steps.append(h)
        wanted = np.reshape(steps[::-1] if is_reverse else steps, (-1, 2))
        np.testing.assert_allclose(found[i].asnumpy().reshape(-1, 2), wanted, rtol=1e-4, atol=1e-5)
    assert (out.shape, out.lod_level) == ((-1, 2), 1)


@pytest.mark.parametrize("origin_mode", [False, True])
def test_one_step_of_a_gru(origin_mode):
    outs = layers.gru_unit(
        layers.data("x", [6]), layers.data("h", [2]), 6, START, START, origin_mode=origin_mode
    )
    feed = {"x": numbers(3, 6), "h": numbers(3, 2)}
    found = run(feed, list(outs))
    wanted = gru_step(feed["x"], feed["h"], *values("gru_unit_0_weight", "gru_unit_0_bias"), origin_mode)
    for variable, one, other in zip(outs, found, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert variable.shape == (-1, other.shape[1])


def test_one_step_of_an_lstm():
    x, h, c = (layers.data(name, [width]) for name, width in (("x", 3), ("h", 2), ("c", 2)))
    outs = layers.lstm_unit(x, h, c, forget_bias=0.5, param_attr=START, bias_attr=START)
    feed = {"x": numbers(4, 3), "h": numbers(4, 2), "c": numbers(4, 2, seed=1)}
    found = run(feed, list(outs))
    weight, bias = values("lstm_unit_0_map_weight", "lstm_unit_0_map_bias")
    gates = np.split(np.concatenate([feed["x"], feed["h"]], 1) @ weight.T + bias, 4, 1)
    cell = sigmoid(gates[1] + 0.5) * feed["c"] + sigmoid(gates[0]) * np.tanh(gates[3])
    np.testing.assert_allclose(found[1], cell, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0], sigmoid(gates[2]) * np.tanh(cell), rtol=1e-4, atol=1e-5)


def test_a_session_model_trains():
    """Predict the next item from items so far, as gru4rec does."""
    items = layers.data("items", [1], dtype="int64", lod_level=1)
    following = layers.data("following", [1], dtype="int64", lod_level=1)
    embedded = layers.embedding(items, [20, 8], is_sparse=True)
    states = layers.dynamic_gru(layers.fc(embedded, 3 * 16), 16)
    prediction = layers.fc(states, 20, act="softmax")
    loss = layers.mean(layers.cross_entropy(prediction, following))
    fluid.optimizer.Adam(0.02).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    draw, losses = np.random.default_rng(0), []
    for _ in range(40):
        rows = [(draw.integers(20) + np.arange(n + 1)) % 20 for n in draw.integers(1, 7, 16)]
        feed = {"items": [row[:-1] for row in rows], "following": [row[1:] for row in rows]}
        losses.append(executor.run(feed=feed, fetch_list=[loss])[0][0])
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
