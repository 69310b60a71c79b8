"""Fourier transforms and sketches, and the likelihood of events."""

import numpy as np
import pytest

from helpers.arrays import f8, randn
from helpers.op_case import run, values_test


def hawkes(rate, alpha, beta, start, lags, marks, lengths, ends):
    """Return the log likelihood of sequences of one kind, by its definition."""
    found = []
    for row, length, end in zip(lags, lengths.astype(int), ends, strict=True):
        times = np.cumsum(row)[:length]
        total = -0.7 * end - alpha[0] * (1 - np.exp(-beta[0] * (end - times))).sum()
        for i, now in enumerate(times):
            total += np.log(0.7 + alpha[0] * beta[0] * np.exp(-beta[0] * (now - times[:i])).sum())
        found.append(total)
    return f8(found)


def test_likelihood_of_events_by_its_definition():
    lags, marks = f8([[0.3, 0.5, 0.2, 0.9], [0.1, 0.1, 0.4, 0.2]]), np.zeros((2, 4), "i4")
    inputs = np.full((2, 1), 0.7), f8([0.4]), f8([1.5]), np.zeros((2, 1)), lags, marks, f8([4, 2]), f8([3, 1])
    np.testing.assert_allclose(run("_contrib_hawkesll", *inputs), hawkes(*inputs))


test_the_inverse_undoes_the_transform_times_the_length = values_test(
    [("_contrib_ifft", (run("_contrib_fft", randn(2, 3, 5)),), {}, 5 * randn(2, 3, 5))]
)


def test_a_sketch_keeps_inner_products_on_average():
    random = np.random.RandomState(1)
    x, found = random.standard_normal((2, 30)), []
    for _ in range(400):
        hashes, signs = random.randint(0, 10, (1, 30)).astype("f8"), random.choice([-1.0, 1.0], (1, 30))
        one, other = run("_contrib_count_sketch", x, hashes, signs, out_dim=10)
        found.append(one @ other)
    assert np.mean(found) == pytest.approx(x[0] @ x[1], abs=4 * np.std(found) / 20)
