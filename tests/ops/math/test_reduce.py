"""Reductions: NumPy over random shapes and axes, ties, NaN, types, and finite differences."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.base import OpError, ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, gradients, run, shapes
from helpers.walk import walks

NAN = float("nan")
FUNCTIONS = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "nansum": np.nansum,
    "nanprod": np.nanprod,
    "max": np.max,
    "min": np.min,
}


def data(*shape):
    return np.random.RandomState(sum(shape)).permutation(int(np.prod(shape))).reshape(shape) * 0.1 + 0.3


def expected(name, x, axis=None, keepdims=False, exclude=False):
    """The rule in NumPy's words: None and () are all axes, `exclude` is the complement, a scalar is (1,)."""
    axes = tuple(range(x.ndim)) if axis in (None, ()) else tuple(a % x.ndim for a in np.atleast_1d(axis))
    if exclude and axis not in (None, ()):
        axes = tuple(set(range(x.ndim)) - set(axes))
    if not axes:
        return x
    return np.atleast_1d(FUNCTIONS[name](x, axis=axes, keepdims=keepdims))


@st.composite
def reductions(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    rank = len(shape)
    kept = draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=rank))
    axis = tuple(a - rank if draw(st.booleans()) else a for a in kept)
    axis = draw(st.sampled_from([axis, None])) if len(axis) != 1 else draw(st.sampled_from([axis, axis[0]]))
    attrs = {"axis": axis, "keepdims": draw(st.booleans()), "exclude": draw(st.booleans())}
    return draw(st.sampled_from(sorted(FUNCTIONS))), shape, attrs


@settings(max_examples=400, deadline=None, derandomize=True)
@given(reductions())
def test_any_axes_of_any_shape_are_as_in_numpy(case):
    name, shape, attrs = case
    check_value(OpCase(name, (data(*shape),), attrs, lambda x: expected(name, x, **attrs)), rtol=1e-9)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(reductions())
def test_unknown_dimensions_pass_through(case):
    name, shape, attrs = case
    (full,) = shapes(name, [shape], **attrs)[1]
    for hidden in range(len(shape)):
        partial = tuple(0 if i == hidden else d for i, d in enumerate(shape))
        (found,) = shapes(name, [partial], **attrs)[1]
        assert len(found) == len(full)
        assert all(f in (0, d) for f, d in zip(found, full, strict=True))


@walks(
    product(FUNCTIONS, [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}, {"axis": 1, "exclude": True}])
)
def test_gradient_is_that_of_finite_differences(name, attrs):
    check_gradient(OpCase(name, (data(2, 3, 2) * 0.5,), attrs))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("attrs", [{}, {"axis": 1}, {"axis": (1, 2), "keepdims": True}])
def test_norm_is_that_of_numpy(order, attrs):
    def norm(x, axis=None, keepdims=False):
        found = np.sum(np.abs(x) ** order, axis=axis, keepdims=keepdims) ** (1 / order)
        return np.atleast_1d(found)

    x = data(2, 3, 2) - 0.75
    check_value(OpCase("norm", (x,), {"ord": order, **attrs}, lambda x: norm(x, **attrs)))
    check_gradient(OpCase("norm", (x,), {"ord": order, **attrs}))


def test_norm_of_zeros_has_gradient_zero_and_a_chosen_type():
    zeros = np.zeros((2, 2), "f4")
    np.testing.assert_array_equal(gradients("norm", zeros)[0], zeros)
    np.testing.assert_array_equal(gradients("norm", np.array([0, -2], "f4"), ord=1)[0], [0, -1])
    assert run("norm", np.array([3, 4], "f2"), out_dtype="float32").dtype == np.float32
    np.testing.assert_array_equal(run("norm", np.array([3, 4], "i4")), [5])
    with pytest.raises(OpError, match="ord is '3'"):
        run("norm", zeros, ord=3)


def test_gradients_of_products_with_zeros():
    np.testing.assert_array_equal(gradients("prod", np.array([0, 2, 3], "f4"))[0], [6, 0, 0])
    np.testing.assert_array_equal(gradients("prod", np.array([0, 2, 0], "f4"))[0], [0, 0, 0])


def test_integers_do_not_overflow_on_the_way():
    np.testing.assert_array_equal(run("mean", np.array([200, 200, 203], "u1")), [201])
    for kind in ("i1", "u1", "i4", "i8"):  # MXNet gives 100 and 120, the greatest one times an integer
        np.testing.assert_array_equal(run("norm", np.array([[100, 20], [120, 40]], kind), axis=1), [101, 126])


def test_every_tie_gets_the_whole_gradient():
    x = np.array([[1, 3, 3], [0, 0, 0]], "f4")
    np.testing.assert_array_equal(gradients("max", x, axis=1, head=[2.0, 1.0])[0], [[0, 2, 2], [1, 1, 1]])
    np.testing.assert_array_equal(gradients("min", x, axis=1, keepdims=True)[0], [[1, 0, 0], [1, 1, 1]])


def test_nan_is_skipped_or_wins():
    x = np.array([NAN, -2, 5], "f4")
    np.testing.assert_array_equal(run("nansum", x), [3])
    np.testing.assert_array_equal(gradients("nansum", x)[0], [0, 1, 1])
    np.testing.assert_array_equal(run("nanprod", x), [-10])
    np.testing.assert_array_equal(gradients("nanprod", x)[0], [0, 5, -2])
    assert np.isnan(run("max", np.array([1, NAN, 5], "f4")))
    np.testing.assert_array_equal(run("argmax", np.array([1, NAN, 5], "f4"), axis=0), [1])


@pytest.mark.parametrize(
    ("name", "values", "dtype", "answer"),
    [
        ("sum", [200, 100], "u1", 44),
        ("sum", [200, 100], "i4", 300),
        ("mean", [1, 2], "i4", 1),
        ("prod", [3, 2], "i4", 6),
        ("max", [3, 2], "i4", 3),
        ("sum", [1] * 5000, "f2", 5000),
    ],
)
def test_the_type_is_kept(name, values, dtype, answer):
    found = run(name, np.array(values, dtype))
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, [answer])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("attrs", [{"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": 0}, {}])
def test_positions_come_in_the_datas_type_and_the_first_of_ties_wins(name, attrs):
    x = np.array([[[1, 5, 5], [5, 1, 1]], [[2, 2, 0], [0, 0, 2]]], "f4")

    def places(x):
        axis = attrs.get("axis")
        found = getattr(np, name)(x, axis)
        found = np.expand_dims(found, axis) if attrs.get("keepdims") else found
        return np.atleast_1d(found).astype("f4")

    check_value(OpCase(name, (x,), attrs, places))
    assert run(name, x.astype("i4"), **attrs).dtype == np.int32
    assert run(name, x, keepdims=True).shape == (1, 1, 1)


def test_argmax_channel_searches_axis_1():
    check_value(
        OpCase("argmax_channel", (data(2, 3, 2).astype("f4"),), {}, lambda x: x.argmax(1).astype("f4"))
    )
    with pytest.raises(ShapeError):
        shapes("argmax_channel", [(3,)])


def test_moments_are_mean_and_population_variance():
    x = data(2, 3, 2)
    for attrs, axes in (({"axes": (0, 2)}, (0, 2)), ({}, None), ({"axes": 1, "keepdims": True}, 1)):
        keep = attrs.get("keepdims", False)
        check_value(
            OpCase(
                "moments",
                (x,),
                attrs,
                lambda x, axes=axes, keep=keep: tuple(
                    np.atleast_1d(f(x, axes, keepdims=keep)) for f in (np.mean, np.var)
                ),
            )
        )


@pytest.mark.parametrize("axis", [3, -4, (0, 0), (-1, 2)])
def test_axes_that_do_not_exist_or_come_twice_are_refused(axis):
    with pytest.raises(ShapeError, match="sum"):
        shapes("sum", [(2, 3, 4)], axis=axis)
    with pytest.raises(OpError, match="axis"):
        run("sum", data(2, 3, 4), axis=axis)
