"""Arithmetic and comparison of two arrays, and of an array and a number."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from dpmodule.base import ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, gradients, run, shapes
from helpers.walk import walks

NAN, INF = float("nan"), float("inf")

ARITHMETIC = {
    "elemwise_add": np.add,
    "elemwise_sub": np.subtract,
    "elemwise_mul": np.multiply,
    "elemwise_div": np.divide,
    "_mod": np.mod,
    "_power": np.power,
    "_maximum": np.maximum,
    "_minimum": np.minimum,
    "_hypot": np.hypot,
}
TESTS = {
    "_equal": np.equal,
    "_not_equal": np.not_equal,
    "_greater": np.greater,
    "_greater_equal": np.greater_equal,
    "_lesser": np.less,
    "_lesser_equal": np.less_equal,
    "_logical_and": np.logical_and,
    "_logical_or": np.logical_or,
    "_logical_xor": np.logical_xor,
}
BROADCAST = {
    **{f"broadcast_{name.removeprefix('elemwise').strip('_')}": f for name, f in ARITHMETIC.items()},
    **{f"broadcast{name}": f for name, f in TESTS.items()},
}


def points(*shape, low=0.3, high=2.9):
    return np.random.RandomState(len(shape)).uniform(low, high, shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_that_of_numpy(name, dtype):
    left, right = points(3, 4).astype(dtype), points(3, 4, low=0.7).astype(dtype)[::-1]
    check_value(OpCase(name, (left, right), expect=ARITHMETIC[name]), rtol=1e-5)
    check_gradient(OpCase(name, (left.astype("f8"), right.astype("f8"))))


@walks(product(TESTS, ["float32", "int32", "uint8"]))
def test_answers_are_0_and_1_in_the_operands_type(name, dtype):
    left, right = np.array([0, 1, 2, 0], dtype), np.array([0, 2, 1, 3], dtype)
    check_value(OpCase(name, (left, right), expect=lambda x, y: TESTS[name](x, y).astype(dtype)))
    assert not np.any(gradients(name, left.astype("f4"), right.astype("f4")))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(BROADCAST)),
    dims=mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, max_side=4),
)
def test_broadcasting_is_that_of_numpy(name, dims):
    left, right = (points(*shape).round(1) for shape in dims.input_shapes)
    if "logic" in name:
        left, right = left.round(), right.round()
    check_value(
        OpCase(name, (left, right), expect=lambda x, y: BROADCAST[name](x, y).astype("f8")), rtol=1e-7
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(
        ["broadcast_add", "broadcast_mul", "broadcast_div", "broadcast_maximum", "broadcast_hypot"]
    ),
    dims=mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=3, max_side=3),
)
def test_broadcast_gradients_are_summed_over_repeated_axes(name, dims):
    left, right = points(*dims.input_shapes[0]), points(*dims.input_shapes[1], low=3.0, high=5.0)
    full = [np.broadcast_to(each, dims.result_shape).copy() for each in (left, right)]
    spread = gradients(name, *full)
    for found, each, whole in zip(gradients(name, left, right), (left, right), spread, strict=True):
        lead = whole.ndim - each.ndim
        ones = tuple(i + lead for i, d in enumerate(each.shape) if d == 1)
        expected = whole.sum(tuple(range(lead))).sum(tuple(i - lead for i in ones), keepdims=True)
        np.testing.assert_allclose(found, expected, 1e-9)


def test_shapes_that_do_not_fit_are_refused_with_both_named():
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        shapes("broadcast_add", [(2, 3), (2, 4)])
    with pytest.raises(ShapeError):
        shapes("elemwise_add", [(2, 3), (2, 1)])


def test_rules_carry_what_is_known():
    assert shapes("elemwise_add", [(2, 0), None], [(0, 3)])[0] == [(2, 3), (2, 3)]
    assert shapes("broadcast_add", [(0, 4, 8), (1, 0, 1)])[1] == [(0, 4, 8)]
    assert shapes("broadcast_add", [None, (2,)])[1] == [None]


def test_ties_give_the_gradient_to_the_first():
    left, right = np.array([1, 2, 3], "f4"), np.array([1, 1, 5], "f4")
    found = gradients("_maximum", left, right)
    np.testing.assert_array_equal(found, [[1, 1, 0], [0, 0, 1]])
    found = gradients("_minimum", left, right)
    np.testing.assert_array_equal(found, [[1, 0, 1], [0, 1, 0]])


def test_nan_wins_in_maximum_and_minimum():
    left, right = np.array([NAN, 1, NAN], "f4"), np.array([1, NAN, NAN], "f4")
    assert np.isnan(run("_maximum", left, right)).all()
    assert np.isnan(run("_minimum", left, right)).all()
    np.testing.assert_array_equal(run("_maximum_scalar", left, scalar=2.0), [NAN, 2, NAN])


def test_division_and_remainder_by_zero():
    x, zero = np.array([1, -1, 0], "f4"), np.zeros(3, "f4")
    np.testing.assert_array_equal(run("elemwise_div", x, zero), [INF, -INF, NAN])
    np.testing.assert_array_equal(run("_mod", x, zero), [0, 0, 0])
    np.testing.assert_array_equal(run("_mod_scalar", x, scalar=0.0), [0, 0, 0])
    np.testing.assert_array_equal(run("_rmod_scalar", np.array([0, -1.5, 2], "f4"), scalar=1.0), [0, -0.5, 1])


def test_remainder_has_the_sign_of_the_divisor_and_mxnets_gradient():
    left, right = np.array([5, -5, 5], "f4"), np.array([3, 3, -3], "f4")
    np.testing.assert_array_equal(run("_mod", left, right), [2, 1, -1])
    np.testing.assert_array_equal(gradients("_mod", left, right), [[1, 1, 1], [-1, 2, 2]])


LEFT, RIGHT = np.array([-7, -3, 1, 3, 7]), np.array([2, 2, 2, -2, -3])


# what MXNet 1.9.1 answers
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("elemwise_div", [-3, -1, 0, -1, -2]),
        ("_mod", [1, 1, 1, -1, -2]),
        ("_power", [49, 9, 1, 0, 0]),
        ("_maximum", [2, 2, 2, 3, 7]),
        ("_hypot", [7, 3, 2, 3, 7]),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_arithmetic_is_as_in_mxnet(name, dtype, expected):
    check_value(
        OpCase(name, (LEFT.astype(dtype), RIGHT.astype(dtype)), expect=lambda x, y: np.array(expected, dtype))
    )


SCALARS = {
    "_plus_scalar": ([-5, -1, 3, 5, 9], lambda x, s: x + s),
    "_minus_scalar": ([-9, -5, -1, 1, 5], lambda x, s: x - s),
    "_rminus_scalar": ([9, 5, 1, -1, -5], lambda x, s: s - x),
    "_mul_scalar": ([-14, -6, 2, 6, 14], lambda x, s: x * s),
    "_div_scalar": ([-3, -1, 0, 1, 3], lambda x, s: x / s),
    "_rdiv_scalar": ([0, 0, 2, 0, 0], lambda x, s: s / x),
    "_mod_scalar": ([1, 1, 1, 1, 1], lambda x, s: np.mod(x, s)),
    "_rmod_scalar": ([-5, -1, 0, 2, 2], lambda x, s: np.mod(s, x)),
    "_power_scalar": ([49, 9, 1, 9, 49], lambda x, s: np.power(x, s)),
    "_rpower_scalar": ([0, 0, 2, 8, 128], lambda x, s: np.power(s, x)),
    "_maximum_scalar": ([2, 2, 2, 3, 7], np.maximum),
    "_minimum_scalar": ([-7, -3, 1, 2, 2], np.minimum),
    "_hypot_scalar": ([7, 3, 2, 3, 7], np.hypot),
    "_equal_scalar": ([0, 0, 0, 0, 0], np.equal),
    "_not_equal_scalar": ([1, 1, 1, 1, 1], np.not_equal),
    "_greater_scalar": ([0, 0, 0, 1, 1], np.greater),
    "_greater_equal_scalar": ([0, 0, 0, 1, 1], np.greater_equal),
    "_lesser_scalar": ([1, 1, 1, 0, 0], np.less),
    "_lesser_equal_scalar": ([1, 1, 1, 0, 0], np.less_equal),
    "_logical_and_scalar": ([1, 1, 1, 1, 1], np.logical_and),
    "_logical_or_scalar": ([1, 1, 1, 1, 1], np.logical_or),
    "_logical_xor_scalar": ([0, 0, 0, 0, 0], np.logical_xor),
}


@walks(SCALARS)
def test_a_number_is_cut_for_integers_unless_it_is_declared_none(name):
    expected, formula = SCALARS[name]
    check_value(OpCase(name, (LEFT.astype("i4"),), {"scalar": 2.5}, lambda x: np.array(expected, "i4")))
    positive = np.abs(LEFT).astype("i4")
    check_value(
        OpCase(name, (positive,), {"scalar": 2.5, "is_int": False}, lambda x: formula(x, 2.5).astype("f8"))
    )


@walks(SCALARS)
def test_number_and_array(name):
    x = points(3, 4).round(1)
    case = OpCase(
        name, (x.astype("f4"),), {"scalar": 1.7}, lambda x: SCALARS[name][1](x, np.float32(1.7)).astype("f4")
    )
    check_value(case)
    check_gradient(OpCase(name, (points(3, 4),), {"scalar": 1.7}))


def test_scalar_ties_give_the_gradient_to_the_array():
    x = np.array([1, 2, 3], "f4")
    np.testing.assert_array_equal(gradients("_maximum_scalar", x, scalar=2.0)[0], [0, 1, 1])
    np.testing.assert_array_equal(gradients("_minimum_scalar", x, scalar=2.0)[0], [1, 1, 0])


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [("_plus_scalar", 254, [1, 254]), ("_rminus_scalar", 2, [255, 2]), ("_mul_scalar", 100, [44, 0])],
)
def test_bytes_wrap_around(name, number, expected):
    np.testing.assert_array_equal(run(name, np.array([3, 0], "u1"), scalar=number), expected)


def test_integers_divided_by_zero_give_zero():
    found = run("elemwise_div", np.array([5, -7, 0], "i4"), np.array([0, 2, 0], "i4"))
    np.testing.assert_array_equal(found, [0, -3, 0])


def test_integers_and_the_number_zero():
    for kind in ("i1", "u1", "i4", "i8"):
        x = np.array([5, 7, 0], kind)
        for name in ("_div_scalar", "_mod_scalar"):
            np.testing.assert_array_equal(run(name, x, scalar=0.0), [0, 0, 0])
        for name in ("_rdiv_scalar", "_rmod_scalar"):
            np.testing.assert_array_equal(run(name, x, scalar=9.0), [1, 1, 0] if "div" in name else [4, 2, 0])
        np.testing.assert_array_equal(run("_mod", x, np.zeros(3, kind)), [0, 0, 0])


def test_gradients_of_zero_to_the_power_of_zero_are_finite():
    zero = np.zeros(1, "f4")
    for found in (gradients("_power", zero, zero), gradients("_power_scalar", zero, scalar=0.0)):
        assert [float(each[0]) for each in found] == [0.0] * len(found)
