"""Matrices in compressed sparse row form: creation, conversion, rows, files' and pickles' round trips."""

import io
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx

nd, sparse = mx.nd, mx.nd.sparse
many = settings(max_examples=200, derandomize=True, deadline=None, database=None)


@st.composite
def matrices(draw):
    rng = np.random.RandomState(draw(st.integers(0, 2**20)))
    values = rng.randint(-3, 4, (draw(st.integers(1, 6)), draw(st.integers(1, 6))))
    return (values * (rng.rand(*values.shape) < 0.6)).astype(draw(st.sampled_from(["f4", "f8", "i4"])))


def check(array, values):
    assert (array.stype, array.shape, array.dtype) == ("csr", values.shape, values.dtype)
    np.testing.assert_array_equal(array.asnumpy(), values)
    starts, columns = array.indptr.asnumpy(), array.indices.asnumpy()
    rows, want = values.nonzero()
    np.testing.assert_array_equal(columns, want)
    np.testing.assert_array_equal(starts, np.searchsorted(rows, np.arange(len(values) + 1)))
    np.testing.assert_array_equal(array.data.asnumpy(), values[values != 0])
    array.check_format()


@many
@given(matrices(), st.integers(-7, 7), st.integers(-7, 7))
def test_every_way_to_a_matrix(values, start, stop):
    array = nd.array(values, dtype=values.dtype).tostype("csr")
    rows, columns = values.nonzero()
    file = io.BytesIO()
    nd.serial.write(file, [array])
    for found in (
        *(array, sparse.csr_matrix(values)),
        sparse.csr_matrix((array.data, array.indices, array.indptr), shape=values.shape),
        sparse.csr_matrix((values[values != 0], (rows, columns)), shape=values.shape),
        *(sparse.csr_matrix(array), nd.array(array), pickle.loads(pickle.dumps(array))),
        *(nd.load_frombuffer(file.getvalue())[0], array.copyto(mx.cpu(1)), array.tostype("csr")),
    ):
        check(found, values)
    np.testing.assert_array_equal(array.tostype("default").asnumpy(), values)
    check(array[start:stop], values[start:stop]) if len(values[start:stop]) else None
    row = start % len(values)
    check(array[row], values[row : row + 1])
    check(array[row - len(values)], values[row : row + 1])


def test_scipy_matrices_come_in_order_and_without_repetition():
    scipy = pytest.importorskip("scipy.sparse")
    parts = (np.array([1.0, 2, 3, 4, 5, 6, 1]), np.array([0, 2, 2, 0, 1, 2, 1]), np.array([0, 2, 3, 7]))
    for make in (nd.array, sparse.array):
        found = make(scipy.csr_matrix(parts, shape=(3, 3)))
        check(found, np.array([[1.0, 0, 2], [0, 0, 3], [4, 6, 6]]))
        back = found.asscipy()
        assert back.dtype == np.float64
        np.testing.assert_array_equal(back.toarray(), found.asnumpy())


def test_coordinates_given_twice_add_up():
    check(sparse.csr_matrix(([1, 2, 3], ([1, 0, 1], [2, 0, 2]))), np.array([[2, 0, 0], [0, 0, 4]], "f4"))


def test_changing_a_matrix():
    array = sparse.zeros("csr", (2, 2))
    check(array, np.zeros((2, 2), "f4"))
    array[:] = np.eye(2)
    check(array, np.eye(2, dtype="f4"))
    array += array
    check(array * 2, np.eye(2, dtype="f4") * 4)
    check(array.astype("int32"), np.eye(2, dtype="i4") * 2)
    assert repr(array) == "\n<CSRNDArray 2x2 @cpu(0)>"
    nd.elemwise_add(nd.ones((2, 2)), nd.ones((2, 2)), out=array)
    check(array, np.full((2, 2), 2, "f4"))
    np.testing.assert_array_equal(nd.dot(array, nd.ones((2, 1))).asnumpy(), [[4], [4]])


def test_a_matrix_of_one_row_times_a_dense_one():
    row, dense = nd.array([[0, 4, 6.0]]).tostype("csr"), nd.array([[1, 2, 3.0]])
    np.testing.assert_array_equal(nd.broadcast_mul(row, dense).asnumpy(), [[0, 8, 18]])
    np.testing.assert_array_equal(nd.broadcast_div(row, dense).asnumpy(), [[0, 2, 2]])


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
def test_norm_of_integers(stype):
    array = nd.array([[0, 3], [4, 0]], dtype="int32").tostype(stype)
    assert sparse.norm(array).asnumpy().tolist() == [5]
    assert sparse.norm(sparse.zeros(stype, (2, 2), dtype="int64")).asnumpy().tolist() == [0]


def test_equal_columns_add_up():
    array = sparse.csr_matrix(([1, 2], [0, 0], [0, 2]), shape=(1, 2))
    for found in (array, array[0:1], array.tostype("default"), sparse.dot(array, nd.array([[1, 0], [0, 1]]))):
        assert found.asnumpy().tolist() == [[3, 0]]


def test_numbers_on_the_left():
    values = np.array([[1.0, 2.0], [4.0, -1.0]])
    array = nd.array(values).tostype("csr")
    np.testing.assert_array_equal(sparse.subtract(1, array).asnumpy(), 1 - values)
    np.testing.assert_array_equal(sparse.divide(2, array).asnumpy(), 2 / values)
