"""Indexing agrees with NumPy for values, and with MXNet 1.9.1 about shapes of scalars and about views."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, ShapeError

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
    used = draw(st.integers(0, len(shape)))
    dots = draw(st.booleans())
    at = draw(st.integers(0, used)) if dots else used
    key = []
    for i in range(used):
        axis = i if i < at else len(shape) - used + i
        if i == at and dots:
            key.append(Ellipsis)
        if draw(st.integers(0, 5)) == 0:
            key.append(None)
        length = shape[axis]
        key.append(draw(slices(length) if draw(st.booleans()) else st.integers(-length, length - 1)))
    return tuple(key)


@st.composite
def advanced_keys(draw, shape):
    """A tuple with one or more index arrays, beside integers, slices and None."""
    block = draw(st.sampled_from([(2,), (3,), (2, 1), (1, 3), (2, 3)]))
    arrays = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    key = []
    for axis in range(max(arrays) + 1):
        length = shape[axis]
        if draw(st.integers(0, 6)) == 0:
            key.append(None)
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


def check_read(shape, key, own_key):
    want = as_mxnet(counted(shape)[key])
    got = nd.array(counted(shape))[own_key]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.asnumpy(), want)
    assert got.tensor.is_contiguous()


def check_write(shape, key, own_key):
    want = counted(shape)
    selected = want[key].shape
    filler = -1 - np.arange(int(np.prod(selected)), dtype="float32").reshape(selected)
    want[key] = filler
    got = nd.array(counted(shape))
    got[own_key] = nd.array(filler)
    np.testing.assert_array_equal(got.asnumpy(), want)
    want[key] = 7
    got[own_key] = 7
    np.testing.assert_array_equal(got.asnumpy(), want)


@many
@given(cases(basic_keys))
def test_basic_read(case):
    check_read(*case, case[1])


@many
@given(cases(basic_keys))
def test_basic_write(case):
    check_write(*case, case[1])


@many
@given(cases(advanced_keys))
def test_advanced_read(case):
    check_read(*case, converted(case[1]))


@many
@given(cases(advanced_keys))
def test_advanced_write(case):
    shape, key = case
    # an element that is selected twice may keep either value
    positions = counted(shape)[key].ravel()
    if len(set(positions.tolist())) == positions.size:
        check_write(shape, key, converted(key))


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


def test_mask_may_be_an_array_of_bools():
    array = nd.array(counted((2, 3)))
    mask = nd.array([True, False], dtype="bool")
    assert array[mask].shape == (1, 3)


def test_comparison_is_not_a_mask():
    # as in MXNet, whose comparisons give 0 and 1 in the operands' type: these are row numbers
    array = nd.array([[1, 2, 3], [4, 5, 6]])
    assert array[array > 2].shape == (2, 3, 3)


@pytest.mark.parametrize("key", [True, np.True_])
def test_a_single_bool_is_a_number(key):
    np.testing.assert_array_equal(nd.array(counted((2, 3)))[key].asnumpy(), [3, 4, 5])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (2, "index 2 is out of bounds for axis 0 with size 2"),
        (-3, "index -3 is out of bounds"),
        ((0, 5), "index 5 is out of bounds for axis 1 with size 3"),
        ((0, 1, 2), "too many indices"),
        ((Ellipsis, Ellipsis), "more than one ellipsis"),
        ([5, 0], "index 5 is out of bounds"),
        (nd.array([0, -3]), "index -3 is out of bounds"),
        (np.array([True, False, True]), "mask of shape"),
        (([0, 1], [0, 1, 2]), "do not broadcast"),
    ],
)
def test_bad_positions(key, words):
    array = nd.array(counted((2, 3)))
    with pytest.raises(BoundsError, match=words) as caught:
        array[key]
    assert isinstance(caught.value, IndexError)
    with pytest.raises(BoundsError, match=words):
        array[key] = 0
    np.testing.assert_array_equal(array.asnumpy(), counted((2, 3)))


@pytest.mark.parametrize(
    "key", [1.0, "x", np.float32(1), [0.5], [[0], [0, 1]], slice(0.5, 2), nd.array([0.5])]
)
def test_keys_of_wrong_kind(key):
    with pytest.raises(ArgumentError):
        nd.array(counted((2, 3)))[key]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (slice(None), np.zeros((3, 2))),
        (slice(None), np.zeros((6,))),
        (slice(0, 1), np.zeros((2, 3))),
        ((slice(None), 0), np.zeros((2, 1))),
        ([0, 1], np.zeros((3, 3))),
    ],
)
def test_values_that_do_not_fit(key, value):
    array = nd.array(counted((2, 3)))
    with pytest.raises(ShapeError, match="cannot write an array of shape"):
        array[key] = nd.array(value)
    np.testing.assert_array_equal(array.asnumpy(), counted((2, 3)))


@pytest.mark.parametrize("value", [None, "text", {}, object()])
def test_values_that_are_no_numbers(value):
    array = nd.zeros((2,))
    with pytest.raises(TypeError):
        array[:] = value


def test_leading_axes_of_one_are_dropped():
    array = nd.array(counted((2, 3)))
    array[:] = np.ones((1, 1, 2, 3))
    array[0] = nd.zeros((1, 3))
    array[1, 1] = nd.array([4])
    np.testing.assert_array_equal(array.asnumpy(), [[0, 0, 0], [1, 4, 1]])


def test_assignment_converts_to_the_type_of_the_array():
    whole = nd.zeros((3,), dtype="int32")
    whole[:] = 2.7
    np.testing.assert_array_equal(whole.asnumpy(), [2, 2, 2])
    whole[:] = nd.array([1.5, -2.5, 3.5])
    np.testing.assert_array_equal(whole.asnumpy(), [1, -2, 3])
    small = nd.zeros((2,), dtype="uint8")
    small[:] = [300, -1]
    np.testing.assert_array_equal(small.asnumpy(), [44, 255])
    small[0] = 257
    assert small[0].asscalar() == 1
    with pytest.raises(mx.base.NonFiniteError):
        whole[0] = float("nan")


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


def test_whole_slice_is_the_array_itself():
    array = nd.zeros((2,))
    assert array[:] is array
    assert not array.pinned


def test_slice_assign():
    array = nd.array(counted((2, 3)))
    assert array.slice_assign_scalar(9, (0,), (1,), None) is array
    array.slice_assign(nd.array([[7], [8]]), (None, 0), (None, 1), (1, 1))
    np.testing.assert_array_equal(array.asnumpy(), [[7, 9, 9], [8, 4, 5]])
    with pytest.raises(ArgumentError):
        array.slice_assign_scalar(1, (0,), (1, 2), None)


def test_iteration_gives_rows():
    rows = list(nd.array(counted((2, 3))))
    assert [r.shape for r in rows] == [(3,), (3,)]
    assert [v.asscalar() for v in nd.array([1, 2])] == [1, 2]
    with pytest.raises(TypeError):
        len(nd.array(5))


@pytest.mark.parametrize(
    "key",
    [
        (slice(None, None, -1), [0, 2]),
        ([1, 0], slice(None, None, -2), [0, 3]),
        (slice(None, None, -1), slice(None, None, -1), nd.array([3, 1])),
    ],
)
def test_writing_through_arrays_beside_reversed_slices(key):
    plain = tuple(k.asnumpy().astype(int) if isinstance(k, mx.nd.NDArray) else k for k in key)
    want = counted((2, 3, 4))
    filler = -1 - counted(want[plain].shape)
    want[plain] = filler
    array = nd.array(counted((2, 3, 4)))
    array[key] = filler
    np.testing.assert_array_equal(array.asnumpy(), want)
