"""Densities: integrals and samples without a gradient; distinct numbers from Zipf's law; values: cases/pdf.py."""

import math

import numpy as np
import pytest

import dpmodule as mx
from helpers.arrays import f8
from helpers.op_case import gradients, rules_test, run

DENSITIES = {"normal": (0.5, 1.5), "gamma": (2.0, 1.5), "exponential": (0.8,)}
COUNTS = {"poisson": (2.5,), "negative_binomial": (3.0, 0.4), "generalized_negative_binomial": (2.0, 0.5)}
NORMAL = "_random_pdf_normal"


@pytest.mark.parametrize("name", DENSITIES)
def test_a_density_has_the_integral_one(name):
    x = np.linspace(-15.0 if name == "normal" else 1e-6, 25, 20001)[None]
    values = [f8([p]) for p in DENSITIES[name]]
    found = run(f"_random_pdf_{name}", x, *values)
    assert ((found[0, 1:] + found[0, :-1]) / 2 * np.diff(x[0])).sum() == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(np.log(found), run(f"_random_pdf_{name}", x, *values, is_log=True), atol=1e-9)


@pytest.mark.parametrize("name", COUNTS)
def test_chances_of_counts_add_up_to_one(name):
    x, values = np.arange(200.0)[None], [f8([p]) for p in COUNTS[name]]
    assert run(f"_random_pdf_{name}", x, *values).sum() == pytest.approx(1)
    assert (gradients(f"_random_pdf_{name}", x, *values)[0] == 0).all()


test_shapes = rules_test(
    [
        *[(NORMAL, [sample, (2,), (2,)], {}, None, [sample]) for sample in [(2,), (2, 5), (2, 5, 6)]],
        ("_random_pdf_dirichlet", [(2, 5, 3), (2, 3)], {}, None, [(2, 5)]),  # the last axis is one draw
    ]
)


@pytest.mark.parametrize("sample", [(2,), (2, 5), (2, 5, 6)])
def test_the_sample_may_have_further_axes(sample):
    assert mx.nd.random_pdf_normal(mx.nd.ones(sample), mx.nd.ones((2,)), mx.nd.ones((2,))).shape == sample


def test_distinct_numbers():
    mx.random.seed(3)
    drawn, tries = mx.nd._internal._sample_unique_zipfian(50, shape=(40, 20))
    assert (drawn.shape, drawn.dtype, tries.shape, tries.dtype) == ((40, 20), np.int64, (40,), np.int64)
    rows = drawn.asnumpy()
    assert 0 <= rows.min() <= rows.max() < 50
    assert all(len(set(row)) == 20 for row in rows)
    assert (tries.asnumpy() >= 20).all()


def test_the_first_of_distinct_numbers_follow_zipf():
    mx.random.seed(5)
    drawn, tries = mx.nd._internal._sample_unique_zipfian(9, shape=(4000, 1))
    assert (tries.asnumpy() == 1).all()
    # rounding gives the first and the last half a number less and more
    edges = np.log(np.append(np.arange(9) + 0.5, 9.5).clip(1)) / math.log(10)
    counts = np.bincount(drawn.asnumpy()[:, 0], minlength=9) / 4000
    np.testing.assert_allclose(counts[1:8], np.diff(edges)[1:8], atol=0.03)


def test_zipfian_classes_with_expected_counts():
    mx.random.seed(1)
    true = mx.nd.array([0, 4])

    def counts(numbers, draws):
        return np.log((numbers + 2) / (numbers + 1)) / math.log(11) * draws

    drawn, of_true, of_drawn = mx.nd.contrib.rand_zipfian(true, 2000, 10)
    expected = counts(true.asnumpy(), 2000)
    assert (drawn.dtype, of_true.dtype, of_drawn.shape) == (np.int64, np.float64, (2000,))
    np.testing.assert_allclose(of_true.asnumpy(), expected, rtol=1e-6)
    found = np.bincount(drawn.asnumpy(), minlength=10)[[0, 4]]
    assert (np.abs(found - expected) < 5 * np.sqrt(expected)).all()
    symbols = mx.sym.contrib.rand_zipfian(mx.sym.var("true"), 5, 10)
    drawn, of_true, of_drawn = mx.sym.Group(list(symbols)).bind(mx.cpu(), {"true": true}).forward()
    np.testing.assert_allclose(of_true.asnumpy(), counts(true.asnumpy(), 5), rtol=1e-6)
    np.testing.assert_allclose(of_drawn.asnumpy(), counts(drawn.asnumpy(), 5))
