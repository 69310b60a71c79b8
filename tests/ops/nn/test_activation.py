import math

import numpy as np
import pytest
import torch

from dpmodule.ops import get
from helpers.arrays import NAN, f8, randn
from helpers.op_case import (
    OpCase,
    check_gradient,
    environment,
    gradients,
    gradients_test,
    outputs,
    rules_test,
    run,
    values_test,
)
from helpers.walk import walks

DATA = 2 * randn(2, 3, 4)
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772
KINDS = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "softrelu": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
}
LEAKY = {
    "leaky": lambda x: np.where(x > 0, x, 0.3 * x),
    "elu": lambda x: np.where(x > 0, x, 0.3 * (np.exp(x) - 1)),
    "selu": lambda x: SCALE * np.where(x > 0, x, ALPHA * (np.exp(x) - 1)),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
}
test_values = values_test(
    [
        *[("Activation", (DATA,), {"act_type": kind}, formula) for kind, formula in KINDS.items()],
        *[
            ("LeakyReLU", (DATA,), {"act_type": kind, "slope": 0.3}, formula)
            for kind, formula in LEAKY.items()
        ],
        ("Activation", (f8([500, -500]),), {"act_type": "softrelu"}, f8([500, 0])),
        ("Activation", (f8([NAN, -1, 2]),), {"act_type": "relu"}, f8([NAN, 0, 2])),
    ]
)
test_gradients = gradients_test(
    [
        ("LeakyReLU", (DATA,), {"act_type": "selu"}, [SCALE * np.where(DATA > 0, 1, ALPHA + LEAKY["selu"](DATA))]),
        ("Activation", (f8([NAN, -1, 2]),), {"act_type": "relu"}, [[1, 0, 1]]),
    ]
)  # fmt: skip


@walks(
    [((2, 3, 4), (3,)), ((2, 3, 4), (1,)), ((2, 3), (3,)), ((3,), (3,)), ((3,), (1,))]
    + [((3, 4), (3, 4)), ((3, 4, 2, 5), (3, 4))]
)
def test_prelu(shape, slopes):
    data, gamma = randn(*shape), np.random.RandomState(4).uniform(0.1, 0.9, slopes)
    spread = gamma.reshape(gamma.shape + (1,) * (len(shape) - 2)) if len(shape) > 2 else gamma
    found = run("LeakyReLU", data, gamma, act_type="prelu")
    np.testing.assert_allclose(found, np.where(data > 0, data, data * spread))
    check_gradient(OpCase("LeakyReLU", (data, gamma), {"act_type": "prelu"}))


def test_prelu_parameter():
    op = get("LeakyReLU")
    gamma = op.active_inputs(op.parse({"act_type": "prelu"}))[1]
    assert (gamma.name, gamma.kind, gamma.init) == ("gamma", "param", '["Constant", {"value": 0.25}]')
    assert [i.name for i in op.active_inputs(op.parse({}))] == ["data"]


test_shapes = rules_test(
    [
        ("LeakyReLU", [(2, 3, 4), None], {"act_type": "prelu"}, [(2, 3, 4), (3,)], None),
        ("LeakyReLU", [(2, 3, 4), (1,)], {"act_type": "prelu"}, [(2, 3, 4), (1,)], None),
    ]
)


def test_rrelu_draws_slopes_in_training_and_takes_the_middle_otherwise():
    attrs = {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.3}
    data = -np.ones((40, 50))
    out, mask = outputs("LeakyReLU", data, env=environment(seed=1), **attrs)
    np.testing.assert_array_equal(out, -mask)
    assert 0.1 <= mask.min() < 0.11
    assert 0.29 < mask.max() <= 0.3
    np.testing.assert_array_equal(out, run("LeakyReLU", data, env=environment(seed=1), **attrs))
    np.testing.assert_array_equal(gradients("LeakyReLU", data, env=environment(seed=1), **attrs)[0], mask)
    out, mask = outputs("LeakyReLU", f8([-1, 2]), env=environment(False), **attrs)
    np.testing.assert_allclose([out, mask], [[-0.2, 2], [0.2, 1]])


# dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_scale_and_gradient_of_dropout(p):
    n = 40_000
    out = run("Dropout", np.ones(n, "float32"), p=p, env=environment(seed=3))
    kept = out > 0
    np.testing.assert_allclose(out[kept], np.float32(1 / (1 - p)), rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / n)
    (grad,) = gradients("Dropout", np.ones(n, "float32"), p=p, env=environment(seed=3))
    np.testing.assert_allclose(out, grad)


def test_one_generator_repeats_and_moves_on_and_the_global_one_is_left_alone():
    torch.manual_seed(5)
    data, before = np.ones((20, 30), "float32"), torch.get_rng_state()
    drawn = [
        [run("Dropout", data, env=env) for _ in range(2)]
        for env in (environment(seed=7), environment(seed=7))
    ]
    assert not np.array_equal(*drawn[0])
    np.testing.assert_array_equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_is_off_outside_training():
    np.testing.assert_array_equal(run("Dropout", DATA, env=environment(False)), DATA)
    np.testing.assert_array_equal(run("Dropout", DATA, p=0), DATA)
    assert not np.array_equal(run("Dropout", DATA, mode="always", env=environment(False, seed=1)), DATA)


def test_axes_share_one_decision_and_dropping_all_gives_nan():
    out = run("Dropout", np.ones((30, 4, 20)), axes=(1,), env=environment(seed=2))
    assert (out == out[:, :1]).all()
    assert 0 < (out[:, 0] == 0).mean() < 1
    assert np.isnan(run("Dropout", np.ones(10), p=1, env=environment(seed=2))).all()
