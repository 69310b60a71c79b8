import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError

S = mx.sym


@pytest.mark.parametrize(
    ("make", "mean", "std"),
    [
        (lambda: S.random.uniform(1, 3, shape=(20000,)), 2, 2 / 12**0.5),
        (lambda: S.random.normal(1, 3, shape=(20000,)), 1, 3),
        (lambda: S.random.poisson(4, shape=(20000,)), 4, 2),
        (lambda: S.random.exponential(2, shape=(20000,)), 2, 2),
        (lambda: S.random.gamma(4, 0.5, shape=(20000,)), 2, 1),
        (lambda: S.random.negative_binomial(3, 0.5, shape=(20000,)), 3, 6**0.5),
        (lambda: S.random.randint(0, 10, shape=(20000,)), 4.5, (99 / 12) ** 0.5),
    ],
)
def test_moments(make, mean, std):
    drawn = make().eval()[0].asnumpy()
    assert drawn.mean() == pytest.approx(mean, abs=0.1)
    assert drawn.std() == pytest.approx(std, rel=0.05)


def test_symbols_as_parameters_draw_for_each_element():
    net = S.random.uniform(S.Variable("low"), S.Variable("high"), shape=(1000,))
    out = net.eval(low=mx.nd.array([0, 10]), high=mx.nd.array([1, 20]))[0].asnumpy()
    assert out.shape == (2, 1000)
    assert (out[0] < 1).all()
    assert (out[1] >= 10).all()
    for make in (S.random.poisson, S.random.exponential, S.random.multinomial, S.random.shuffle):
        assert make(S.Variable("a"), out=None).list_arguments() == ["a"]
    for make in (S.random.normal, S.random.gamma, S.random.negative_binomial):
        assert make(S.Variable("a"), S.Variable("b"), shape=2, out=mx.nd.ones(2)).list_arguments() == [
            "a",
            "b",
        ]
    assert S.random.randint(0, 5, out=3).list_arguments() == []


def test_every_forward_draws_anew_and_the_seed_repeats_it():
    executor = S.random.normal(0, 1, shape=(5,)).bind(mx.cpu(), [])
    mx.random.seed(3)
    one, two = (executor.forward()[0].asnumpy() for _ in range(2))
    mx.random.seed(3)
    assert np.array_equal(executor.forward()[0].asnumpy(), one)
    assert not np.array_equal(one, two)


def test_classes_and_shuffling():
    drawn = S.random.multinomial(S.Variable("p"), shape=(100,), get_prob=False).eval(
        p=mx.nd.array([0, 1, 0])
    )[0]
    assert set(drawn.asnumpy()) == {1}
    assert S.random.multinomial(S.Variable("p")).num_outputs == 2
    rows = S.random.shuffle(S.Variable("x")).eval(x=mx.nd.arange(20))[0].asnumpy()
    assert sorted(rows) == list(range(20))


def test_wrong_parameters():
    with pytest.raises(ArgumentError, match="low is Symbol, high is int"):
        S.random.uniform(S.Variable("a"), 1)
    with pytest.raises(ArgumentError, match="scale is 0"):
        S.random.exponential(0)
    with pytest.raises(AttributeError, match="no operator 'unifrom'; did you mean uniform"):
        S.random.unifrom(0, 1)
    assert "normal" in dir(S.random)
