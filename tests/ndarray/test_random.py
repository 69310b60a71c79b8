"""Random arrays: shapes, types, places, seeds, and the moments of each distribution."""

import numpy as np
import pytest

import dpmodule as mx

nd = mx.nd


MOMENTS = [
    *(("uniform", (-1, 3), 1, 16 / 12), ("normal", (2, 3), 2, 9), ("exponential", (2.0,), 2, 4)),
    *(("gamma", (3, 2), 6, 12), ("poisson", (4,), 4, 4), ("negative_binomial", (3, 0.5), 3, 6)),
    *(("generalized_negative_binomial", (2, 0.5), 2, 4), ("randint", (0, 10), 4.5, 99 / 12)),
    ("randn", (1, 2), 1, 4),
]


@pytest.mark.parametrize(("name", "parameters", "mean", "variance"), MOMENTS)
def test_moments(name, parameters, mean, variance):
    make = getattr(nd.random, name)
    drawn = make(100, 100, loc=1, scale=2) if name == "randn" else make(*parameters, (100, 100))
    assert drawn.shape == (100, 100)
    values = drawn.asnumpy().astype("float64")
    assert abs(values.mean() - mean) < 5 * np.sqrt(variance / 10_000)
    assert abs(values.var() - variance) < 0.15 * variance


def test_shapes_types_and_places():
    draw, out = nd.random.uniform, nd.zeros((2, 3), ctx=mx.cpu(1))
    assert (draw().shape, draw(0, 1, 2).shape, draw(shape=()).shape) == ((1,), (2,), ())
    made = draw(0, 1, (2,), dtype="float64", ctx=mx.cpu(1))
    assert (made.context, made.dtype) == (mx.cpu(1), np.float64)
    assert nd.random.randint(0, 5).dtype is np.int32
    assert nd.random.randint(0, 5, 2, dtype="int64").dtype is np.int64
    assert nd.random.normal(0, 1, out=out) is out
    assert out.asnumpy().std() > 0


def test_parameters_may_be_arrays():
    low, high = nd.array([0, 10], ctx=mx.cpu(1)), nd.array([1, 20], ctx=mx.cpu(1))
    many = nd.random.uniform(low, high, (500,), ctx=mx.cpu(0))
    assert (nd.random.uniform(low, high).shape, many.shape, many.context) == ((2,), (2, 500), mx.cpu(1))
    values = many.asnumpy()
    assert values[0].max() < 1
    assert values[1].min() >= 10
    assert (nd.random.normal(low, high, (2, 3)).shape, nd.random.exponential(high).shape) == ((2, 2, 3), (2,))


def test_multinomial_and_shuffle():
    drawn = nd.random.multinomial(nd.array([[0, 1, 0], [0, 0, 1]]), shape=(4,))
    np.testing.assert_array_equal(drawn.asnumpy(), [[1] * 4, [2] * 4])
    drawn, logs = nd.random.multinomial(nd.array([0, 1]), get_prob=True)
    assert (drawn.asscalar(), logs.asscalar()) == (1, 0)
    rows = nd.array(np.arange(20).reshape(10, 2))
    mixed = nd.random.shuffle(rows).asnumpy()
    assert (mixed != rows.asnumpy()).any()
    np.testing.assert_array_equal(np.sort(mixed, axis=0), rows.asnumpy())
    assert nd.random.uniform_like(rows).shape == (10, 2)


def test_draws_that_mxnet_refuses_or_makes_up():
    assert nd.random.normal(3, 0, shape=2).asnumpy().tolist() == [3, 3]
    assert nd.random.gamma(1, 0, shape=2).asnumpy().tolist() == [0, 0]
    assert nd.random.multinomial(nd.array([0, 1]), dtype="int64").dtype is np.int64
