"""Random arrays: shapes, types, places, seeds, and the moments of each distribution."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule._devices import generators
from dpmodule.base import ArgumentError, MXNetError, ShapeError

nd = mx.nd


@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (lambda s: nd.random.uniform(-1, 3, s), 1, 16 / 12),
        (lambda s: nd.random.normal(2, 3, s), 2, 9),
        (lambda s: nd.random.randn(*s, loc=1, scale=2), 1, 4),
        (lambda s: nd.random.exponential(2.0, s), 2, 4),
        (lambda s: nd.random.gamma(3, 2, s), 6, 12),
        (lambda s: nd.random.poisson(4, s), 4, 4),
        (lambda s: nd.random.negative_binomial(3, 0.5, s), 3, 6),
        (lambda s: nd.random.generalized_negative_binomial(2, 0.5, s), 2, 4),
        (lambda s: nd.random.randint(0, 10, s), 4.5, 99 / 12),
    ],
    ids=[
        "uniform",
        "normal",
        "randn",
        "exponential",
        "gamma",
        "poisson",
        "negative",
        "generalized",
        "randint",
    ],
)
def test_moments(draw, mean, variance):
    sample = draw((100, 100))
    assert sample.shape == (100, 100)
    values = sample.asnumpy().astype("float64")
    assert abs(values.mean() - mean) < 5 * np.sqrt(variance / 10_000)
    assert abs(values.var() - variance) < 0.15 * variance


def test_shapes_types_and_places():
    assert nd.random.uniform().shape == (1,)
    assert nd.random.uniform(0, 1, 2).shape == (2,)
    assert nd.random.uniform(0, 1, (2,), dtype="float64", ctx=mx.cpu(1)).context == mx.cpu(1)
    assert nd.random.uniform(0, 1, (2,), dtype="float64").dtype is np.float64
    assert nd.random.randint(0, 5).dtype is np.int32
    assert nd.random.randint(0, 5, 2, dtype="int64").dtype is np.int64
    out = nd.zeros((2, 3), ctx=mx.cpu(1))
    assert nd.random.normal(0, 1, out=out) is out
    assert out.asnumpy().std() > 0
    with pytest.raises(ShapeError):
        nd.random.uniform(0, 1, (2,), out=out)


def test_parameters_may_be_arrays():
    low, high = nd.array([0, 10], ctx=mx.cpu(1)), nd.array([1, 20], ctx=mx.cpu(1))
    single = nd.random.uniform(low, high)
    many = nd.random.uniform(low, high, (500,), ctx=mx.cpu(0))
    assert (single.shape, many.shape, many.context) == ((2,), (2, 500), mx.cpu(1))
    values = many.asnumpy()
    assert values[0].max() < 1
    assert values[1].min() >= 10
    assert nd.random.normal(low, high, (2, 3)).shape == (2, 2, 3)
    assert nd.random.exponential(high).shape == (2,)
    with pytest.raises(ArgumentError, match="low is NDArray, high is int"):
        nd.random.uniform(low, 4)
    with pytest.raises(ArgumentError):
        nd.random.uniform("a", 1)
    for wrong in (
        lambda: nd.random.exponential(0),
        lambda: nd.random.uniform(2, 1),
        lambda: nd.random.randint(3, 3),
        lambda: nd.random.randint(low, high),
    ):
        with pytest.raises(MXNetError):
            wrong()


def test_multinomial_and_shuffle():
    drawn = nd.random.multinomial(nd.array([[0, 1, 0], [0, 0, 1]]), shape=(4,))
    np.testing.assert_array_equal(drawn.asnumpy(), [[1] * 4, [2] * 4])
    drawn, logs = nd.random.multinomial(nd.array([0, 1]), get_prob=True)
    assert drawn.asscalar() == 1
    assert logs.asscalar() == 0
    rows = nd.array(np.arange(20).reshape(10, 2))
    mixed = nd.random.shuffle(rows).asnumpy()
    assert (mixed != rows.asnumpy()).any()
    np.testing.assert_array_equal(np.sort(mixed, axis=0), rows.asnumpy())
    assert nd.random.uniform_like(rows).shape == (10, 2)


def test_draws_that_mxnet_refuses_or_makes_up():
    assert nd.random.uniform(shape=()).shape == ()
    assert nd.random.normal(3, 0, shape=2).asnumpy().tolist() == [3, 3]
    assert nd.random.gamma(1, 0, shape=2).asnumpy().tolist() == [0, 0]
    assert nd.random.multinomial(nd.array([0, 1]), dtype="int64").dtype is np.int64
    with pytest.raises(MXNetError, match="probability"):
        nd.random.multinomial(nd.array([-1, 2]))


def test_a_seed_repeats_a_context_and_leaves_the_others():
    def draw(ctx):
        return nd.random.uniform(0, 1, (3,), ctx=ctx).asnumpy()

    generators.seed(7, mx.cpu(1))
    first = draw(mx.cpu(1))
    other = draw(mx.cpu(0))
    generators.seed(7, mx.cpu(1))
    np.testing.assert_array_equal(draw(mx.cpu(1)), first)
    assert (draw(mx.cpu(0)) != other).any()
