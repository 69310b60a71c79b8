import numpy as np
import pytest
import torch

from dpmodule.base import OpError
from dpmodule.ops import get
from helpers.numeric import environment, gradients, run


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
