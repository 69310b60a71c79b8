"""Indexing agrees with NumPy for values, and with MXNet 1.9.1 about shapes of scalars and about views."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import BoundsError

nd = mx.nd
many = settings(max_examples=200, derandomize=True, deadline=None, database=None)


@st.composite
def slices(draw, length):
    bound = st.none() | st.integers(-length - 2, length + 2)
    step = st.none() | st.integers(-3, 3).filter(bool)
    return slice(draw(bound), draw(bound), draw(step))


@st.composite
def basic_keys(draw, shape):
    """A tuple of integers, slices, None and at most one ellipsis, valid for `shape`."""
    used, dots = draw(st.integers(0, len(shape))), draw(st.booleans())
    at, key = draw(st.integers(0, used)) if dots else used, []
    for i in range(used):
        length = shape[i if i < at else len(shape) - used + i]
        key += [Ellipsis] * (dots and i == at) + [None] * (draw(st.integers(0, 5)) == 0)
        key.append(draw(slices(length) if draw(st.booleans()) else st.integers(-length, length - 1)))
    return tuple(key)


@st.composite
def advanced_keys(draw, shape):
    """A tuple with one or more index arrays, beside integers, slices and None."""
    block = draw(st.sampled_from([(2,), (3,), (2, 1), (1, 3), (2, 3)]))
    arrays, key = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)), []
    for axis in range(max(arrays) + 1):
        length = shape[axis]
        key += [None] * (draw(st.integers(0, 6)) == 0)
        if axis in arrays:
            trimmed = tuple(draw(st.sampled_from([n, 1])) for n in block)
            size = int(np.prod(trimmed))
            values = draw(st.lists(st.integers(-length, length - 1), min_size=size, max_size=size))
            key.append(np.array(values).reshape(trimmed))
        else:
            key.append(draw(slices(length) if draw(st.booleans()) else st.integers(-length, length - 1)))
    return tuple(key)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@st.composite
def cases(draw, keys):
    shape = draw(shapes)
    return shape, draw(keys(shape))


def counted(shape):
    return np.arange(int(np.prod(shape)), dtype="float32").reshape(shape)


def as_mxnet(values):
    """MXNet has no scalars without axes: what NumPy makes one is an array of one element."""
    return values.reshape(1) if values.ndim == 0 else values


def converted(key):
    """The same key with NDArrays and lists in place of some NumPy arrays."""
    kinds = (lambda a: nd.array(a, dtype="int32"), nd.array, np.ndarray.tolist, lambda a: a)
    return tuple(kinds[i % 4](k) if isinstance(k, np.ndarray) else k for i, k in enumerate(key))


@many
@given(cases(basic_keys) | cases(advanced_keys))
def test_reading_and_writing(case):
    shape, key = case
    own, values = converted(key), counted(shape)
    got, want = nd.array(values)[own], as_mxnet(values[key])
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.asnumpy(), want)
    assert got.tensor.is_contiguous()
    array, selected = nd.array(values), values[key]
    if len(np.unique(selected)) < selected.size:  # an element that is selected twice may keep either value
        return
    for filler in (-1 - counted(selected.shape), 7.0):
        values[key] = filler
        array[own] = filler if isinstance(filler, float) else nd.array(filler)
        np.testing.assert_array_equal(array.asnumpy(), values)


@many
@given(cases(basic_keys))
def test_one_run_of_memory_is_a_view_and_nothing_else(case):
    shape, key = case
    array = nd.array(counted(shape))
    part = array[key]
    chosen = counted(shape)[key].ravel()
    one_run = chosen.size == 0 or np.array_equal(chosen, chosen[0] + np.arange(chosen.size))
    if chosen.size:
        part[:] = -5
        changed = (array.asnumpy().ravel()[chosen.astype(int)] == -5).all()
        assert bool(changed) == one_run
        assert (part.pinned and array.pinned) or not one_run or part is array


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        (np.array([True, False]), (1, 3)),
        ([False, True], (1, 3)),
        (np.array([[True, False, True], [False, False, True]]), (3,)),
        ((slice(None), np.array([True, False, True])), (2, 2)),
        ((0, np.array([True, False, True])), (2,)),
    ],
)
def test_masks_select_as_in_numpy(key, shape):
    base = counted((2, 3))
    array = nd.array(base)
    want = base[key]
    assert array[key].shape == shape == want.shape
    np.testing.assert_array_equal(array[key].asnumpy(), want)
    base[key] = 9
    array[key] = 9
    np.testing.assert_array_equal(array.asnumpy(), base)


def test_what_is_a_mask():
    array = nd.array([[1, 2, 3], [4, 5, 6]])
    assert array[nd.array([True, False], dtype="bool")].shape == (1, 3)
    # as in MXNet, whose comparisons give 0 and 1 in the operands' type: these are row numbers
    assert array[array > 2].shape == (2, 3, 3)
    for key in (True, np.True_):  # a single bool is a number
        np.testing.assert_array_equal(array[key].asnumpy(), [4, 5, 6])
    whole = nd.zeros((2,))
    assert whole[:] is whole
    assert not whole.pinned


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (2, "index 2 is out of bounds for axis 0 with size 2"),
        ((0, 5), "index 5 is out of bounds for axis 1 with size 3"),
        ((0, 1, 2), "too many indices"),
        ((Ellipsis, Ellipsis), "more than one ellipsis"),
        (nd.array([0, -3]), "index -3 is out of bounds"),
        (np.array([True, False, True]), "mask of shape"),
        (([0, 1], [0, 1, 2]), "do not broadcast"),
    ],
)
def test_bad_positions(key, words):
    array = nd.array(counted((2, 3)))
    with pytest.raises(BoundsError, match=words):
        array[key]
    with pytest.raises(BoundsError, match=words):
        array[key] = 0
    np.testing.assert_array_equal(array.asnumpy(), counted((2, 3)))


def test_overlapping_parts_are_copied_as_in_numpy():
    array = nd.array([1, 2, 3, 4])
    array[1:] = array[:-1]
    np.testing.assert_array_equal(array.asnumpy(), [1, 1, 2, 3])
    left, right = array[:-1], array[1:]
    left[:] = right
    np.testing.assert_array_equal(array.asnumpy(), [1, 2, 3, 3])


def test_empty_selections():
    array = nd.array(counted((2, 3)))
    assert array[1:0].shape == (0, 3)
    assert array[[]].shape == (0, 3)
    assert array[:, 5:].shape == (2, 0)
    array[1:0] = 5
    array[[]] = 5
    np.testing.assert_array_equal(array.asnumpy(), counted((2, 3)))


def test_slice_assign():
    array = nd.array(counted((2, 3)))
    assert array.slice_assign_scalar(9, (0,), (1,), None) is array
    array.slice_assign(nd.array([[7], [8]]), (None, 0), (None, 1), (1, 1))
    np.testing.assert_array_equal(array.asnumpy(), [[7, 9, 9], [8, 4, 5]])


def test_index_arrays_beside_a_negative_step():
    array, base = nd.array(counted((3, 4))), counted((3, 4))
    array[::-1, [0, 2]] = base[::-1, [0, 2]] = [[-1, -2], [-3, -4], [-5, -6]]
    np.testing.assert_array_equal(array.asnumpy(), base)
