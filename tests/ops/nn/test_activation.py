import math

import numpy as np
import pytest
import torch

from dpmodule.base import OpError
from dpmodule.ops import get
from helpers.numeric import check_gradients, environment, gradients, run, shapes

rng = np.random.RandomState(5)
DATA = rng.randn(2, 3, 4) * 2
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("relu", lambda x: np.maximum(x, 0)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("tanh", np.tanh),
        ("softrelu", lambda x: np.log1p(np.exp(x))),
        ("softsign", lambda x: x / (1 + np.abs(x))),
    ],
)
def test_activation(kind, formula):
    np.testing.assert_allclose(run("Activation", DATA, act_type=kind), formula(DATA), rtol=1e-9)
    check_gradients("Activation", DATA, act_type=kind)


def test_softrelu_of_large_numbers():
    out = run("Activation", np.array([500.0, -500.0]), act_type="softrelu")
    np.testing.assert_allclose(out, [500.0, 0.0], atol=1e-12)


def test_unknown_kind():
    with pytest.raises(OpError, match="act_type is 'swish', expected one of relu"):
        get("Activation").parse({"act_type": "swish"})


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("leaky", lambda x: np.where(x > 0, x, 0.3 * x)),
        ("elu", lambda x: np.where(x > 0, x, 0.3 * (np.exp(x) - 1))),
        ("selu", lambda x: SCALE * np.where(x > 0, x, ALPHA * (np.exp(x) - 1))),
        ("gelu", lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
    ],
)
def test_leaky_relu(kind, formula):
    np.testing.assert_allclose(run("LeakyReLU", DATA, act_type=kind, slope=0.3), formula(DATA), rtol=1e-9)
    if kind != "selu":
        check_gradients("LeakyReLU", DATA, act_type=kind, slope=0.3)


def test_selu_has_the_gradient_of_mxnet():
    out = run("LeakyReLU", DATA, act_type="selu")
    (grad,) = gradients("LeakyReLU", DATA, act_type="selu")
    np.testing.assert_allclose(grad, np.where(DATA > 0, SCALE, SCALE * (ALPHA + out)))


@pytest.mark.parametrize(
    ("shape", "count"), [((2, 3, 4), 3), ((2, 3, 4), 1), ((2, 3), 3), ((3,), 3), ((3,), 1)]
)
def test_prelu(shape, count):
    data, gamma = rng.randn(*shape), rng.rand(count)
    spread = gamma if len(shape) < 3 else gamma.reshape(1, -1, 1)
    out = run("LeakyReLU", data, gamma, act_type="prelu")
    np.testing.assert_allclose(out, np.where(data > 0, data, data * spread))
    check_gradients("LeakyReLU", data, gamma, wanted=(0, 1), act_type="prelu")


def test_prelu_parameter():
    op = get("LeakyReLU")
    gamma = op.active_inputs(op.parse({"act_type": "prelu"}))[1]
    assert (gamma.name, gamma.kind, gamma.init) == ("gamma", "param", '["Constant", {"value": 0.25}]')
    assert [i.name for i in op.active_inputs(op.parse({}))] == ["data"]
    assert shapes("LeakyReLU", (2, 3, 4), None, act_type="prelu")[0] == [(2, 3, 4), (3,)]
    assert shapes("LeakyReLU", (2, 3, 4), (1,), act_type="prelu")[0] == [(2, 3, 4), (1,)]


def test_rrelu_draws_slopes_in_training():
    data = -np.ones((40, 50))
    attrs = {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.3}
    out, mask = run("LeakyReLU", data, env=environment(seed=1), **attrs)
    np.testing.assert_array_equal(out, -mask)
    assert 0.1 <= mask.min() < 0.11
    assert 0.29 < mask.max() <= 0.3
    again, _ = run("LeakyReLU", data, env=environment(seed=1), **attrs)
    np.testing.assert_array_equal(out, again)
    (grad,) = gradients("LeakyReLU", data, env=environment(seed=1), **attrs)
    np.testing.assert_array_equal(grad, mask)


def test_rrelu_takes_the_middle_otherwise():
    attrs = {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.3}
    out, mask = run("LeakyReLU", np.array([-1.0, 2.0]), env=environment(False), **attrs)
    np.testing.assert_allclose(out, [-0.2, 2.0])
    np.testing.assert_allclose(mask, [0.2, 1.0])


def test_bound_function_is_torchs_own():
    op = get("Activation")
    assert op.bind(op.parse({"act_type": "relu"})) is torch.relu


@pytest.mark.parametrize("dims", [(3, 4), (3, 4, 2, 5)])
def test_prelu_with_a_slope_for_each_sample(dims):
    rng = np.random.RandomState(4)
    data, gamma = rng.uniform(-1, 1, dims), rng.uniform(0.1, 0.9, (3, 4))
    slopes = gamma.reshape(gamma.shape + (1,) * (len(dims) - 2))
    found = run("LeakyReLU", data, gamma, act_type="prelu")
    np.testing.assert_allclose(found, np.where(data > 0, data, data * slopes))
    check_gradients("LeakyReLU", data, gamma, wanted=(0, 1), act_type="prelu")


def test_relu_keeps_nan_and_lets_gradients_through_there():
    data = np.array([np.nan, -1.0, 2.0])
    np.testing.assert_array_equal(run("Activation", data, act_type="relu"), [np.nan, 0, 2])
    np.testing.assert_array_equal(gradients("Activation", data, act_type="relu")[0], [1, 0, 1])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_scale(p):
    n = 40_000
    out = run("Dropout", np.ones(n, "float32"), p=p, env=environment(seed=3))
    kept = out > 0
    np.testing.assert_allclose(out[kept], np.float32(1 / (1 - p)), rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / n)


def test_one_generator_repeats_and_moves_on():
    data = np.ones((20, 30), "float32")
    env = environment(seed=7)
    first, second = run("Dropout", data, env=env), run("Dropout", data, env=env)
    assert not np.array_equal(first, second)
    env = environment(seed=7)
    np.testing.assert_array_equal(run("Dropout", data, env=env), first)
    np.testing.assert_array_equal(run("Dropout", data, env=env), second)


def test_global_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run("Dropout", np.ones(100), env=environment(seed=7))
    assert torch.equal(torch.get_rng_state(), before)


def test_gradient_is_the_mask():
    data = np.full((20, 30), 2.0)
    out = run("Dropout", data, p=0.3, env=environment(seed=9))
    (grad,) = gradients("Dropout", data, p=0.3, env=environment(seed=9))
    np.testing.assert_allclose(out, grad * 2.0)


def test_off_outside_training():
    data = np.random.RandomState(0).randn(3, 4)
    np.testing.assert_array_equal(run("Dropout", data, env=environment(False)), data)
    np.testing.assert_array_equal(run("Dropout", data, p=0), data)
    assert not np.array_equal(run("Dropout", data, mode="always", env=environment(False, seed=1)), data)


def test_axes_share_one_decision():
    out = run("Dropout", np.ones((30, 4, 20)), axes=(1,), env=environment(seed=2))
    assert (out == out[:, :1]).all()
    assert 0 < (out[:, 0] == 0).mean() < 1


def test_dropping_all_gives_nan():
    assert np.isnan(run("Dropout", np.ones(10), p=1, env=environment(seed=2))).all()


def test_p_is_a_share():
    with pytest.raises(OpError, match="p is 1.5, expected a number from 0 to 1"):
        get("Dropout").parse({"p": 1.5})
    assert get("Dropout").parse({"p": "0.25"}).p == 0.25
