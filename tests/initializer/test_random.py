"""Initializers that draw: their statistics beside MXNet's and the formulas, seeds, contexts, types."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/initializer/initializers.json").read_text())
DRAWING = [mx.init.Uniform(), mx.init.Normal(), mx.init.Xavier(), mx.init.MSRAPrelu(), mx.init.Orthogonal()]


def drawn(init, shape, ctx=None, dtype="float32"):
    arr = mx.nd.full(shape, 0, ctx=ctx, dtype=dtype)
    init(mx.init.InitDesc("w_weight"), arr)
    return arr.asnumpy()


@pytest.mark.parametrize(("name", "kwargs", "shape", "want"), GOLDENS["statistics"])
def test_statistics_are_mxnets(name, kwargs, shape, want):
    values = drawn(getattr(mx.init, name)(**kwargs), tuple(shape))
    bounded = "gaussian" not in str(kwargs) and name in ("Uniform", "Xavier")
    assert values.std() == pytest.approx(want["std"], rel=0.02)
    assert np.abs(values).max() == pytest.approx(want["absmax"], rel=1e-3 if bounded else 0.2)
    assert abs(values.mean()) < 0.02 * want["std"] + 1e-3


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (8, 3, 2, 2), (16, 3, 2, 2), (5, 5)])
def test_orthogonal_rows_or_columns(kind, shape):
    values = drawn(mx.init.Orthogonal(scale=1.2, rand_type=kind), shape).reshape(shape[0], -1)
    short = values if values.shape[0] <= values.shape[1] else values.T
    np.testing.assert_allclose(short @ short.T, 1.44 * np.eye(len(short)), atol=1e-5)


@pytest.mark.parametrize("init", DRAWING, ids=repr)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_types(init, dtype):
    values = drawn(init, (20, 10), dtype=dtype)
    assert values.dtype == dtype
    assert values.std() > 0
    assert drawn(init, (0, 3), dtype=dtype).shape == (0, 3)


def test_integers_get_whole_numbers():
    values = drawn(mx.init.Uniform(5), (400,), dtype="int32")
    assert set(values.tolist()) == set(range(-4, 5))


@pytest.mark.parametrize(("kind", "share"), [("uniform", math.sqrt(2) - 1), ("normal", 0.5)])
def test_orthogonal_draws_from_its_distribution(kind, share):
    """The share of directions near the axes, which a square has less of than a circle."""
    draws = np.stack([drawn(mx.init.Orthogonal(rand_type=kind), (1, 2))[0] for _ in range(3000)])
    angle = np.arctan2(*np.abs(draws).T)
    near = np.mean(np.abs(angle - math.pi / 4) > math.pi / 8)
    assert near == pytest.approx(share, abs=0.04)
