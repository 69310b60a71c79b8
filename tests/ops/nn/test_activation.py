import numpy as np
import pytest

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
test_values = values_test(
    ("Activation", (f8([500, -500]),), {"act_type": "softrelu"}, f8([500, 0])),
    ("Activation", (f8([NAN, -1, 2]),), {"act_type": "relu"}, f8([NAN, 0, 2])),
)
test_gradients = gradients_test(("Activation", (f8([NAN, -1, 2]),), {"act_type": "relu"}, [[1, 0, 1]]))


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


test_shapes = rules_test(
    ("LeakyReLU", [(2, 3, 4), None], {"act_type": "prelu"}, [(2, 3, 4), (3,)], None),
    ("LeakyReLU", [(2, 3, 4), (1,)], {"act_type": "prelu"}, [(2, 3, 4), (1,)], None),
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


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_share_scale_and_gradient_of_dropout(p):
    n = 40_000
    out = run("Dropout", np.ones(n, "float32"), p=p, env=environment(seed=3))
    kept = out > 0
    np.testing.assert_allclose(out[kept], np.float32(1 / (1 - p)), rtol=1e-6)
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / n)
    (grad,) = gradients("Dropout", np.ones(n, "float32"), p=p, env=environment(seed=3))
    np.testing.assert_allclose(out, grad)


def test_dropout_is_off_outside_training():
    np.testing.assert_array_equal(run("Dropout", DATA, env=environment(False)), DATA)
    np.testing.assert_array_equal(run("Dropout", DATA, p=0), DATA)
    assert not np.array_equal(run("Dropout", DATA, mode="always", env=environment(False, seed=1)), DATA)


def test_axes_share_one_decision_and_dropping_all_gives_nan():
    out = run("Dropout", np.ones((30, 4, 20)), axes=(1,), env=environment(seed=2))
    assert (out == out[:, :1]).all()
    assert 0 < (out[:, 0] == 0).mean() < 1
    assert np.isnan(run("Dropout", np.ones(10), p=1, env=environment(seed=2))).all()
