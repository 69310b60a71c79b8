import math

import numpy as np
import pytest
import torch

from dpmodule.base import OpError
from dpmodule.ops import get
from dpmodule.ops.distributions import standard_gamma
from dpmodule.ops.spec import Env
from helpers.numeric import environment, gradients, run, shapes, types

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


def check_moments(numbers, mean, variance):
    error = 6 * math.sqrt(variance / numbers.size)
    assert abs(numbers.mean() - mean) < error
    assert abs(numbers.var() / variance - 1) < 0.1


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), CASES)
def test_moments(name, parameters, mean, variance):
    numbers = run(f"_random_{name}", shape=(N,), env=environment(seed=1), **parameters)
    assert numbers.dtype == np.float32
    check_moments(numbers, mean, variance)


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), CASES)
def test_one_block_for_each_parameter(name, parameters, mean, variance):
    op = get(f"_sample_{name}")
    values = [np.array([v, v], "float32") for v in parameters.values()]
    out = run(op.name, *values, shape=(N,), env=environment(seed=2))
    assert out.shape == (2, N)
    check_moments(out[0], mean, variance)
    assert not np.array_equal(out[0], out[1])
    assert shapes(op.name, *[(2,)] * len(values), shape=(N,))[1] == [(2, N)]


@pytest.mark.parametrize("name", sorted({c[0] for c in CASES}))
def test_like(name):
    out = run(f"_random_{name}_like", np.zeros((3, 4)), env=environment(seed=3))
    assert (out.shape, out.dtype) == ((3, 4), np.float64)


def test_parameters_go_to_their_own_block():
    out = run(
        "_sample_normal", np.array([0.0, 100.0]), np.array([1.0, 0.1]), shape=(2, 50), env=environment(seed=4)
    )
    assert out.shape == (2, 2, 50)
    assert abs(out[0].mean()) < 1
    assert abs(out[1].mean() - 100) < 0.1


def test_one_seed_repeats():
    first = run("_random_normal", shape=(5,), env=environment(seed=5))
    np.testing.assert_array_equal(run("normal", shape=(5,), env=environment(seed=5)), first)
    assert not np.array_equal(run("normal", shape=(5,), env=environment(seed=6)), first)


def test_global_generator_is_left_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    for name in sorted({c[0] for c in CASES}):
        run(f"_random_{name}", shape=(5,), env=environment(seed=5))
    run("_shuffle", np.arange(5.0), env=environment(seed=5))
    run("_sample_multinomial", np.ones(3) / 3, env=environment(seed=5))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_type(dtype):
    assert run("_random_uniform", shape=(3,), dtype=dtype, env=environment(seed=1)).dtype == dtype
    assert types("_random_uniform", dtype=dtype)[1] == [dtype]
    assert types("_random_uniform", dtype="None")[1] == ["float32"]


@pytest.mark.parametrize("name", ["uniform", "normal", "exponential", "gamma"])
def test_doubles_are_drawn_as_such(name):
    drawn = run(f"_random_{name}", shape=(100,), dtype="float64", env=environment(seed=1))
    assert drawn.dtype == np.float64
    assert (drawn != drawn.astype(np.float32)).any()


def test_shape_is_completed_by_inference():
    assert shapes("_random_uniform", shape=(0, 3), outs=[(4, 0)])[1] == [(4, 3)]
    assert shapes("_random_uniform", outs=[(4, 3)])[1] == [(4, 3)]
    env = environment(seed=1)
    op = get("_random_uniform")
    out = op.run(op.parse({"shape": (0, 3)}), Env(env.device, env.generator, True, ((4, 3),)))
    assert out.shape == (4, 3)
    with pytest.raises(OpError, match="expected known positive dimensions"):
        run("_random_uniform", shape=(0, 3), env=env)
    with pytest.raises(OpError, match="expected known positive dimensions"):
        run("_random_uniform", env=env)


def test_integers():
    out = run("_random_randint", low=-2, high=3, shape=(1000,), env=environment(seed=1))
    assert out.dtype == np.int32
    assert sorted(set(out)) == [-2, -1, 0, 1, 2]
    assert (
        run("random_randint", low=0, high=5, shape=3, dtype="int64", env=environment(seed=1)).dtype
        == np.int64
    )
    with pytest.raises(OpError, match="low is 5, expected less than high 5"):
        run("_random_randint", low=5, high=5, shape=(1,), env=environment(seed=1))


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("uniform", {"low": 2, "high": 1}, "low is 2"),
        ("normal", {"scale": -1}, "scale is -1"),
        ("poisson", {"lam": -1}, "lam is -1"),
        ("negative_binomial", {"p": 0}, "p is 0"),
        ("negative_binomial", {"p": 1.5}, "p is 1.5"),
    ],
)
def test_impossible_parameters(name, parameters, text):
    with pytest.raises(OpError, match=text):
        run(f"_random_{name}", shape=(1,), env=environment(seed=1), **parameters)


def test_gamma_of_impossible_shapes_ends():
    alpha = torch.tensor([0.0, -1.0, float("nan"), float("inf"), 2.0])
    out = standard_gamma(alpha, torch.Generator().manual_seed(0))
    assert out[0] == 0
    assert out[1:4].isnan().all()
    assert out[4] > 0


def test_multinomial():
    p = np.array([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5]])
    out = run("_sample_multinomial", p, shape=(N,), env=environment(seed=1))
    assert (out.shape, out.dtype) == ((2, N), np.int32)
    share = np.stack([np.bincount(row, minlength=3) / N for row in out])
    np.testing.assert_allclose(share, p, atol=0.02)


def test_multinomial_shapes():
    assert run("_sample_multinomial", np.ones(3), env=environment(seed=1)).shape == (1,)
    assert shapes("_sample_multinomial", (3,))[1] == [(1,)]
    assert shapes("_sample_multinomial", (2, 3))[1] == [(2,)]
    assert shapes("_sample_multinomial", (2, 3), shape=(4, 5))[1] == [(2, 4, 5)]


def test_multinomial_log_probability():
    p = np.array([[0.25, 0.75]])
    out, logs = run("_sample_multinomial", p, shape=(6,), get_prob=True, env=environment(seed=1))
    np.testing.assert_allclose(logs, np.log(p[0][out]))
    assert types("_sample_multinomial", "float64", outs=[None, None], get_prob=True)[1] == [
        "int32",
        "float64",
    ]


def test_shuffle():
    data = np.arange(20.0).reshape(10, 2)
    out = run("shuffle", data, env=environment(seed=1))
    assert not np.array_equal(out, data)
    np.testing.assert_array_equal(out[np.argsort(out[:, 0])], data)
    (grad,) = gradients("shuffle", data, head=out, env=environment(seed=1))
    np.testing.assert_array_equal(grad, data)
