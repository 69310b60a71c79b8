"""Densities: shapes, integrals, and samples without a gradient; distinct numbers from Zipf's law."""

import math

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.op_case import gradients, run, shapes

DENSITIES = {"normal": (0.5, 1.5), "gamma": (2.0, 1.5), "exponential": (0.8,)}


@pytest.mark.parametrize("name", DENSITIES)
def test_a_density_has_the_integral_one(name):
    low = -15.0 if name == "normal" else 1e-6
    x = np.linspace(low, 25, 20001)[None]
    found = run(f"_random_pdf_{name}", x, *[np.array([p]) for p in DENSITIES[name]])
    integral = ((found[0, 1:] + found[0, :-1]) / 2 * np.diff(x[0])).sum()
    assert integral == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("poisson", (2.5,)), ("negative_binomial", (3.0, 0.4)), ("generalized_negative_binomial", (2.0, 0.5))],
)
def test_chances_of_counts_add_up_to_one(name, parameters):
    x = np.arange(200.0)[None]
    values = [np.array([p]) for p in parameters]
    assert run(f"_random_pdf_{name}", x, *values).sum() == pytest.approx(1)
    assert (gradients(f"_random_pdf_{name}", x, *values)[0] == 0).all()


def test_logarithms():
    x, rate = np.array([[0.5, 2.0]]), np.array([3.0])
    plain, logarithm = (run("_random_pdf_exponential", x, rate, is_log=log) for log in (False, True))
    np.testing.assert_allclose(np.log(plain), logarithm)


@pytest.mark.parametrize("sample", [(2,), (2, 5), (2, 5, 6)])
def test_the_sample_may_have_further_axes(sample):
    assert shapes("_random_pdf_normal", [sample, (2,), (2,)])[1] == [sample]
    assert mx.nd.random_pdf_normal(mx.nd.ones(sample), mx.nd.ones((2,)), mx.nd.ones((2,))).shape == sample


def test_the_last_axis_of_dirichlet_is_one_draw():
    assert shapes("_random_pdf_dirichlet", [(2, 5, 3), (2, 3)])[1] == [(2, 5)]
    with pytest.raises(ShapeError, match="first"):
        shapes("_random_pdf_dirichlet", [(2, 5, 3), (2, 4)])


def test_parameters_must_be_the_first_axes():
    with pytest.raises(ShapeError, match="first"):
        mx.nd.random_pdf_poisson(mx.nd.ones((3, 2)), mx.nd.ones((2,)))


def test_distinct_numbers():
    mx.random.seed(3)
    drawn, tries = mx.nd._internal._sample_unique_zipfian(50, shape=(40, 20))
    assert (drawn.shape, drawn.dtype, tries.shape, tries.dtype) == ((40, 20), np.int64, (40,), np.int64)
    rows = drawn.asnumpy()
    assert rows.min() >= 0
    assert rows.max() < 50
    assert all(len(set(row)) == 20 for row in rows)
    assert (tries.asnumpy() >= 20).all()


def test_the_first_of_distinct_numbers_follow_zipf():
    mx.random.seed(5)
    drawn, tries = mx.nd._internal._sample_unique_zipfian(9, shape=(4000, 1))
    assert (tries.asnumpy() == 1).all()
    # rounding gives the first and the last half a number less and more
    edges = np.log(np.append(np.arange(9) + 0.5, 9.5).clip(1)) / math.log(10)
    chances = np.diff(edges)
    chances[-1] += 1 - edges[-1]
    counts = np.bincount(drawn.asnumpy()[:, 0], minlength=9) / 4000
    np.testing.assert_allclose(counts[1:8], chances[1:8], atol=0.03)


def test_too_many_distinct_numbers_are_refused():
    with pytest.raises(OpError, match="at most 3"):
        mx.nd._internal._sample_unique_zipfian(3, shape=(1, 4))


def test_zipfian_classes_with_expected_counts():
    mx.random.seed(1)
    true = mx.nd.array([0, 4])
    drawn, of_true, of_drawn = mx.nd.contrib.rand_zipfian(true, 2000, 10)
    assert (drawn.dtype, of_true.dtype, of_drawn.shape) == (np.int64, np.float64, (2000,))
    expected = np.log((true.asnumpy() + 2) / (true.asnumpy() + 1)) / math.log(11) * 2000
    np.testing.assert_allclose(of_true.asnumpy(), expected, rtol=1e-6)
    counts = np.bincount(drawn.asnumpy(), minlength=10)[[0, 4]]
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()
    symbols = mx.sym.contrib.rand_zipfian(mx.sym.var("true"), 5, 10)
    found = mx.sym.Group(list(symbols)).bind(mx.cpu(), {"true": true}).forward()
    np.testing.assert_allclose(found[1].asnumpy(), expected / 400, rtol=1e-6)
    numbers = found[0].asnumpy()
    np.testing.assert_allclose(found[2].asnumpy(), np.log((numbers + 2) / (numbers + 1)) / math.log(11) * 5)
