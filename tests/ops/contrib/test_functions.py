"""Fourier transforms and sketches, and the likelihood of events."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import BoundsError, OpError, ShapeError
from helpers.op_case import run, shapes


def test_the_inverse_undoes_the_transform_times_the_length():
    x = np.random.RandomState(0).standard_normal((2, 3, 5))
    np.testing.assert_allclose(run("_contrib_ifft", run("_contrib_fft", x)) / 5, x)


def test_an_odd_number_of_parts_is_refused():
    with pytest.raises(ShapeError, match="even"):
        shapes("_contrib_ifft", [(2, 5)])


def test_hashes_outside_are_refused():
    with pytest.raises(BoundsError, match="expected 0 to 2"):
        mx.nd.contrib.count_sketch(mx.nd.ones((2, 2)), mx.nd.array([[0, 3]]), mx.nd.ones((1, 2)), out_dim=3)


def test_a_sketch_keeps_inner_products_on_average():
    random = np.random.RandomState(1)
    x, found = random.standard_normal((2, 30)), []
    for _ in range(400):
        hashes, signs = random.randint(0, 10, (1, 30)).astype("f8"), random.choice([-1.0, 1.0], (1, 30))
        one, other = run("_contrib_count_sketch", x, hashes, signs, out_dim=10)
        found.append(one @ other)
    assert np.mean(found) == pytest.approx(x[0] @ x[1], abs=4 * np.std(found) / 20)


def hawkes(lags, marks, length, end):
    """Return the log likelihood of one sequence of one kind, by its definition."""
    rate, alpha, beta = 0.7, 0.4, 1.5
    times = np.cumsum(lags)[:length]
    total = -rate * end - alpha * (1 - np.exp(-beta * (end - times))).sum()
    for i, now in enumerate(times):
        total += np.log(rate + alpha * beta * np.exp(-beta * (now - times[:i])).sum())
    return total


def test_likelihood_of_events_by_its_definition():
    lags = np.array([[0.3, 0.5, 0.2, 0.9], [0.1, 0.1, 0.4, 0.2]])
    marks, lengths, end = np.zeros((2, 4), "i4"), np.array([4.0, 2.0]), np.array([3.0, 1.0])
    start = np.zeros((2, 1))
    found = run(
        "_contrib_hawkesll",
        np.full((2, 1), 0.7),
        np.array([0.4]),
        np.array([1.5]),
        start,
        lags,
        marks,
        lengths,
        end,
    )
    wanted = [hawkes(lags[i], marks[i], int(lengths[i]), end[i]) for i in range(2)]
    np.testing.assert_allclose(found, wanted)


def test_an_unknown_kind_of_event_is_refused():
    args = [mx.nd.ones(s) for s in ((1, 2), (2,), (2,), (1, 2), (1, 3))]
    with pytest.raises(OpError, match="marks"):
        mx.nd.contrib.hawkesll(
            *args, mx.nd.array([[0, 1, 2]], dtype="int32"), mx.nd.ones((1,)), mx.nd.ones((1,))
        )
