"""Indexing agrees with NumPy for values, and with MXNet 1.9.1 about shapes of scalars and about views."""

from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import BoundsError
from helpers.walk import walks

nd = mx.nd


def case(seed, advanced=False):
    """Return a shape, and a key of integers, slices, None, and at most one ellipsis or some index arrays."""
    rng = np.random.RandomState(seed)
    shape = tuple(rng.randint(1, 5, rng.randint(1, 5)))
    block, used = ((2,), (3,), (2, 1), (1, 3), (2, 3))[rng.randint(5)], rng.randint(0, len(shape) + 1)
    arrays = rng.rand(used) < 0.6 * advanced
    dots, key = used if arrays.any() or rng.rand() < 0.5 else rng.randint(0, used + 1), []
    for i in range(used):
        n = shape[i if i < dots else len(shape) - used + i]
        key += [Ellipsis] * (i == dots) + [None] * (rng.rand() < 0.2)
        if arrays[i]:
            key.append(rng.randint(-n, n, [rng.choice([size, 1]) for size in block]))
        elif rng.rand() < 0.5:
            key.append(int(rng.randint(-n, n)))
        else:
            ends = (rng.choice([None, *range(-n - 2, n + 3)]) for _ in range(2))
            key.append(slice(*ends, rng.choice([None, -3, -2, -1, 1, 2, 3])))
    return shape, tuple(key)


def counted(shape):
    return np.arange(int(np.prod(shape)), dtype="float32").reshape(shape)


def as_mxnet(values):
    """MXNet has no scalars without axes: what NumPy makes one is an array of one element."""
    return values.reshape(1) if values.ndim == 0 else values


def converted(key):
    """The same key with NDArrays and lists in place of some NumPy arrays."""
    kinds = (lambda a: nd.array(a, dtype="int32"), nd.array, np.ndarray.tolist, lambda a: a)
    return tuple(kinds[i % 4](k) if isinstance(k, np.ndarray) else k for i, k in enumerate(key))


@walks(product(range(200), [False, True]))
def test_reading_and_writing(seed, advanced):
    shape, key = case(seed, advanced)
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


@walks(range(200))
def test_one_run_of_memory_is_a_view_and_nothing_else(seed):
    shape, key = case(seed)
    array = nd.array(counted(shape))
    part, chosen = array[key], counted(shape)[key].ravel()
    one_run = chosen.size == 0 or np.array_equal(chosen, chosen[0] + np.arange(chosen.size))
    if chosen.size:
        part[:] = -5
        assert bool((array.asnumpy().ravel()[chosen.astype(int)] == -5).all()) == one_run
        assert (part.pinned and array.pinned) or not one_run or part is array


MASK = np.array([True, False, True])
MASKS = [np.array([True, False]), [False, True], np.array([MASK, ~MASK]), (slice(None), MASK), (0, MASK)]


@pytest.mark.parametrize("key", MASKS)
def test_masks_select_as_in_numpy(key):
    base = counted((2, 3))
    array, want = nd.array(base), base[key]
    assert array[key].shape == want.shape
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


BAD_POSITIONS = [
    (2, "index 2 is out of bounds for axis 0 with size 2"),
    *(((0, 5), "index 5 is out of bounds for axis 1 with size 3"), ((0, 1, 2), "too many indices")),
    *(((Ellipsis, Ellipsis), "more than one ellipsis"), (nd.array([0, -3]), "index -3 is out of bounds")),
    *((np.array([True, False, True]), "mask of shape"), (([0, 1], [0, 1, 2]), "do not broadcast")),
]


@pytest.mark.parametrize(("key", "words"), BAD_POSITIONS)
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
    assert (array[1:0].shape, array[[]].shape, array[:, 5:].shape) == ((0, 3), (0, 3), (2, 0))
    array[1:0] = 5
    array[[]] = 5
    np.testing.assert_array_equal(array.asnumpy(), counted((2, 3)))


def test_slice_assign():
    array = nd.array(counted((2, 3)))
    assert array.slice_assign_scalar(9, (0,), (1,), None) is array
    array.slice_assign(nd.array([[7], [8]]), (None, 0), (None, 1), (1, 1))
    np.testing.assert_array_equal(array.asnumpy(), [[7, 9, 9], [8, 4, 5]])


def test_integers_select_scalars_with_np_shape():
    array = nd.array(counted((2, 3)))
    with mx.util.np_shape(True):
        found = [array[1, 2], array[1][2], nd.array([3, 4, 5])[-1]]
        assert [each.shape for each in found] == [()] * 3
        assert [each.asscalar() for each in found] == [array[1, 2].asscalar()] * 2 + [5]
        assert [each.shape for each in nd.array([3, 4])] == [()] * 2
        assert nd.stack(array[0, 0], array[1, 1]).shape == (2,)
        assert array.slice_axis(axis=0, begin=1, end=1).shape == (0, 3)
    assert array[1, 2].shape == (1,)
