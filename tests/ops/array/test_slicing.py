"""Parts of arrays: against Python's own slices."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, gradients, run, shapes


def data(*shape):
    return np.arange(int(np.prod(shape)), dtype="f8").reshape(shape)


@st.composite
def parts(draw):
    """A shape and ranges over its leading axes, none of them empty."""
    dims = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ranges = []
    for d in dims[: draw(st.integers(1, len(dims)))]:
        step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
        ends = [draw(st.none() | st.integers(-d - 2, d + 2)) for _ in range(2)]
        assume(len(range(*slice(*ends, step).indices(d))))
        ranges.append((*ends, step))
    begin, end, step = zip(*ranges, strict=True)
    attrs = {"begin": begin, "end": end, **({} if set(step) == {None} else {"step": step})}
    return tuple(dims), attrs, tuple(slice(*each) for each in ranges)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(parts())
def test_slice_is_pythons(case):
    dims, attrs, index = case
    check_value(OpCase("slice", (data(*dims),), attrs, lambda x: x[index]))
    weights = data(*dims)[index] + 1.0
    expected = np.zeros(dims)
    expected[index] = weights
    np.testing.assert_array_equal(gradients("slice", data(*dims), head=weights, **attrs)[0], expected)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(parts())
def test_slice_assign_writes_a_part_of_a_copy(case):
    dims, attrs, index = case
    part = -1.0 - data(*dims)[index]

    def written(x, value):
        x = x.copy()
        x[index] = value
        return x

    check_value(OpCase("_slice_assign", (data(*dims), part), attrs, written))
    check_value(
        OpCase("_slice_assign_scalar", (data(*dims),), {"scalar": 5.5, **attrs}, lambda x: written(x, 5.5))
    )
    left, right = gradients("_slice_assign", data(*dims), part, **attrs)
    np.testing.assert_array_equal(left, written(np.ones(dims), 0))
    np.testing.assert_array_equal(right, 1)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_slice_axis_is_pythons_or_refused(dims, draw):
    axis = draw.draw(st.integers(-len(dims), len(dims) - 1))
    length = dims[axis]
    begin = draw.draw(st.integers(-length - 1, length))
    end = draw.draw(st.none() | st.integers(-length - 1, length + 1))
    attrs = {"axis": axis, "begin": begin, "end": end}
    index = [slice(None)] * len(dims)
    index[axis] = slice(begin, end)
    reaches_beyond = begin < -length or end is not None and not -length <= end <= length
    if reaches_beyond or not data(*dims)[tuple(index)].size:
        with pytest.raises(OpError, match="slice_axis"):
            run("slice_axis", data(*dims), **attrs)
        with pytest.raises(ShapeError, match="slice_axis"):
            shapes("slice_axis", [tuple(dims)], **attrs)
    else:
        check_value(OpCase("slice_axis", (data(*dims),), attrs, lambda x: x[tuple(index)]))


def test_slice_axis_fills_the_other_axes_from_the_result():
    assert shapes("slice_axis", [(0, 5, 0)], [(6, 2, 8)], axis=1, begin=0, end=2)[0] == [(6, 5, 8)]
    assert shapes("slice_axis", [(0, 4, 8)], axis=1, begin=0, end=2)[1] == [(0, 2, 8)]
    assert shapes("slice", [(0, 4, 8)], begin=(0, 1), end=(2, 3))[1] == [(0, 2, 8)]


@pytest.mark.parametrize(
    ("attrs", "match"),
    [
        ({"begin": (0,), "end": (2,), "step": (0,)}, "step"),
        ({"begin": (0, 1), "end": (2,)}, "equal lengths"),
        ({"begin": (0, 0), "end": (2, 2), "step": (1,)}, "equal lengths"),
        ({"begin": (0,) * 4, "end": (1,) * 4}, "at most 3"),
        ({"begin": (1,), "end": (1,)}, "is empty"),
    ],
)
def test_slices_that_mean_nothing_are_refused(attrs, match):
    with pytest.raises(ShapeError, match=match):
        shapes("slice", [(2, 3, 4)], **attrs)


def test_slice_assign_refuses_another_shape():
    attrs = {"begin": (0, 1), "end": (2, 3)}
    with pytest.raises(ShapeError, match=r"\(1, 2\)"):
        run("_slice_assign", data(3, 3), data(1, 2), **attrs)
    with pytest.raises(ShapeError):
        shapes("_slice_assign", [(3, 3), (1, 2)], **attrs)
    assert shapes("_slice_assign", [(3, 3), None], **attrs) == ([(3, 3), (2, 2)], [(3, 3)])


@pytest.mark.parametrize(
    ("other", "attrs", "index"),
    [
        ((1, 2, 3), {}, np.s_[:1, :2, :3]),
        ((1, 2), {"axes": (0, 1)}, np.s_[:1, :2]),
        ((1, 9, 2), {"axes": (0, -1)}, np.s_[:1, :, :2]),
    ],
)
def test_slice_like_takes_sizes_of_the_other(other, attrs, index):
    case = OpCase("slice_like", (data(2, 3, 4), data(*other)), attrs, lambda x, y: x[index])
    check_value(case)
    check_gradient(case, tol=1e-4)


def test_slice_like_refuses_what_it_cannot_cut():
    with pytest.raises(ShapeError, match="equal ranks"):
        shapes("slice_like", [(2, 3, 4), (1, 2)])
    with pytest.raises(OpError, match="shorter"):
        run("slice_like", data(2, 3, 4), data(1, 5, 1))


def test_only_the_shape_of_the_like_counts():
    x = np.arange(12.0, dtype="f4").reshape(3, 4)
    found = run("slice_like", x, np.zeros((2, 3), "i4"))
    np.testing.assert_array_equal(found, x[:2, :3])
    assert found.dtype == np.float32
    data = mx.nd.array(x)
    assert mx.nd.slice_like(data, mx.nd.zeros((2, 3), dtype="int32")).shape == (2, 3)
    assert mx.nd.broadcast_like(mx.nd.ones((3, 1)), mx.nd.zeros((3, 2), dtype="int8")).dtype is np.float32


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 2**15), min_size=1, max_size=4), st.data())
def test_there_and_back(sides, data):
    sides = tuple(sides)
    flat = np.array(data.draw(st.lists(st.integers(0, int(np.prod(sides)) - 1), min_size=1, max_size=5)))
    places = run("_unravel_index", flat, shape=sides)
    np.testing.assert_array_equal(places, np.stack(np.unravel_index(flat, sides)))
    np.testing.assert_array_equal(run("_ravel_multi_index", places, shape=sides), flat)


def test_positions_beyond_32_bits_are_exact():
    sides = (2**20,) * 3
    flat = np.array([2**59 + 12345, 2**60 - 1])
    places = run("_unravel_index", flat, shape=sides)
    np.testing.assert_array_equal(places, [[2**19, 2**20 - 1], [0, 2**20 - 1], [12345, 2**20 - 1]])
    np.testing.assert_array_equal(run("_ravel_multi_index", places, shape=sides), flat)


def test_the_first_side_may_be_unknown():
    data = mx.nd.array([5, 100], dtype="int64")
    found = mx.nd.unravel_index(data, shape=(-1, 4))
    assert found.asnumpy().tolist() == [[1, 25], [1, 0]]
    assert mx.nd.ravel_multi_index(found, shape=(-1, 4)).asnumpy().tolist() == [5, 100]


def test_several_axes_of_positions():
    flat = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(
        run("_unravel_index", flat, shape=(3, 2)), np.stack(np.unravel_index(flat, (3, 2)))
    )


def test_shapes_go_both_ways():
    assert shapes("_ravel_multi_index", [None], [(7,)], shape=(3, 2))[0] == [(2, 7)]
    assert shapes("_unravel_index", [None], [(2, 7)], shape=(3, 2))[0] == [(7,)]


def test_what_is_refused():
    with pytest.raises(OpError, match="shape is None"):
        mx.nd.ravel_multi_index(mx.nd.ones((2, 3)))
    with pytest.raises(ShapeError, match="expected"):
        mx.nd.ravel_multi_index(mx.nd.ones((2, 3)), shape=(1, 2, 3))
