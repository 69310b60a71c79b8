"""Optimizers: steps against Paddle's formulas, written out."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, StateError

layers = fluid.layers
STEPS = 4


def adagrad(epsilon):
    def step(w, g, s, lr, t):
        s["h"] = s.get("h", 0) + g * g
        return w - lr * g / (np.sqrt(s["h"]) + epsilon)

    return step


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


def adamax(w, g, s, lr, t):
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["u"] = np.maximum(0.999 * s.get("u", 0) + 1e-8, np.abs(g))
    return w - lr / (1 - 0.9**t) * s["m"] / s["u"]


def ftrl(w, g, s, lr, t):
    before = s.get("n", np.zeros_like(w))
    s["n"] = before + g * g
    s["z"] = s.get("z", 0) + g - (np.sqrt(s["n"]) - np.sqrt(before)) / lr * w
    found = (0.01 * np.sign(s["z"]) - s["z"]) / (np.sqrt(s["n"]) / lr + 2 * 0.02)
    return np.where(np.abs(s["z"]) > 0.01, found, 0)


def rmsprop(w, g, s, lr, t):
    s["r"] = 0.95 * s.get("r", 0) + 0.05 * g * g
    return w - lr * g / np.sqrt(s["r"] + 1e-6)


def decayed_adagrad(w, g, s, lr, t):
    s["h"] = 0.8 * s.get("h", 0) + 0.2 * g * g
    return w - lr * g / (np.sqrt(s["h"]) + 1e-6)


def adadelta(w, g, s, lr, t):
    s["h"] = 0.9 * s.get("h", 0) + 0.1 * g * g
    step = np.sqrt((s.get("d", 0) + 1e-4) / (s["h"] + 1e-4)) * g
    s["d"] = 0.9 * s.get("d", 0) + 0.1 * step * step
    return w - step


def lamb(decay):
    def step(w, g, s, lr, t):
        s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
        s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
        move = s["m"] / (np.sqrt(s["v"]) + 1e-6) + decay * w
        return w - lr * np.linalg.norm(w) / np.linalg.norm(move) * move

    return step


def lars(w, g, s, lr, t):
    rate = lr * 0.01 * np.linalg.norm(w) / (np.linalg.norm(g) + 0.2 * np.linalg.norm(w))
    s["v"] = 0.9 * s.get("v", 0) + rate * (g + 0.2 * w)
    return w - s["v"]


RULES = {
    "DecayedAdagrad": (lambda: fluid.optimizer.DecayedAdagrad(0.1, 0.8), decayed_adagrad),
    "Adadelta": (lambda: fluid.optimizer.Adadelta(0.1, epsilon=1e-4, rho=0.9), adadelta),
    "Lamb": (lambda: fluid.optimizer.Lamb(0.1, 0.3), lamb(0.3)),
    "Lamb without decay": (
        lambda: fluid.optimizer.Lamb(
            0.1, 0.3, exclude_from_weight_decay_fn=lambda p: p.name == "fc_0_weight"
        ),
        lamb(0.0),
    ),
    "LarsMomentum": (lambda: fluid.optimizer.LarsMomentum(0.1, 0.9, 0.01, 0.2), lars),
    "L1": (
        lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L1Decay(0.5)),
        lambda w, g, s, lr, t: w - lr * (g + 0.5 * np.sign(w)),
    ),
    "order of 1.3": (lambda: fluid.optimizer.Momentum(0.1, 0.9, True), momentum(True)),
    "decay in the order of 1.3": (
        lambda: fluid.optimizer.SGD(0.1, fluid.regularizer.L2Decay(0.5), "sgd"),
        lambda w, g, s, lr, t: w - lr * (g + 0.5 * w),
    ),
    "all in the order of 1.3": (
        lambda: fluid.optimizer.Momentum(0.1, 0.9, True, fluid.regularizer.L2Decay(0.0), "name"),
        momentum(True),
    ),
    "order of 1.8": (
        lambda: fluid.optimizer.SGD(0.1, ["fc_0_weight"], fluid.regularizer.L2Decay(0.5), None, "sgd"),
        lambda w, g, s, lr, t: w - lr * (g + 0.5 * w),
    ),
    "SGD": (lambda: fluid.optimizer.SGD(0.1), lambda w, g, s, lr, t: w - lr * g),
    "Momentum": (lambda: fluid.optimizer.Momentum(0.1, 0.9), momentum(False)),
    "Nesterov": (lambda: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True), momentum(True)),
    "Nesterov, decay": (
        lambda: fluid.optimizer.Momentum(0.1, 0.9, None, True, fluid.regularizer.L2Decay(0.5)),
        lambda w, g, s, lr, t: momentum(True)(w, g + 0.5 * w, s, lr, t),
    ),
    **{
        f"Momentum, schedule, Nesterov {nesterov}": (
            lambda nesterov=nesterov: fluid.optimizer.Momentum(
                layers.piecewise_decay([1, 2], [0.1, 0.01, 0.05]), 0.9, use_nesterov=nesterov
            ),
            lambda w, g, s, lr, t, nesterov=nesterov: momentum(nesterov)(
                w, g, s, [0.1, 0.01, 0.05, 0.05][t - 1], t
            ),
        )
        for nesterov in (False, True)
    },
    "Adagrad": (lambda: fluid.optimizer.Adagrad(0.1), adagrad(1e-6)),
    "Adagrad, large epsilon": (lambda: fluid.optimizer.Adagrad(0.1, 0.5), adagrad(0.5)),
    "Adagrad, decay": (
        lambda: fluid.optimizer.Adagrad(0.1, regularization=fluid.regularizer.L2Decay(0.5)),
        lambda w, g, s, lr, t: adagrad(1e-6)(w, g + 0.5 * w, s, lr, t),
    ),
    "Adam": (lambda: fluid.optimizer.Adam(0.1), adam),
    "Adamax": (lambda: fluid.optimizer.Adamax(0.1), adamax),
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


CLIPS = {
    "value": (lambda: fluid.clip.GradientClipByValue(0.2), lambda g: np.clip(g, -0.2, 0.2)),
    "both": (
        lambda: fluid.clip.GradientClipByValue(np.float32(0.25), np.float32(-0.25)),
        lambda g: np.clip(g, -0.25, 0.25),
    ),
    "norm": (
        lambda: fluid.clip.GradientClipByGlobalNorm(0.3),
        lambda g: g * min(1, 0.3 / np.linalg.norm(g)),
    ),
    "norm of each": (
        lambda: fluid.clip.GradientClipByNorm(0.3),
        lambda g: g * min(1, 0.3 / np.linalg.norm(g)),
    ),
    "high norm": (lambda: fluid.clip.GradientClipByGlobalNorm(1e3), lambda g: g),
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", CLIPS)
def test_limits_of_gradients(name, own):
    make, limited = CLIPS[name]
    if not own:
        fluid.clip.set_gradient_clip(make())
    sgd = fluid.optimizer.Momentum(0.1, 0.9, grad_clip=make() if own else None)
    sgd.minimize(line())
    found, batch = trained()
    w, state = np.array([[0.3, -0.2, 0.5]]), {}
    for t, one in enumerate(found, 1):
        g = gradient(w, batch)
        w = momentum(False)(w, limited(g), state, 0.1, t)
        np.testing.assert_allclose(one, w, rtol=2e-4, atol=2e-6)


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


SCHEDULES = {
    "FactorScheduler": (lambda: mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1), [0.1, 0.05, 0.025]),
    "exponential": (lambda: layers.exponential_decay(0.1, 2, 0.25), [0.1, 0.05, 0.025, 0.0125]),
    "staircase": (lambda: layers.exponential_decay(0.1, 2, 0.5, True), [0.1, 0.1, 0.05, 0.05, 0.025]),
    "natural": (lambda: layers.natural_exp_decay(0.1, 1, 0.5), [0.1 * np.exp(-n / 2) for n in range(4)]),
    "numbers of NumPy": (
        lambda: layers.exponential_decay(np.float32(0.1), np.int64(2), np.float32(0.25)),
        [0.1, 0.05, 0.025],
    ),
    "inverse": (lambda: layers.inverse_time_decay(0.1, 2, 0.5), [0.1 / (1 + n / 4) for n in range(4)]),
    "polynomial": (lambda: layers.polynomial_decay(0.1, 2, 0.02), [0.1, 0.06, 0.02, 0.02]),
    "power": (lambda: layers.polynomial_decay(0.1, 4, 0.02, 2.0), [0.1, 0.065, 0.04, 0.025, 0.02]),
    "cycle": (lambda: layers.polynomial_decay(0.1, 2, 0.02, cycle=True), [0.1, 0.06, 0.02, 0.04, 0.02]),
    "cosine": (lambda: layers.cosine_decay(0.1, 2, 2), [0.1, 0.1, 0.05, 0.05]),
    "noam": (lambda: layers.noam_decay(4, 2, 0.2), [0.1 * 8**-0.5, 0.1 * 2**-0.5, 0.1 * 3**-0.5, 0.05]),
    "piecewise": (lambda: layers.piecewise_decay([1, 3], [0.1, 0.05, 0.02]), [0.1, 0.05, 0.05, 0.02]),
    "warmup": (lambda: layers.linear_lr_warmup(0.1, 2, 0.02, 0.06), [0.02, 0.04, 0.1, 0.1]),
    "two": (
        lambda: layers.linear_lr_warmup(layers.exponential_decay(0.1, 1, 0.5), 2, 0.04, 0.08),
        [0.04, 0.06, 0.025, 0.0125],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_follow_the_steps(name):
    make, expected = SCHEDULES[name]
    fluid.optimizer.SGD(make()).minimize(line())
    found, batch = trained(len(expected))
    w, rates = np.array([[0.3, -0.2, 0.5]]), []
    for one in found:
        rates.append(float(((w - one) / gradient(w, batch)).mean()))
        w = one
    np.testing.assert_allclose(rates, expected, rtol=1e-3)


def test_schedules_replace_default_rates():
    schedule = mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)
    fluid.optimizer.Adam(schedule).minimize(line())
    found, _ = trained(2)
    np.testing.assert_allclose(np.abs(found[0] - [[0.3, -0.2, 0.5]]), 0.1, rtol=1e-3)
    assert schedule(3) == 0.025


def trained_from_lines(path, count):
    """Train the current program with one worker on equal lines; return its weights."""
    program = fluid.default_main_program()
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_batch_size(1)
    dataset.set_use_var([program.var("x"), program.var("y")])
    path.write_text("3 1 2 3 1 1\n" * count)
    dataset.set_filelist([str(path)])
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    executor.train_from_dataset(program, dataset)
    return np.array(fluid.global_scope().find_var("fc_0_weight").get_tensor())


def test_files_train_with_schedules_and_limits(tmp_path):
    limit = fluid.clip.GradientClipByValue(1.0)
    fluid.optimizer.SGD(layers.exponential_decay(0.1, 1, 0.5), grad_clip=limit).minimize(line())
    found = trained_from_lines(tmp_path / "part", 3)
    batch, w = {"x": np.array([[1.0, 2, 3]]), "y": np.array([[1.0]])}, np.array([[0.3, -0.2, 0.5]])
    for rate in (0.1, 0.05, 0.025):
        w = w - rate * np.clip(gradient(w, batch), -1, 1)
    np.testing.assert_allclose(found, w, rtol=1e-4)


@pytest.mark.parametrize("kind", ["GradientClipByGlobalNorm", "GradientClipByNorm"])
def test_workers_limit_norms(kind, tmp_path):
    fluid.optimizer.SGD(0.1, grad_clip=getattr(fluid.clip, kind)(0.5)).minimize(line())
    found = trained_from_lines(tmp_path / "part", 3)
    batch, w = {"x": np.array([[1.0, 2, 3]]), "y": np.array([[1.0]])}, np.array([[0.3, -0.2, 0.5]])
    for _ in range(3):
        step = gradient(w, batch)
        w = w - 0.1 * step * min(1, 0.5 / np.linalg.norm(step))
    np.testing.assert_allclose(found, w, rtol=1e-4)


def test_gradients_that_a_program_applies():
    loss = line()
    pairs = fluid.backward.append_backward(loss)
    assert [(each.name, name) for each, name in pairs] == [("fc_0_weight", "fc_0_weight@GRAD")]
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(0.5))
    fluid.optimizer.SGD(0.1).apply_gradients(fluid.clip.append_gradient_clip_ops(pairs))
    (found,), batch = trained(1)
    w = np.array([[0.3, -0.2, 0.5]])
    step = gradient(w, batch)
    np.testing.assert_allclose(found, w - 0.1 * step * min(1, 0.5 / np.linalg.norm(step)), rtol=1e-4)
    with pytest.raises(StateError, match="call backward"):
        fluid.optimizer.SGD(0.1).apply_gradients([])


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


def test_parameters_and_limits_of_optimizers_and_of_minimize():
    loss = line() + layers.mean(layers.fc(fluid.default_main_program().var("x"), 1, bias_attr=False))
    sgd = fluid.optimizer.SGD(0.1, parameter_list=["fc_1_weight"])
    _, pairs = sgd.minimize(loss, grad_clip=fluid.clip.GradientClipByValue(0.1))
    found, _ = trained(1)
    np.testing.assert_allclose(found[0], [[0.3, -0.2, 0.5]])
    assert [parameter.name for parameter, _ in pairs] == ["fc_1_weight"]


def test_norms_of_single_gradients_of_tables():
    """The norm of a row-sparse gradient is that of its rows; other parameters have limits of their own."""
    start = fluid.initializer.Constant(1.0)
    ids, x = layers.data("ids", [1], dtype="int64"), layers.data("x", [1])
    rows = layers.embedding(ids, [5, 1], is_sparse=True, param_attr=fluid.ParamAttr("table", start))
    out = layers.fc(x, 1, param_attr=fluid.ParamAttr("w", start), bias_attr=False)
    loss = layers.reduce_sum(rows) + layers.reduce_sum(out)
    fluid.optimizer.SGD(1.0, grad_clip=fluid.clip.GradientClipByNorm(0.5)).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"ids": [[1], [1], [3]], "x": [[0.1], [0.1], [0.1]]}
    table, w = executor.run(feed=feed, fetch_list=["table", "w"])
    np.testing.assert_allclose(table[:, 0], 1 - 0.5 * np.array([0, 2, 0, 1, 0]) / 5**0.5, rtol=1e-5)
    np.testing.assert_allclose(w, [[0.7]], rtol=1e-5)


def test_l1_decay_of_single_parameters_is_not_part_of_the_loss():
    loss = line(regularizer=fluid.regularizer.L1Decay(0.25))
    fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(9.0)).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    batch = {"x": np.zeros((2, 3), "f4"), "y": np.ones((2, 1), "f4")}
    value, w = executor.run(feed=batch, fetch_list=[loss, "fc_0_weight"])
    assert value == [1.0]
    np.testing.assert_allclose(w, [[0.275, -0.175, 0.475]], rtol=1e-6)


def test_attributes_of_parameters_in_the_orders_of_both_versions():
    start, decay = fluid.initializer.Constant(2.0), fluid.regularizer.L1Decay(0.1)
    old = fluid.ParamAttr("w", start, 0.5, decay, False, None, True)
    new = fluid.ParamAttr("w", start, 0.5, decay, False, True)
    assert (old.name, old.learning_rate, old.regularizer, old.trainable) == ("w", 0.5, decay, False)
    assert (new.initializer, new.trainable) == (start, False)
    with pytest.raises(
        ArgumentError, match="ParamAttr: gradient_clip is .*, expected None; pass it to an optimizer"
    ):
        fluid.ParamAttr(gradient_clip=fluid.clip.GradientClipByValue(1.0))


@pytest.mark.parametrize("make", [fluid.optimizer.Adagrad, fluid.optimizer.Adam, fluid.optimizer.Adadelta])
def test_settings_are_numbers(make):
    with pytest.raises(ArgumentError, match="of the optimizer is 'a', expected a number"):
        make(0.1, epsilon="a")
