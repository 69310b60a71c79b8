"""Densities' shapes; distinct numbers, and classes from Zipf's law."""

import math

import numpy as np

import dpmodule as mx
from helpers.op_case import rules_test

NORMAL = "_random_pdf_normal"
test_shapes = rules_test(
    *[(NORMAL, [sample, (2,), (2,)], {}, None, [sample]) for sample in [(2,), (2, 5), (2, 5, 6)]],
    ("_random_pdf_dirichlet", [(2, 5, 3), (2, 3)], {}, None, [(2, 5)]),  # the last axis is one draw
)


def test_distinct_numbers():
    mx.random.seed(3)
    drawn, tries = mx.nd._internal._sample_unique_zipfian(50, shape=(40, 20))
    assert (drawn.shape, drawn.dtype, tries.shape, tries.dtype) == ((40, 20), np.int64, (40,), np.int64)
    rows = drawn.asnumpy()
    assert 0 <= rows.min() <= rows.max() < 50
    assert all(len(set(row)) == 20 for row in rows)
    assert (tries.asnumpy() >= 20).all()


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
    _, of_true, _ = mx.sym.Group(list(symbols)).bind(mx.cpu(), {"true": true}).forward()
    np.testing.assert_allclose(of_true.asnumpy(), counts(true.asnumpy(), 5), rtol=1e-6)
