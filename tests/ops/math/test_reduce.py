"""Reductions beyond the recorded calls: ties, NaN, types."""

import numpy as np

import dpmodule as mx
from helpers.arrays import NAN, f2, f4, i4, u1
from helpers.op_case import gradients, gradients_test, run, values_test

PLACES = f4([[[1, 5, 5], [5, 1, 1]], [[2, 2, 0], [0, 0, 2]]])
BLOCK = np.random.RandomState(0).rand(2, 3, 2)
test_values = values_test(
    ("norm", (f2([3, 4]),), {"out_dtype": "float32"}, f4([5])),
    ("norm", (i4([3, 4]),), {}, i4([5])),
    *[  # MXNet gives 100 and 120, the greatest one times an integer
        ("norm", (np.array([[100, 20], [120, 40]], kind),), {"axis": 1}, np.array([101, 126]).astype(kind))
        for kind in ("i1", "u1", "i8")
    ],
    ("max", (f4([1, NAN, 5]),), {}, f4([NAN])),
    ("argmax", (f4([1, NAN, 5]),), {"axis": 0}, f4([1])),
    ("mean", (u1([200, 200, 203]),), {}, u1([201])),
    ("sum", (u1([200, 100]),), {}, u1([44])),
    ("mean", (i4([1, 2]),), {}, i4([1])),
    ("sum", (f2([1] * 5000),), {}, f2([5000])),
    *[  # the first of equal ones wins
        (name, (PLACES.astype(kind),), {"axis": axis}, np.atleast_1d(getattr(np, name)(PLACES, axis)).astype(kind))
        for name in ("argmax", "argmin") for axis in (0, 1, None) for kind in ("f4", "i4")
    ],
    ("argmax", (PLACES,), {"axis": -1, "keepdims": True}, PLACES.argmax(-1)[..., None].astype("f4")),
    ("argmin", (PLACES,), {"keepdims": True}, f4([[[8]]])),
    ("moments", (BLOCK,), {}, (BLOCK.mean().reshape(1), BLOCK.var().reshape(1))),
    ("moments", (BLOCK,), {"axes": 1, "keepdims": True}, (BLOCK.mean(1)[:, None], BLOCK.var(1)[:, None])),
)  # fmt: skip
test_gradients_at_ties_and_zeros = gradients_test(
    ("norm", (f4([[0, 0], [0, 0]]),), {}, [[[0, 0], [0, 0]]]),
    ("norm", (f4([0, -2]),), {"ord": 1}, [[0, -1]]),
    ("prod", (f4([0, 2, 3]),), {}, [[6, 0, 0]]),
    ("prod", (f4([0, 2, 0]),), {}, [[0, 0, 0]]),
    ("min", (f4([[1, 3, 3], [0, 0, 0]]),), {"axis": 1, "keepdims": True}, [[[1, 0, 0], [1, 1, 1]]]),
    ("nansum", (f4([NAN, -2, 5]),), {}, [[0, 1, 1]]),
    ("nanprod", (f4([NAN, -2, 5]),), {}, [[0, 5, -2]]),
)


def test_every_tie_gets_the_whole_gradient():
    found = gradients("max", f4([[1, 3, 3], [0, 0, 0]]), axis=1, head=[2.0, 1.0])[0]
    assert found.tolist() == [[0, 2, 2], [1, 1, 1]]
    assert run("argmax", PLACES, keepdims=True).shape == (1, 1, 1)


def test_moments_of_integers_are_truncated():
    mean, variance = mx.nd.moments(mx.nd.array([[1, 2], [3, 5]], dtype="int32"), axes=(0,))
    assert (mean.asnumpy().tolist(), variance.asnumpy().tolist()) == ([2, 3], [1, 2])
    assert mean.dtype == variance.dtype == np.int32
