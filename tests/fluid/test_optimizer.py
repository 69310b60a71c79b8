"""Optimizers: steps against Paddle's formulas, written out."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid

layers = fluid.layers
STEPS = 4


def adagrad(w, g, s, lr, t):
    s["h"] = s.get("h", 0) + g * g
    return w - lr * g / (np.sqrt(s["h"]) + 1e-6)


def adam(w, g, s, lr, t):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    rate = lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return w - rate * s["m"] / (np.sqrt(s["v"]) + 1e-8)


def momentum(nesterov):
    def step(w, g, s, lr, t):
        s["v"] = 0.9 * s.get("v", 0) + g
        return w - lr * (g + 0.9 * s["v"] if nesterov else s["v"])

    return step


def ftrl(w, g, s, lr, t):
    before = s.get("n", np.zeros_like(w))
    s["n"] = before + g * g
    s["z"] = s.get("z", 0) + g - (np.sqrt(s["n"]) - np.sqrt(before)) / lr * w
    found = (0.01 * np.sign(s["z"]) - s["z"]) / (np.sqrt(s["n"]) / lr + 2 * 0.02)
    return np.where(np.abs(s["z"]) > 0.01, found, 0)


def rmsprop(w, g, s, lr, t):
    s["r"] = 0.95 * s.get("r", 0) + 0.05 * g * g
    return w - lr * g / np.sqrt(s["r"] + 1e-6)


RULES = {
    "SGD": (lambda: fluid.optimizer.SGD(0.1), lambda w, g, s, lr, t: w - lr * g),
    "Momentum": (lambda: fluid.optimizer.Momentum(0.1, 0.9), momentum(False)),
    "Nesterov": (lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True), momentum(True)),
    "Adagrad": (lambda: fluid.optimizer.Adagrad(0.1), adagrad),
    "Adam": (lambda: fluid.optimizer.Adam(0.1), adam),
    "Ftrl": (lambda: fluid.optimizer.Ftrl(0.1, l1=0.01, l2=0.02), ftrl),
    "RMSProp": (lambda: fluid.optimizer.RMSProp(0.1), rmsprop),
    "decay": (
        lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.5)),
        lambda w, g, s, lr, t: w - lr * (g + 0.5 * w),
    ),
}


def line(**attr):
    """Return inputs, loss and parameter of a product of vectors."""
    x, y = layers.data("x", [3]), layers.data("y", [1])
    start = fluid.initializer.NumpyArrayInitializer([[0.3, -0.2, 0.5]])
    out = layers.fc(x, 1, param_attr=fluid.ParamAttr(initializer=start, **attr), bias_attr=False)
    return layers.mean(layers.square_error_cost(out, y))


def trained(steps=STEPS):
    """Train a line on the same batch; return its weights and the batch."""
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    draw = np.random.default_rng(0)
    batch = {"x": draw.normal(size=(6, 3)).astype("float32"), "y": draw.normal(size=(6, 1)).astype("float32")}
    return [executor.run(feed=batch, fetch_list=["fc_0_weight"])[0] for _ in range(steps)], batch


def gradient(w, batch):
    return 2 * ((batch["x"] @ w.T - batch["y"]) * batch["x"]).mean(0, keepdims=True)


@pytest.mark.parametrize("name", RULES)
def test_steps_are_paddles(name):
    make, rule = RULES[name]
    ops, pairs = make().minimize(line())
    found, batch = trained()
    w, state = np.array([[0.3, -0.2, 0.5]]), {}
    for t, one in enumerate(found, 1):
        w = rule(w, gradient(w, batch), state, 0.1, t)
        np.testing.assert_allclose(one, w, rtol=2e-4, atol=2e-6)
    assert [each.parameter.name for each in ops] == ["fc_0_weight"]
    assert [(parameter.name, grad) for parameter, grad in pairs] == [("fc_0_weight", "fc_0_weight@GRAD")]


@pytest.mark.parametrize("how", ["trainable", "no_grad_set", "parameter_list"])
def test_parameters_that_are_not_trained(how):
    loss = line(trainable=how != "trainable", regularizer=fluid.regularizer.L2Decay(0.25))
    other = layers.fc(fluid.default_main_program().var("x"), 1, bias_attr=False)
    chosen = {"no_grad_set": {"fc_0_weight"}} if how == "no_grad_set" else {}
    if how == "parameter_list":
        chosen = {"parameter_list": ["fc_1_weight"]}
    _, pairs = fluid.optimizer.Adam(0.1).minimize(loss + layers.mean(other), **chosen)
    found, _ = trained(2)
    np.testing.assert_allclose(found[-1], [[0.3, -0.2, 0.5]], rtol=1e-6)
    assert [parameter.name for parameter, _ in pairs] == ["fc_1_weight"]


def test_schedules_follow_the_steps():
    fluid.optimizer.SGD(mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)).minimize(line())
    found, batch = trained(3)
    w, rates = np.array([[0.3, -0.2, 0.5]]), []
    for one in found:
        rates.append(float(((w - one) / gradient(w, batch)).mean()))
        w = one
    assert rates[1] / rates[0] == pytest.approx(rates[2] / rates[1], rel=1e-2) == pytest.approx(0.5, rel=1e-2)


def test_rows_that_no_line_has_stay_under_ftrl():
    rows = layers.embedding(layers.data("ids", [1], dtype="int64"), [5, 2], is_sparse=True)
    fluid.optimizer.Ftrl(0.1, l1=0.0).minimize(layers.mean(layers.square(rows)))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    (found,) = executor.run(feed={"ids": [[1], [3]]}, fetch_list=["embedding_0_weight"])
    assert np.isfinite(found).all()


def test_rates_and_decays_of_single_parameters():
    sgd = fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.5))
    sgd.minimize(line(learning_rate=3.0, regularizer=fluid.regularizer.L2Decay(0.25)))
    (found,), batch = trained(1)
    w = np.array([[0.3, -0.2, 0.5]])
    np.testing.assert_allclose(found, w - 0.3 * (gradient(w, batch) + 0.25 * w), rtol=1e-5)
