"""Elementwise functions beyond the recorded calls: MXNet's answers at the odd points, integers, edges."""

import math

import numpy as np
import pytest

import dpmodule as mx
from helpers.arrays import INF, NAN, f4, i4
from helpers.op_case import gradients, gradients_test, rules_test, run, values_test
from helpers.walk import walks

ANY = np.linspace(-2.7, 2.9, 12).reshape(3, 4)
# what MXNet 1.9.1 answers (float32): operator, points, values, gradients for a head of ones
ODD_POINTS = [
    ("abs", [-1, 0, 2], [1, 0, 2], [-1, 0, 1]),
    ("sign", [NAN, 0, -3], [0, 0, -1], [0, 0, 0]),
    ("relu", [-1, 0, 2, NAN, INF, -INF], [0, 0, 2, NAN, INF, 0], [0, 0, 1, NAN, 1, 0]),
    ("round", [-2.5, -0.5, 0.5, 1.5, 2.5, 0.49999997], [-3, -1, 1, 2, 3, 0], [0] * 6),
    ("rint", [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 8388609], [-3, -2, -1, 0, 1, 2, 8388609], [0] * 7),
    ("sqrt", [0, 4], [0, 2], [INF, 0.25]),
    ("rsqrt", [0, 4], [INF, 0.5], [-INF, -0.0625]),
    ("cbrt", [0, -8], [0, -2], [INF, 1 / 12]),
    ("rcbrt", [0, -8], [INF, -0.5], [-INF, -1 / 48]),
    ("log", [0, -1, 2], [-INF, NAN, math.log(2)], [INF, -1, 0.5]),
    ("reciprocal", [0, 2], [INF, 0.5], [-INF, -0.25]),
    ("softsign", [0, -2], [0, -2 / 3], [1, 1 / 9]),
    ("arccos", [1, 0.5], [0, math.acos(0.5)], [-INF, -1.1547005]),
    ("arctanh", [1, 0.5], [INF, math.atanh(0.5)], [INF, 4 / 3]),
    ("erfinv", [-1, 0, 1], [-INF, 0, INF], [INF, 0.88622695, INF]),
    ("gamma", [-1.5, 0.5, 3], [2.3632717, 1.7724538, 2], [1.6617506, -3.480232, 1.845569]),
    ("gamma", [-0.5, -1, -2, 0], [-3.5449078, NAN, NAN, INF], [-0.12935, None, None, None]),
    ("gammaln", [-1.5, 0.5, 3], [0.860047, 0.572365, 0.6931472], [0.7031566, -1.9635108, 0.9227843]),
]


@walks(ODD_POINTS)
def test_odd_points_are_as_in_mxnet(name, points, values, slopes):
    np.testing.assert_allclose(run(name, f4(points)), f4(values), 1e-5, 1e-6)
    for found, wanted in zip(gradients(name, f4(points))[0], slopes, strict=True):
        assert wanted is None or np.allclose(found, wanted, 2e-5, 1e-5, equal_nan=True)


RANGE = [-3, -1, 0, 2, 5]
# of integers: what MXNet 1.9.1 answers
test_values = values_test(
    ("sqrt", (i4([4, 5, 9]),), {}, i4([2, 2, 3])),
    ("reciprocal", (i4([4, 5, 9]),), {}, i4([0, 0, 0])),
    *[
        ("clip", (np.array(RANGE).astype(kind),), {"a_min": low, "a_max": high}, np.array(wanted, kind))
        for kind, low, high, wanted in [
            ("f4", -0.5, 2.0, [-0.5, -0.5, 0, 2, 2]),
            ("i4", -0.5, 2.9, [0, 0, 0, 2, 2]),
            ("u1", -5.0, 300.0, [253, 255, 0, 2, 5]),
            ("i1", -INF, INF, RANGE),
        ]
    ],
    ("clip", (f4([NAN, 1, 5]),), {"a_min": 0, "a_max": 2}, f4([NAN, 1, 2])),
    *[
        ("smooth_l1", (ANY,), attrs, lambda x, s=s: np.where(abs(x) < 1 / s, 0.5 * s * x * x, abs(x) - 0.5 / s))
        for attrs, s in (({}, 1), ({"scalar": 2.0}, 4))
    ],
    ("smooth_l1", (i4([-3, 0, 2]),), {}, i4([2, 0, 1])),
    ("hard_sigmoid", (f4([-2.5, 0, 2.5, 3]),), {}, f4([0, 0.5, 1, 1])),
)  # fmt: skip
test_gradients_at_edges = gradients_test(
    ("clip", (f4([0, 1, 1.5, 2, 3]),), {"a_min": 1, "a_max": 2}, [[0, 1, 1, 1, 0]]),
    ("hard_sigmoid", (f4([-2.5, 0, 2.5, 3]),), {}, [[0, 0.2, 0, 0]]),
)
test_shapes = rules_test(
    ("sin", [None], {}, [(2, 3)], [(2, 3)], [(2, 3)]), ("sin", [(0, 3)], {}, [(2, 3)], [(2, 3)], [(2, 0)])
)


@pytest.mark.parametrize("count", [9, 2**14 + 3])
@pytest.mark.parametrize(("low", "high"), [(0, 6), (-INF, 2), (0, INF), (-1, 3e38), (0, 0), (5, 2)])
def test_the_gradient_of_clip_is_1_at_both_ends(count, low, high):
    data = np.resize(np.float32([-INF, -1, -0.0, 0.0, 0.5, 6, 6.5, INF, NAN]), count)
    (got,) = gradients("clip", data, head=np.full(count, 2, "f4"), a_min=low, a_max=high)
    np.testing.assert_array_equal(got, 2 * ((data >= low) & (data <= high)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_limits_of_clip_beyond_the_dtype_are_infinite(dtype):
    got = mx.nd.clip(mx.nd.array([-INF, 7, INF]).astype(dtype), a_min=-1e39, a_max=8e38)
    np.testing.assert_array_equal(got.astype("float32").asnumpy(), [-INF, 7, INF])


def test_the_gradient_of_clip_is_0_at_nan():
    array = mx.nd.array([np.nan, 0.5, 3])
    array.attach_grad()
    with mx.autograd.record():
        out = mx.nd.clip(array, 0, 1)
    out.backward()
    np.testing.assert_array_equal(array.grad.asnumpy(), [0, 1, 0])
