"""Making arrays."""

import numpy as np
import pytest
import torch

import dpmodule as mx

nd = mx.nd


SOURCES = [
    *([[1, 2], [3, 4]], ((1.0, 2.0), (3.0, 4.0)), [range(1, 3), range(3, 5)], torch.tensor([[1, 2], [3, 4]])),
    *(np.array([[1, 2], [3, 4]]), np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])),
    [np.array([1, 2]), np.array([3, 4])],
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_array_is_float32_whatever_the_source(source):
    array = nd.array(source)
    assert array.dtype is np.float32
    np.testing.assert_array_equal(array.asnumpy(), [[1, 2], [3, 4]])
    assert array.tensor.is_contiguous()
    assert not array.pinned


def test_array_copies():
    for source in (np.zeros(2, "float32"), torch.zeros(2), nd.zeros((2,))):
        nd.array(source)[:] = 5
        assert float(np.asarray(source).sum()) == 0


def test_array_of_numbers():
    assert (nd.array(5).shape, nd.array([]).shape, nd.array(np.float64(2)).asscalar()) == ((), (0,), 2)
    np.testing.assert_array_equal(nd.array([300, -1, 2.7], dtype="uint8").asnumpy(), [44, 255, 2])
    assert nd.array([1, 2], dtype=np.dtype("int8")).dtype is np.int8
    assert nd.array([1], dtype=torch.int64).dtype is np.int64


def test_filled():
    with mx.np_shape():
        np.testing.assert_array_equal(nd.zeros((2, 0)).asnumpy(), np.zeros((2, 0)))
        assert nd.zeros((), dtype=None).dtype is np.float32
    np.testing.assert_array_equal(nd.ones((2,), dtype="int8").asnumpy(), np.ones(2, "int8"))
    made = nd.full((2,), 7, dtype="int32"), nd.full((2, 2), [1, 2]), nd.full((2,), 300, dtype="uint8")
    assert [each.asnumpy().tolist() for each in made] == [[7, 7], [[1, 2], [1, 2]], [44, 44]]
    assert nd.zeros((2,), mx.cpu(1)).context == nd.zeros((2,), ctx="cpu(1)").context == mx.cpu(1)


def test_filling_an_array_that_exists():
    out = nd.full((2,), 3)
    for made in (nd.zeros((2,), out=out), nd.full((2,), 7, out=out)):
        assert made is out
    assert (out.asnumpy().tolist(), nd.zeros((2,), out=out).asnumpy().tolist()) == ([7, 7], [0, 0])
    like = nd.array([1, 2], dtype="int32")
    assert (nd.zeros_like(like).dtype, nd.ones_like(like).asnumpy().tolist()) == (np.int32, [1, 1])


def test_linspace_and_eye():
    for options in ({}, {"endpoint": False}):
        made, want = (library.linspace(0, 1, 5, **options) for library in (nd, np))
        np.testing.assert_allclose(made.asnumpy(), want, rtol=1e-6)
    assert nd.linspace(0, 1, 0).shape == (0,)
    np.testing.assert_array_equal(nd.eye(2, 3, 1).asnumpy(), np.eye(2, 3, 1))
    np.testing.assert_array_equal(nd.eye(3, 0, -1, dtype="int32").asnumpy(), np.eye(3, k=-1))
    assert nd.eye(0).shape == (0, 0)


def test_concatenate():
    left, right = nd.array([[1, 2]]), nd.array([[3, 4]])
    np.testing.assert_array_equal(nd.concatenate([left, right]).asnumpy(), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(nd.concatenate([left, right], axis=1).asnumpy(), [[1, 2, 3, 4]])
    assert nd.concatenate([left], always_copy=False) is left
    assert nd.concatenate([left]) is not left


def test_onehot_encode():
    out = nd.full((2, 3), 9)
    assert nd.onehot_encode(nd.array([0, 2]), out) is out
    np.testing.assert_array_equal(out.asnumpy(), [[1, 0, 0], [0, 0, 1]])


def test_texts_that_hold_numbers_are_read():
    assert nd.array(["1", "-2.5"], dtype="float32").asnumpy().tolist() == [1.0, -2.5]
    found = nd.array(np.array([["1", "2"]]), dtype="int32")
    assert (found.dtype, found.asnumpy().tolist()) == (np.int32, [[1, 2]])
