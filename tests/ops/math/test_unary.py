"""Elementwise functions: NumPy values, MXNet's behaviour at the odd points, and finite differences."""

import math
from itertools import product

import numpy as np
import pytest

from dpmodule import ops
from helpers.op_case import OpCase, check_gradient, check_value, gradients, run, shapes
from helpers.walk import family_of, walks

NAN, INF = float("nan"), float("inf")
ANY = np.linspace(-2.7, 2.9, 12).reshape(3, 4)
INSIDE = np.linspace(-0.9, 0.85, 12).reshape(3, 4)
POSITIVE = np.linspace(0.2, 3.1, 12).reshape(3, 4)
ABOVE_ONE = POSITIVE + 1.0


def of_math(function):
    return np.vectorize(function, otypes=["f8"])


# name: where it is defined, expected value, whether finite differences apply
TABLE = {
    "abs": (ANY, np.abs, True),
    "sign": (ANY, np.sign, True),
    "round": (ANY, lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), True),
    "rint": (ANY, np.rint, True),
    "ceil": (ANY, np.ceil, True),
    "floor": (ANY, np.floor, True),
    "trunc": (ANY, np.trunc, True),
    "fix": (ANY, np.trunc, True),
    "square": (ANY, np.square, True),
    "sqrt": (POSITIVE, np.sqrt, True),
    "rsqrt": (POSITIVE, lambda x: 1 / np.sqrt(x), True),
    "cbrt": (ANY, np.cbrt, True),
    "rcbrt": (ANY, lambda x: 1 / np.cbrt(x), True),
    "exp": (ANY, np.exp, True),
    "log": (POSITIVE, np.log, True),
    "log10": (POSITIVE, np.log10, True),
    "log2": (POSITIVE, np.log2, True),
    "log1p": (POSITIVE, np.log1p, True),
    "expm1": (ANY, np.expm1, True),
    "sin": (ANY, np.sin, True),
    "cos": (ANY, np.cos, True),
    "tan": (INSIDE, np.tan, True),
    "arcsin": (INSIDE, np.arcsin, True),
    "arccos": (INSIDE, np.arccos, True),
    "arctan": (ANY, np.arctan, True),
    "sinh": (ANY, np.sinh, True),
    "cosh": (ANY, np.cosh, True),
    "tanh": (ANY, np.tanh, True),
    "arcsinh": (ANY, np.arcsinh, True),
    "arccosh": (ABOVE_ONE, np.arccosh, True),
    "arctanh": (INSIDE, np.arctanh, True),
    "degrees": (ANY, np.degrees, True),
    "radians": (ANY, np.radians, True),
    "gamma": (ANY, of_math(math.gamma), True),
    "gammaln": (ANY, of_math(math.lgamma), True),
    "erf": (ANY, of_math(math.erf), True),
    "reciprocal": (POSITIVE, np.reciprocal, True),
    "negative": (ANY, np.negative, True),
    "relu": (ANY, lambda x: np.maximum(x, 0), True),
    "sigmoid": (ANY, lambda x: 1 / (1 + np.exp(-x)), True),
    "softsign": (ANY, lambda x: x / (1 + np.abs(x)), True),
    "logical_not": (np.array([[0.0, -1.0], [2.0, 0.0]]), lambda x: (x == 0).astype(x.dtype), False),
    "zeros_like": (ANY, np.zeros_like, False),
    "ones_like": (ANY, np.ones_like, False),
    "identity": (ANY, np.copy, True),
    "BlockGrad": (ANY, np.copy, False),
}


@walks(product(TABLE, ["float32", "float64"]))
def test_value_is_that_of_numpy(name, dtype):
    points, expected, _ = TABLE[name]
    check_value(OpCase(name, (points.astype(dtype),), expect=expected), rtol=2e-5, atol=1e-6)


@walks(name for name, row in TABLE.items() if row[2])
def test_gradient_is_that_of_finite_differences(name):
    check_gradient(OpCase(name, (TABLE[name][0],)), tol=2e-6)


def test_inverse_error_function_inverts():
    np.testing.assert_allclose(of_math(math.erf)(run("erfinv", INSIDE)), INSIDE, 1e-6)
    check_gradient(OpCase("erfinv", (INSIDE,)))


@walks(sorted(set(TABLE) - {"logical_not", "BlockGrad"}))
def test_float16_stays_float16_and_is_close(name):
    points, expected, _ = TABLE[name]
    found = run(name, points.astype("float16"))
    assert found.dtype == np.float16
    if name not in ("round", "rint", "tan", "gamma"):  # halves of float16 points fall elsewhere; steep slopes
        np.testing.assert_allclose(
            found.astype("f8"), expected(points.astype("float16").astype("f8")), 5e-3, 5e-3
        )


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
    (
        "gamma",
        [-1.5, 0.5, 3, -0.5],
        [2.3632717, 1.7724538, 2, -3.5449078],
        [1.6617506, -3.480232, 1.845569, -0.12935],
    ),
    ("gammaln", [-1.5, 0.5, 3], [0.860047, 0.572365, 0.6931472], [0.7031566, -1.9635108, 0.9227843]),
]


@pytest.mark.parametrize(
    ("name", "points", "values", "slopes"), ODD_POINTS, ids=[row[0] for row in ODD_POINTS]
)
def test_odd_points_are_as_in_mxnet(name, points, values, slopes):
    x = np.array(points, "f4")
    np.testing.assert_allclose(run(name, x), np.array(values, "f4"), 1e-5, 1e-6)
    np.testing.assert_allclose(gradients(name, x)[0], np.array(slopes, "f4"), 2e-5, 1e-5)


def test_gamma_has_poles_at_negative_whole_numbers():
    assert np.isnan(run("gamma", np.array([-1.0, -2.0], "f4"))).all()
    assert run("gamma", np.array([0.0], "f4")) == INF


@pytest.mark.parametrize(
    ("name", "expected"), [("sqrt", [2, 2, 3]), ("sin", [0, 0, 0]), ("reciprocal", [0, 0, 0])]
)
def test_integers_keep_their_type_and_lose_the_fraction(name, expected):
    found = run(name, np.array([4, 5, 9], "i4"))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "expected"),
    [
        ("float32", -0.5, 2.0, [-0.5, -0.5, 0, 2, 2]),
        ("int32", -0.5, 2.9, [0, 0, 0, 2, 2]),
        ("uint8", -5.0, 300.0, [253, 255, 0, 2, 5]),
        ("int8", -INF, INF, [-3, -1, 0, 2, 5]),
    ],
)
def test_clip_limits_every_type(dtype, low, high, expected):
    x = np.array([-3, -1, 0, 2, 5]).astype(dtype)
    check_value(OpCase("clip", (x,), {"a_min": low, "a_max": high}, lambda x: np.array(expected, dtype)))


def test_clip_lets_the_gradient_through_at_both_ends():
    x = np.array([0, 1, 1.5, 2, 3], "f4")
    np.testing.assert_array_equal(gradients("clip", x, a_min=1, a_max=2)[0], [0, 1, 1, 1, 0])
    np.testing.assert_array_equal(run("clip", np.array([NAN, 1, 5], "f4"), a_min=0, a_max=2), [NAN, 1, 2])


@pytest.mark.parametrize("attrs", [{}, {"scalar": 2.0}, {"scalar": 0.5}])
def test_smooth_l1_is_a_parabola_near_zero(attrs):
    s = attrs.get("scalar", 1.0) ** 2

    def expected(x):
        return np.where(np.abs(x) < 1 / s, 0.5 * s * x * x, np.abs(x) - 0.5 / s)

    check_value(OpCase("smooth_l1", (ANY,), attrs, expected))
    check_gradient(OpCase("smooth_l1", (ANY,), attrs))


def test_hard_sigmoid_is_flat_at_and_beyond_its_ends():
    x = np.array([-2.5, 0, 2.5, 3], "f4")
    np.testing.assert_allclose(run("hard_sigmoid", x), [0, 0.5, 1, 1])
    np.testing.assert_allclose(gradients("hard_sigmoid", x)[0], [0, 0.2, 0, 0])
    check_gradient(OpCase("hard_sigmoid", (ANY,), {"alpha": 0.3, "beta": 0.4}))


def test_shape_and_size_come_as_int64():
    x = np.zeros((2, 3, 4), "f4")
    check_value(OpCase("shape_array", (x,), expect=lambda x: np.array([2, 3, 4])))
    check_value(OpCase("size_array", (x,), expect=lambda x: np.array([24])))


def test_elementwise_rule_works_both_ways():
    assert shapes("sin", [None], [(2, 3)]) == ([(2, 3)], [(2, 3)])
    assert shapes("sin", [(0, 3)], [(2, 0)]) == ([(2, 3)], [(2, 3)])


def test_block_grad_and_comparison_give_no_gradient():
    np.testing.assert_array_equal(gradients("BlockGrad", ANY)[0], 0)
    np.testing.assert_array_equal(gradients("_equal_scalar", ANY, scalar=1.0)[0], 0)


@walks([n for n in ops.names() if ops.get(n).name == n], family=family_of)
def test_every_operator_is_described(name):
    doc = ops.get(name).doc
    first = doc.splitlines()[0]
    assert first.endswith((".", "`"))
    assert "Shape:" in doc
    assert "Source:" in doc
    for key, attr in ops.get(name).attrs.items():
        assert attr.doc or key in ("ctx", "dtype"), key


def test_smooth_l1_of_integers():
    # recorded from MXNet 1.9.1
    x = np.array([-3, 0, 2], "i4")
    np.testing.assert_array_equal(run("smooth_l1", x), [2, 0, 1])
    np.testing.assert_array_equal(run("smooth_l1", x, scalar=0.5), [0, 0, 0])
