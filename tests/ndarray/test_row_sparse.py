"""Row-sparse arrays: against dense NumPy arrays, and against what MXNet 1.9.1 answered where that is not obvious."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ShapeError

nd, sparse = mx.nd, mx.nd.sparse
TYPES = ["float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool"]
many = settings(max_examples=200, derandomize=True, deadline=None, database=None)


def two_rows(dtype="float32", ctx=None):
    return sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2), dtype=dtype, ctx=ctx)


TWO_ROWS = np.array([[1, 2], [0, 0], [3, 4], [0, 0]], "float32")


def check(array, values, rows=None, dtype=None):
    """Compare an array with dense values and, if given, the numbers of the stored rows."""
    assert array.stype == ("default" if rows is None else "row_sparse")
    found = array.asnumpy()
    assert found.shape == np.shape(values) == array.shape
    np.testing.assert_array_equal(found, values)
    assert np.dtype(array.dtype) == np.dtype(dtype or found.dtype)
    if rows is not None:
        assert (array.indices.asnumpy().tolist(), array.indices.dtype) == (list(rows), np.int64)
        assert array.data.shape == (len(rows), *array.shape[1:])


@st.composite
def dense_values(draw, types=("float32",), rows=None):
    """NumPy arrays of which many rows are zero; of whole numbers, so that sums are exact in any order."""
    shape = (rows or draw(st.integers(1, 6)), *draw(st.lists(st.integers(1, 3), max_size=2)))
    rng, dtype = np.random.RandomState(draw(st.integers(0, 2**20))), draw(st.sampled_from(list(types)))
    values = rng.randint(-3 if dtype == "float32" and draw(st.booleans()) else 0, 4, shape)
    values[rng.rand(shape[0]) < draw(st.sampled_from([0, 0.5, 1]))] = 0
    return values.astype(dtype)


def row_sparse(values):
    return nd.array(values, dtype=values.dtype).tostype("row_sparse")


def stored(values):
    return np.flatnonzero(values.reshape(len(values), -1).any(1))


@many
@given(dense_values(TYPES), st.randoms(use_true_random=False))
def test_parts_may_come_in_any_order(values, shuffler):
    rows = list(stored(values))
    shuffler.shuffle(rows)
    array = sparse.row_sparse_array((values[rows], rows), shape=values.shape)
    check(array, values, sorted(rows), values.dtype)  # reading it has put the rows in order


def test_types_follow_arrays_and_are_float32_for_lists():
    check(sparse.row_sparse_array(([[1, 2]], [0])), [[1, 2]], [0], "float32")
    check(sparse.row_sparse_array((np.array([[1, 2]]), np.array([1]))), [[0, 0], [1, 2]], [1], "int64")
    check(sparse.row_sparse_array((nd.array([[1]], dtype="int32"), nd.array([1]))), [[0], [1]], [1], "int32")
    check(sparse.row_sparse_array(np.eye(2)), np.eye(2), [0, 1], "float64")
    check(sparse.row_sparse_array([[0, 0], [1, 2]]), [[0, 0], [1, 2]], [1], "float32")
    check(sparse.row_sparse_array([[0, 0], [1, 2]], dtype="int8"), [[0, 0], [1, 2]], [1], "int8")
    check(sparse.row_sparse_array(two_rows(), dtype="float16"), TWO_ROWS, [0, 2], "float16")
    check(sparse.array(two_rows("float64")), TWO_ROWS, [0, 2], "float64")


def test_empty_arrays():
    for array in (
        *(sparse.zeros("row_sparse", (3, 2)), sparse.empty("row_sparse", (3, 2))),
        *(nd.zeros((3, 2), stype="row_sparse"), nd.empty((3, 2), stype="row_sparse")),
        *(sparse.row_sparse_array((3, 2)), sparse.row_sparse_array((np.int32(3), np.int64(2)), shape=(3, 2))),
        sparse.row_sparse_array((np.zeros((0, 2), "f4"), []), shape=(3, 2)),
        *(sparse.row_sparse_array(([], []), shape=(3, 2)), nd.zeros((3, 2)).tostype("row_sparse")),
    ):
        check(array, np.zeros((3, 2)), [], "float32")
    check(sparse.row_sparse_array((2, 3, 4)), np.zeros((2, 3, 4)), [], "float32")
    check(nd.zeros((3, 2), stype="row_sparse", dtype="float16"), np.zeros((3, 2)), [], "float16")
    check(nd.zeros_like(two_rows()), np.zeros((4, 2)), [], "float32")
    check(sparse.zeros("default", (3, 2)), np.zeros((3, 2)))


def test_properties():
    array = two_rows("float16")
    assert (array.shape, array.ndim, array.size, len(array), array.stype) == ((4, 2), 2, 8, 4, "row_sparse")
    assert array[:] is array
    array.wait_to_read()
    check(two_rows().sum(), [10])
    check(two_rows().T, TWO_ROWS.T)
    check(pickle.loads(pickle.dumps(two_rows())), TWO_ROWS, [0, 2])
    check(two_rows().clip(0, 1), TWO_ROWS.clip(0, 1), [0, 2])


def test_data_and_indices_are_copies():
    array = two_rows()
    array.data[:] = 9
    array.indices[:] = 1
    np.asarray(array)[:] = 9
    check(array, TWO_ROWS, [0, 2])
    assert np.asarray(array, dtype="int32").dtype == np.int32
    check(array.astype("int32"), TWO_ROWS, [0, 2], "int32")
    assert array.astype("float32", copy=False) is array
    array[:] = 0
    check(array, np.zeros((4, 2)), range(4))
    unordered = sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 0]), shape=(3, 2))
    unordered.check_format(full_check=False)
    check(unordered, [[3, 4], [1, 2], [0, 0]], [0, 1])


def test_copyto():
    array = two_rows()
    check(array.copyto(nd.ones((4, 2))), TWO_ROWS)
    check(array.copyto(sparse.zeros("row_sparse", (4, 2), dtype="float64")), TWO_ROWS, [0, 2], "float64")
    check(nd.array(TWO_ROWS).copyto(nd.ones((4, 2)).tostype("row_sparse")), TWO_ROWS, [0, 2])
    with pytest.warns(RuntimeWarning, match="are the same array"):
        assert array.copyto(array) is False


@many
@given(dense_values(rows=4), st.integers(0, 9))
def test_assignment(before, seed):
    after = np.random.RandomState(seed).randint(-1, 2, before.shape).astype("f4")
    for value in (after, nd.array(after, dtype="int32"), row_sparse(after)):
        array = row_sparse(before)
        array[:] = value
        check(array, after, stored(after))


@many
@given(
    dense_values(rows=6),
    st.lists(st.integers(0, 5), max_size=8),
    st.sampled_from(["int64", "float32", "int32"]),
)
def test_retain(values, ids, dtype):
    array, rows, want = row_sparse(values), nd.array(ids, dtype=dtype), np.zeros_like(values)
    want[ids] = values[ids]
    kept = sorted(set(ids)) if len(stored(values)) else []
    for found in (array.retain(rows), array.retain(ids), sparse.retain(array, rows)):
        check(found, want, kept)
    check(sparse.retain(nd.array(values), rows), want)


def test_arithmetic_in_place():
    for change, want in [
        (lambda a: a.__iadd__(two_rows()), TWO_ROWS * 2),
        *((lambda a: a.__isub__(nd.ones((4, 2))), TWO_ROWS - 1), (lambda a: a.__imul__(2), TWO_ROWS * 2)),
        *((lambda a: a.__itruediv__(2), TWO_ROWS / 2), (lambda a: a.__iadd__(1), TWO_ROWS + 1)),
        (lambda a: a.__imod__(2), TWO_ROWS % 2),
    ]:
        array = two_rows()
        assert change(array) is array
        check(array, want, stored(want))
    dense = nd.ones((4, 2))
    dense += two_rows()
    check(dense, TWO_ROWS + 1)


def test_results_are_written_into_sparse_arrays():
    for out, operands in [
        (two_rows(), (two_rows(), two_rows())),
        (two_rows(), (nd.array(TWO_ROWS), nd.array(TWO_ROWS))),
        (nd.ones((4, 2)), (two_rows(), two_rows())),
    ]:
        kind = out.stype
        assert nd.elemwise_add(*operands, out=out) is out
        check(out, TWO_ROWS * 2, [0, 2] if kind == "row_sparse" else None)
    drawn = sparse.zeros("row_sparse", (50, 3))
    nd.random.uniform(1, 2, shape=(50, 3), out=drawn)
    assert drawn.asnumpy().min() >= 1


@pytest.mark.parametrize(("old", "new"), [("default", "csr"), ("csr", "default"), ("row_sparse", "default")])
def test_a_changed_storage_type_is_recorded(old, new):
    array = nd.array(TWO_ROWS).tostype(old)
    array.attach_grad()
    with mx.autograd.record():
        other = array.tostype(new)
        loss = mx.nd.dot(other, mx.nd.ones((TWO_ROWS.shape[1], 1))).sum()
    assert other.stype == new
    loss.backward()
    assert (array.grad.asnumpy() == 1).all()


def gradient():
    return sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 3]), shape=(5, 2))


def test_updates_change_stored_rows_and_may_go_elsewhere():
    weight, target = nd.ones((5, 2)), nd.zeros((5, 2))
    nd.sgd_update(weight, gradient(), out=[target], lr=1)
    assert weight.asnumpy().tolist() == [[1, 1]] * 5
    assert target.asnumpy().tolist() == [[1, 1], [0, -1], [1, 1], [-2, -3], [1, 1]]
    nd.sgd_update(weight, gradient(), out=weight, lr=0.5, wd=1)
    assert weight.asnumpy().tolist() == [[1, 1], [0, -0.5], [1, 1], [-1, -1.5], [1, 1]]


def test_states_of_another_shape_are_refused():
    weight = nd.ones((5, 2))
    with pytest.raises(ShapeError, match="history"):
        nd.contrib.group_adagrad_update(weight, gradient(), nd.zeros((4, 1)), out=weight, lr=1)
    assert weight.asnumpy().min() == 1
