import math

import numpy as np
import pytest
import torch

from dpmodule.ops.distributions import standard_gamma
from helpers.arrays import f8
from helpers.op_case import environment, gradients, outputs, rules_test, run, types

N = 40_000

# name, parameters, mean, variance
CASES = [
    ("uniform", {"low": -1.0, "high": 3.0}, 1.0, 16 / 12),
    ("normal", {"loc": 2.0, "scale": 3.0}, 2.0, 9.0),
    ("exponential", {"lam": 4.0}, 0.25, 1 / 16),
    ("gamma", {"alpha": 3.0, "beta": 2.0}, 6.0, 12.0),
    ("gamma", {"alpha": 0.5, "beta": 1.0}, 0.5, 0.5),
    ("poisson", {"lam": 3.0}, 3.0, 3.0),
    ("negative_binomial", {"k": 3, "p": 0.4}, 4.5, 3 * 0.6 / 0.16),
    ("generalized_negative_binomial", {"mu": 3.0, "alpha": 0.4}, 3.0, 6.6),
    ("generalized_negative_binomial", {"mu": 3.0, "alpha": 0.0}, 3.0, 3.0),
]
NAMES = sorted({case[0] for case in CASES})
MULTI = "_sample_multinomial"


def drawn(name, *arrays, seed=1, **attrs):
    return run(name, *arrays, env=environment(seed=seed), **attrs)


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), CASES)
def test_moments(name, parameters, mean, variance):
    alone = drawn(f"_random_{name}", shape=(N,), **parameters)
    assert alone.dtype == np.float32
    blocks = drawn(f"_sample_{name}", *(np.array([v, v], "f4") for v in parameters.values()), shape=(N,))
    assert not np.array_equal(*blocks)
    for numbers in (alone, blocks[0]):
        assert abs(numbers.mean() - mean) < 6 * math.sqrt(variance / numbers.size)
        assert abs(numbers.var() / variance - 1) < 0.1
    like = drawn(f"_random_{name}_like", np.zeros((3, 4)))
    assert (like.shape, like.dtype) == ((3, 4), np.float64)


def test_global_generator_is_left_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for name in NAMES:
        drawn(f"_random_{name}", shape=(5,))
    drawn("_shuffle", np.arange(5.0))
    drawn(MULTI, np.ones(3) / 3)
    assert torch.equal(torch.get_rng_state(), before)


test_types = rules_test(
    *[("_random_uniform", [], {"dtype": kind}, None, [kind]) for kind in ("float16", "float64")],
    ("_random_uniform", [], {"dtype": "None"}, None, ["float32"]),
    (MULTI, ["float64"], {"get_prob": True}, None, ["int32", "float64"]),
    rule=types,
)
test_shapes = rules_test(
    *[(f"_sample_{name}", [(2,)] * len(p), {"shape": (N,)}, None, [(2, N)]) for name, p, *_ in CASES],
    ("_random_uniform", [], {"shape": (0, 3)}, None, [(4, 3)], [(4, 0)]),
    ("_random_uniform", [], {}, None, [(4, 3)], [(4, 3)]),
    (MULTI, [(3,)], {}, None, [(1,)]),
    (MULTI, [(2, 3)], {}, None, [(2,)]),
    (MULTI, [(2, 3)], {"shape": (4, 5)}, None, [(2, 4, 5)]),
)


def test_integers():
    out = drawn("_random_randint", low=-2, high=3, shape=(1000,))
    assert out.dtype == np.int32
    assert sorted(set(out)) == [-2, -1, 0, 1, 2]
    assert drawn("random_randint", low=0, high=5, shape=3, dtype="int64").dtype == np.int64


def test_gamma_of_impossible_shapes_ends():
    alpha = torch.tensor([0.0, -1.0, float("nan"), float("inf"), 2.0])
    out = standard_gamma(alpha, torch.Generator().manual_seed(0))
    assert out[0] == 0 < out[4]
    assert out[1:4].isnan().all()


def test_multinomial():
    p = f8([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5]])
    out = drawn(MULTI, p, shape=(N,))
    assert (out.shape, out.dtype) == ((2, N), np.int32)
    share = np.stack([np.bincount(row, minlength=3) / N for row in out])
    np.testing.assert_allclose(share, p, atol=0.02)
    assert drawn(MULTI, np.ones(3)).shape == (1,)
    out, logs = outputs(MULTI, p[:1], shape=(6,), get_prob=True, env=environment(seed=1))
    np.testing.assert_allclose(logs, np.log(p[0][out]))


def test_shuffle():
    data = np.arange(20.0).reshape(10, 2)
    out = drawn("shuffle", data)
    assert not np.array_equal(out, data)
    np.testing.assert_array_equal(out[np.argsort(out[:, 0])], data)
    (grad,) = gradients("shuffle", data, head=out, env=environment(seed=1))
    np.testing.assert_array_equal(grad, data)


def test_parameters_go_to_their_own_block():
    out = drawn("_sample_normal", f8([0, 100]), f8([1, 0.1]), shape=(2, 50))
    assert out.shape == (2, 2, 50)
    assert abs(out[0].mean()) < 1
    assert abs(out[1].mean() - 100) < 0.1
