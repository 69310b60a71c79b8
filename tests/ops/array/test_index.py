"""Picking and writing by position."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule import ops
from dpmodule.base import BoundsError, OpError, ShapeError
from dpmodule.ops.shapes import infer_type
from helpers.op_case import OpCase, check_gradient, check_value, gradients, run, shapes

NAN = float("nan")


def data(*shape):
    return np.arange(int(np.prod(shape)), dtype="f8").reshape(shape)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=0, max_size=2),
    st.sampled_from(["clip", "wrap"]),
    st.data(),
)
def test_take_is_that_of_numpy(dims, count, mode, draw):
    axis = draw.draw(st.integers(-len(dims), len(dims) - 1))
    size = int(np.prod(count))
    places = np.array(draw.draw(st.lists(st.integers(-9, 9), min_size=size, max_size=size)), "f4").reshape(
        count or [1]
    )
    attrs = {"axis": axis, "mode": mode}
    # NumPy's clip refuses nothing, but counts negative numbers as 0, as MXNet does
    check_value(
        OpCase("take", (data(*dims), places), attrs, lambda x, i: np.take(x, i.astype(int), axis, mode=mode))
    )


def test_take_adds_up_gradients_of_repeated_places():
    x = data(3, 2)
    np.testing.assert_array_equal(
        gradients("take", x, np.array([0, 2, 2], "f4"))[0], [[1, 1], [0, 0], [2, 2]]
    )
    check_gradient(OpCase("take", (x, np.array([[1.0, 0.0]])), {"axis": 1}), inputs=(0,), tol=1e-4)


def test_take_raise_refuses_and_fractions_are_cut():
    x = np.array([10, 20, 30], "f4")
    np.testing.assert_array_equal(run("take", x, np.array([0.9, 1.9, -0.5], "f4")), [10, 20, 10])
    np.testing.assert_array_equal(run("take", x, np.array([0, 2], "i4"), mode="raise"), [10, 30])
    for outside in ([-1, 2], [0, 3]):
        with pytest.raises(BoundsError, match="expected 0 to 2"):
            run("take", x, np.array(outside, "i4"), mode="raise")


# index, attributes, what MXNet 1.9.1 picks from arange(24) of shape (2, 3, 4)
PICKS = [
    ([[-1, 4, 1], [9, -9, 2]], {}, [[0, 7, 9], [15, 16, 22]]),
    ([[-1, 4, 1], [9, -9, 2]], {"mode": "wrap"}, [[3, 4, 9], [13, 19, 22]]),
    ([[[-1], [4], [1]], [[9], [-9], [2]]], {}, [[0, 7, 9], [15, 16, 22]]),
    ([[-1, 4, 1], [9, -9, 2]], {"keepdims": True}, [[[0], [7], [9]], [[15], [16], [22]]]),
    ([[1, 0, 1, 0]] * 3, {"axis": 0}, [[12, 1, 14, 3], [16, 5, 18, 7], [20, 9, 22, 11]]),
]


@pytest.mark.parametrize(("index", "attrs", "expected"), PICKS)
def test_pick_is_as_in_mxnet(index, attrs, expected):
    case = OpCase(
        "pick", (data(2, 3, 4), np.array(index, "f4")), attrs, lambda x, i: np.array(expected, "f8")
    )
    check_value(case)
    check_gradient(OpCase("pick", (data(2, 3, 4), np.array(index, "f8")), attrs), inputs=(0,), tol=1e-4)


def test_pick_of_a_vector_and_what_it_refuses():
    np.testing.assert_array_equal(run("pick", np.array([1, 2, 3.0]), np.array([1.9]), axis=0), [2])
    with pytest.raises(OpError, match="axis is None"):
        run("pick", data(2, 3), np.array([5.0]), axis=None)
    with pytest.raises(ShapeError, match=r"\(1, 3\)"):
        run("pick", data(2, 3, 4), np.ones((1, 3)))
    with pytest.raises(ShapeError):
        shapes("pick", [(2, 3, 4), (1, 3)])
    assert shapes("pick", [(0, 3, 4), (2, 3)], axis=2)[1] == [(0, 3)]


def test_batch_take_pulls_places_to_the_ends():
    index = np.array([-1, 5], "i4")
    check_value(
        OpCase("batch_take", (np.array([[1.0, 2], [3, 4]]), index), {}, lambda x, i: np.array([1.0, 4]))
    )
    assert shapes("batch_take", [(5, 3), None])[0] == [(5, 3), (5,)]


def test_one_hot_leaves_rows_of_places_outside_off():
    index = np.array([-1, 0, 3, 4, 1.7], "f4")
    expected = np.zeros((5, 4), "f4")
    expected[1, 0] = expected[2, 3] = expected[4, 1] = 1
    check_value(OpCase("one_hot", (index,), {"depth": 4}, lambda i: expected))
    attrs = {"depth": 2, "dtype": "int32", "on_value": 2.5, "off_value": -1}
    check_value(
        OpCase("one_hot", (np.array([[0, 1]], "i4"),), attrs, lambda i: np.array([[[2, -1], [-1, 2]]], "i4"))
    )
    assert shapes("one_hot", [(0, 3)], depth=4)[1] == [(0, 3, 4)]
    assert shapes("one_hot", [None], [(5, 3, 4)], depth=4)[0] == [(5, 3)]


@pytest.mark.parametrize("kind", ["f4", "i4", "f8"])
def test_where_chooses_elements_or_rows(kind):
    x, y = data(2, 2), -data(2, 2)
    cells = np.array([[1, 0], [0, -3]]).astype(kind)
    check_value(OpCase("where", (cells, x, y), {}, lambda c, x, y: np.where(c, x, y)))
    rows = np.array([0, 2]).astype(kind)
    check_value(OpCase("where", (rows, x, y), {}, lambda c, x, y: np.where(c[:, None], x, y)))
    found = gradients("where", cells, x, y)
    np.testing.assert_array_equal(found[1], cells != 0)
    np.testing.assert_array_equal(found[2], cells == 0)


def test_where_refuses_what_would_broadcast_and_knows_its_rule():
    with pytest.raises(ShapeError, match="one shape"):
        run("where", np.ones((2, 1)), data(2, 2), data(2, 2))
    with pytest.raises(ShapeError, match="one shape"):
        run("where", np.ones(2), data(2), data(1))
    with pytest.raises(ShapeError):
        shapes("where", [(3,), (2, 2), (2, 2)])
    assert shapes("where", [None, None, (6, 4)]) == ([None, (6, 4), (6, 4)], [(6, 4)])
    np.testing.assert_array_equal(
        run("where", np.array([NAN, 0]), np.array([1.0, 2]), np.array([5.0, 6])), [1, 6]
    )


@pytest.mark.parametrize(
    "index", [[[0, 1, 1]], [[0, 1, 1], [2, 0, 2]], [[0], [1], [2]], [[[0, 1]], [[1, 2]]]]
)
def test_gather_picks_and_scatter_writes_the_same_places(index):
    index = np.array(index, "f4")
    places = tuple(index.astype(int))
    case = OpCase("gather_nd", (data(2, 3, 4), index), {}, lambda x, i: np.atleast_1d(x[places]))
    check_value(case)
    check_gradient(OpCase("gather_nd", (data(2, 3, 4), index.astype("f8"))), inputs=(0,), tol=1e-4)
    values = data(2, 3, 4)[places] + 1

    def scattered(v, i):
        out = np.zeros((2, 3, 4))
        out[places] = v
        return out

    check_value(OpCase("scatter_nd", (values, index), {"shape": (2, 3, 4)}, scattered))


def test_gather_refuses_places_outside():
    with pytest.raises(BoundsError, match=r"\(2, 3, 4\)"):
        run("gather_nd", data(2, 3, 4), np.array([[5.0]]))
    with pytest.raises(ShapeError, match="4 axes"):
        shapes("gather_nd", [(2, 3, 4), (4, 2)])


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 2])
def test_diag_reads_and_makes_diagonals(k):
    check_value(OpCase("diag", (np.array([1.0, 2]),), {"k": k}, lambda x: np.diag(x, k)))
    if abs(k) < 2:
        check_value(OpCase("diag", (data(2, 3),), {"k": k}, lambda x: np.diagonal(x, k)))
        attrs = {"k": k, "axis1": -1, "axis2": 1}
        check_value(OpCase("diag", (data(2, 3, 4),), attrs, lambda x: np.diagonal(x, k, -1, 1)))
    check_gradient(OpCase("diag", (np.array([1.0, 2]),), {"k": k}))
    with pytest.raises(ShapeError, match="no diagonal"):
        shapes("diag", [(2, 3)], k=5)


def test_positions_may_have_another_type():
    for name in ("take", "pick", "gather_nd"):
        op = ops.get(name)
        assert infer_type(op, op.parse({}), ["float16", "int32"], [None]) == (
            ["float16", "int32"],
            ["float16"],
        )
    where = ops.get("where")
    assert infer_type(where, where.parse({}), ["int32", "float64", None], [None])[1] == ["float64"]


def test_gradient_of_gather_adds_up_what_meets():
    index = np.array([[1, 1, 0], [1, 1, 0]], "i4")
    found = run("_backward_gather_nd", np.array([2.0, 3.0, 4.0]), index, shape=(2, 2))
    np.testing.assert_array_equal(found, [[4, 0], [0, 5]])


def test_one_hot_of_no_class_and_diagonals_outside():
    assert run("one_hot", np.ones((2, 3)), depth=0).shape == (2, 3, 0)
    with pytest.raises(ShapeError, match="no diagonal 4"):
        run("diag", np.ones((2, 3)), k=4)
