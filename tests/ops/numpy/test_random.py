import math

import numpy as np
import pytest
import torch

from dpmodule.base import OpError
from helpers.arrays import f4
from helpers.numpy_draws import DRAWS
from helpers.op_case import environment, gradients, run, shapes, types

N = 40_000


def drawn(name, *arrays, out=None, **attrs):
    outs = shapes(name, [np.shape(x) for x in arrays], **attrs)[1]
    env = environment(seed=1)
    env.out_shapes = tuple(outs)
    return run(name, *arrays, env=env, **attrs)


def check(numbers, mean, variance):
    assert abs(numbers.mean() - mean) < 6 * math.sqrt(variance / numbers.size)
    assert abs(numbers.var() / variance - 1) < 0.1


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), DRAWS)
def test_moments(name, parameters, mean, variance):
    op = f"_npi_{name}"
    numbers = drawn(op, size=(N,), **parameters)
    assert (numbers.shape, numbers.dtype) == ((N,), np.float32)
    check(numbers, mean, variance)
    arrays = [np.full((2, 1), value, "f4") for value in parameters.values()]
    rows = drawn(op, *arrays, size=(2, N // 2), **dict.fromkeys(parameters))
    check(rows, mean, variance)
    assert not np.array_equal(*rows)
    single = drawn(op, size=None, **parameters)
    assert single.shape == ()


@pytest.mark.parametrize("name", ["uniform_n", "normal_n"])
def test_blocks_before_the_shape_of_the_parameters(name):
    first, second = ("low", "high") if "uniform" in name else ("loc", "scale")
    found = drawn(f"_npi_{name}", f4([0, 100]), **{first: None, second: 1.0}, size=(500,))
    assert found.shape == (500, 2)
    assert abs(found.mean(0) - ([0.5, 50.5] if "uniform" in name else [0, 100])).max() < 3


def test_gradients_reach_the_parameters():
    env = environment(seed=1)
    env.out_shapes = ((2, 3),)
    loc, scale = gradients(
        "_npi_normal", np.zeros(3), np.ones((2, 1)), env=env, loc=None, scale=None, dtype="float64"
    )
    np.testing.assert_allclose(loc, [2, 2, 2])
    env = environment(seed=1)
    env.out_shapes = ((2, 3),)
    noise = run("_npi_normal", env=env, loc=0.0, scale=1.0, size=(2, 3), dtype="float64")
    np.testing.assert_allclose(scale, noise.sum(1, keepdims=True))


def test_bernoulli():
    found = drawn("_npi_bernoulli", prob=0.3, logit=None, is_logit=False, size=(N,), dtype="int32")
    assert (found.dtype, set(found)) == ("int32", {0, 1})
    assert abs(found.mean() - 0.3) < 0.02
    logits = drawn("_npi_bernoulli", f4([-100, 100]), prob=None, logit=None, is_logit=True, size=None)
    assert logits.tolist() == [0, 1]


def test_choice():
    found = drawn("_npi_choice", a=5, size=(N,))
    assert (found.dtype, set(found)) == ("int64", set(range(5)))
    assert sorted(drawn("_npi_choice", np.zeros(4), a=None, size=(4,), replace=False)) == [0, 1, 2, 3]
    weighted = drawn("_npi_choice", f4([0, 1, 0]), a=3, size=(2, 2), weighted=True)
    assert weighted.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(OpError, match="at most 3 indices without replacement"):
        drawn("_npi_choice", a=3, size=(4,), replace=False)


def test_multinomial():
    found = drawn("_npi_multinomial", n=20, pvals=(0.2, 0.8), size=(2000,))
    assert (found.shape, found.dtype) == ((2000, 2), np.int64)
    assert (found.sum(1) == 20).all()
    assert abs(found[:, 0].mean() - 4) < 0.3
    assert drawn("_npi_multinomial", f4([0, 1]), n=3, pvals=None).tolist() == [0, 3]


def test_parameters_are_checked_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    with pytest.raises(OpError, match="_npi_normal: scale is -1.0, expected 0 or more"):
        drawn("_npi_normal", loc=0, scale=-1, size=(2,))
    assert torch.equal(torch.get_rng_state(), before)
    assert types("_npi_normal", [], loc=0, scale=1, dtype="float16")[1] == ["float16"]
