"""Row-sparse arrays: against dense NumPy arrays, and against what MXNet 1.9.1 answered where that is not obvious."""

import copy
import io
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, DTypeError, MXNetError, OpError, ShapeError

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
        assert array.indices.asnumpy().tolist() == list(rows)
        assert array.indices.dtype == np.int64
        assert array.data.shape == (len(rows), *array.shape[1:])


@st.composite
def dense_values(draw, types=("float32",), rows=None):
    """NumPy arrays of which many rows are zero; of whole numbers, so that sums are exact in any order."""
    shape = (rows or draw(st.integers(1, 6)), *draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = np.random.RandomState(draw(st.integers(0, 2**20)))
    values = rng.randint(0 if draw(st.booleans()) else -3, 4, shape)
    values[rng.rand(shape[0]) < draw(st.sampled_from([0, 0.5, 1]))] = 0
    return (
        np.abs(values).astype(draw(st.sampled_from(list(types))))
        if types != ("float32",)
        else values.astype("f4")
    )


def row_sparse(values):
    return nd.array(values, dtype=values.dtype).tostype("row_sparse")


def stored(values):
    return np.flatnonzero(values.reshape(len(values), -1).any(1))


# --- creation


@many
@given(dense_values(TYPES))
def test_dense_arrays_there_and_back(values):
    array = row_sparse(values)
    check(array, values, stored(values), values.dtype)
    np.testing.assert_array_equal(array.data.asnumpy(), values[stored(values)])
    check(array.tostype("default"), values, dtype=values.dtype)
    array.check_format()


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
        sparse.zeros("row_sparse", (3, 2)),
        sparse.empty("row_sparse", (3, 2)),
        nd.zeros((3, 2), stype="row_sparse"),
        nd.empty((3, 2), stype="row_sparse"),
        sparse.row_sparse_array((3, 2)),
        sparse.row_sparse_array((np.int32(3), np.int64(2)), shape=(3, 2)),
        sparse.row_sparse_array((np.zeros((0, 2), "f4"), []), shape=(3, 2)),
        sparse.row_sparse_array(([], []), shape=(3, 2)),
        nd.zeros((3, 2)).tostype("row_sparse"),
    ):
        check(array, np.zeros((3, 2)), [], "float32")
    check(sparse.row_sparse_array((2, 3, 4)), np.zeros((2, 3, 4)), [], "float32")
    check(nd.zeros((3, 2), stype="row_sparse", dtype="float16"), np.zeros((3, 2)), [], "float16")
    check(nd.zeros_like(two_rows()), np.zeros((4, 2)), [], "float32")
    check(sparse.zeros("default", (3, 2)), np.zeros((3, 2)))


def test_special_values():
    check(nd.array([[np.nan, 0], [0, 0]]).tostype("row_sparse"), [[np.nan, 0], [0, 0]], [0])
    check(nd.array([[-0.0, 0], [0, 0]]).tostype("row_sparse"), np.zeros((2, 2)), [])
    check(nd.array([1, 0, 2]).tostype("row_sparse"), [1, 0, 2], [0, 2])


def test_contexts():
    there = two_rows(ctx=mx.cpu(1))
    assert there.context == there.indices.context == there.data.context == mx.cpu(1)
    assert there.as_in_context(mx.cpu(1)) is there
    back = there.as_in_context(mx.cpu(0))
    assert back.context == mx.cpu(0)
    check(back, TWO_ROWS, [0, 2])
    assert nd.array(there).context == mx.cpu(0)
    with mx.cpu(2):
        assert sparse.zeros("row_sparse", (2, 2)).context == mx.cpu(2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: sparse.row_sparse_array((3,)), ArgumentError, "neither"),
        (
            lambda: sparse.row_sparse_array((3, 2), shape=(4, 2)),
            ShapeError,
            r"shape \(3, 2\), but shape is \(4, 2\)",
        ),
        (lambda: sparse.row_sparse_array([[1, 2]], shape=(4, 2)), ShapeError, "shape is"),
        (lambda: sparse.row_sparse_array(two_rows(), shape=(5, 2)), ShapeError, "shape is"),
        (lambda: sparse.row_sparse_array(nd.ones((2, 2)).tostype("csr")), ArgumentError, "CSRNDArray"),
        (
            lambda: sparse.row_sparse_array(([[1, 2]], [0, 1]), shape=(4, 2)),
            ShapeError,
            r"expected data of shape \(2",
        ),
        (lambda: sparse.row_sparse_array(([[1, 2]], [0]), shape=(4, 3)), ShapeError, "expected data"),
        (lambda: sparse.row_sparse_array(([[1, 2]], [[0]]), shape=(4, 2)), ShapeError, "indices"),
        (lambda: sparse.row_sparse_array(([], [])), ShapeError, "pass shape="),
        (lambda: sparse.row_sparse_array(([[]], [0]), shape=(2, 0)), ShapeError, "have no elements"),
        (lambda: sparse.row_sparse_array(([["a"]], [0])), DTypeError, "expected numbers"),
        (lambda: sparse.zeros("coo", (2, 2)), ArgumentError, "'coo'"),
        (lambda: sparse.zeros("row_sparse", ()), ShapeError, "cannot have shape"),
        (lambda: sparse.zeros("row_sparse", (2, 2), colour=1), ArgumentError, "colour"),
        (lambda: sparse.empty("default", (2, 2)), ArgumentError, "expected 'row_sparse' or 'csr'"),
        (lambda: sparse.array(nd.ones((2, 2))), ArgumentError, "tostype"),
        (lambda: nd.zeros((2, 2), stype="row_sparse", out=nd.ones((2, 2))), ArgumentError, "without out"),
        (lambda: two_rows().tostype("csr"), ArgumentError, "row_sparse to csr"),
        (lambda: two_rows().tostype("coo"), ArgumentError, "expected one of"),
        (lambda: nd.from_torch(torch.tensor(1.0)).tostype("row_sparse"), ShapeError, "without axes"),
    ],
)
def test_what_makes_no_array(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("rows", "error", "message", "is_usable"),
    [
        ([1, 4], BoundsError, "index 4 is outside of its 3 rows", False),
        ([1, -2], BoundsError, "index -2", False),
        ([1, 1], ArgumentError, "row 1 twice", False),
        ([1, 0], ArgumentError, "row 0 after 1", True),
    ],
)
def test_wrong_rows_are_found_when_asked_or_when_used(rows, error, message, is_usable):
    def make():
        return sparse.row_sparse_array(([[1, 2], [3, 4]], rows), shape=(3, 2))

    with pytest.raises(error, match=message):
        make().check_format()
    make().check_format(full_check=False)
    if is_usable:
        check(make(), [[3, 4], [1, 2], [0, 0]], [0, 1])
        return
    for use in (
        lambda a: a.asnumpy(),
        lambda a: a + a,
        lambda a: a.retain([0]),
        lambda a: nd.ones((3, 2)) + a,
    ):
        with pytest.raises(error):
            use(make())


# --- what an array has


def test_properties():
    array = two_rows("float16")
    assert isinstance(array, nd.NDArray)
    assert (array.shape, array.ndim, array.size, len(array), array.stype) == ((4, 2), 2, 8, 4, "row_sparse")
    assert array.dtype == np.float16
    assert repr(array) == "\n<RowSparseNDArray 4x2 @cpu(0)>"
    assert array[:] is array
    assert hash(array) != hash(array.copy())
    array.wait_to_read()


def test_data_and_indices_are_copies():
    array = two_rows()
    array.data[:] = 9
    array.indices[:] = 1
    check(array, TWO_ROWS, [0, 2])
    for name in ("data", "indices", "colour"):
        with pytest.raises(AttributeError):
            setattr(array, name, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.copy(),
        copy.copy,
        copy.deepcopy,
        lambda a: a.tostype("row_sparse"),
        nd.array,
        sparse.array,
        lambda a: a.copyto(mx.cpu(0)),
        lambda a: a.astype("f4"),
        lambda a: nd.cast_storage(a, "row_sparse"),
        nd.BlockGrad,
    ],
)
def test_copies_are_apart(make):
    array = two_rows()
    other = make(array)
    other[:] = 7
    check(array, TWO_ROWS, [0, 2])
    check(other, np.full((4, 2), 7), range(4))


def test_copyto():
    array = two_rows()
    check(array.copyto(nd.ones((4, 2))), TWO_ROWS)
    check(array.copyto(sparse.zeros("row_sparse", (4, 2), dtype="float64")), TWO_ROWS, [0, 2], "float64")
    check(nd.array(TWO_ROWS).copyto(nd.ones((4, 2)).tostype("row_sparse")), TWO_ROWS, [0, 2])
    with pytest.warns(RuntimeWarning, match="are the same array"):
        assert array.copyto(array) is False
    with pytest.raises(ShapeError, match="shape"):
        array.copyto(nd.ones((2, 4)))
    with pytest.raises(DTypeError, match="csr"):
        array.copyto(sparse.zeros("csr", (4, 2)))
    with pytest.raises(DTypeError, match="list"):
        array.copyto([1])


def test_astype():
    array = two_rows()
    check(array.astype("int32"), TWO_ROWS, [0, 2], "int32")
    assert array.astype("float32", copy=False) is array
    assert array.astype("float32") is not array


@many
@given(dense_values(), dense_values(TYPES))
def test_assignment(before, after):
    for value in (after, nd.array(after, dtype=after.dtype), row_sparse(after)):
        array = row_sparse(before)
        if before.shape != after.shape:
            with pytest.raises(ShapeError, match="expected"):
                array[:] = value
        else:
            array[:] = value
            check(array, after.astype("f4"), stored(after))


def test_assignment_of_numbers_stores_every_row():
    array = two_rows()
    array[:] = 3
    check(array, np.full((4, 2), 3), range(4))
    array[:] = 0
    check(array, np.zeros((4, 2)), range(4))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda a: a[0], ArgumentError),
        (lambda a: a[0:1], ArgumentError),
        (lambda a: a[0, 1], ArgumentError),
        (lambda a: list(a), ArgumentError),
        (lambda a: a.__setitem__(1, 3), ArgumentError),
        (lambda a: a.__setitem__(slice(0, 1), 3), ArgumentError),
        (lambda a: a.__setitem__(slice(None), [1]), DTypeError),
        (lambda a: a.reshape((2, 4)), MXNetError),
        (lambda a: a.torch(), MXNetError),
        (lambda a: torch.utils.dlpack.from_dlpack(a), MXNetError),
        (lambda a: a.expand_dims(0, inplace=True), MXNetError),
        pytest.param(
            lambda a: np.array(a, copy=False),
            ValueError,
            marks=pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 copies where it has to"),
        ),
        (bool, ValueError),
    ],
)
def test_what_needs_memory_of_all_elements_is_refused(call, error):
    array = two_rows()
    with pytest.raises(error):
        call(array)
    check(array, TWO_ROWS, [0, 2])


def test_a_dense_copy_that_does_not_fit_is_an_error_with_its_size():
    huge = sparse.row_sparse_array(([[1.0] * 1000], [2**40]), shape=(2**41, 1000))
    assert (huge * 2).data.asnumpy().max() == 2
    with pytest.raises(MXNetError, match=re.escape(f"needs {2**41 * 4000} bytes")):
        huge.asnumpy()


def test_numpy_reads_a_copy():
    array = two_rows()
    values = np.asarray(array)
    values[:] = 9
    check(array, TWO_ROWS, [0, 2])
    assert np.asarray(array, dtype="int32").dtype == np.int32


@pytest.mark.parametrize("dtype", [*TYPES, "bfloat16"])
def test_pickle(dtype):
    array = two_rows(ctx=mx.cpu(1)).astype(dtype)
    back = pickle.loads(pickle.dumps(array))
    assert type(back) is type(array)
    assert (back.context, back.dtype, back.shape) == (array.context, array.dtype, array.shape)
    np.testing.assert_array_equal(back.asnumpy(), array.asnumpy())
    assert back.indices.asnumpy().tolist() == [0, 2]


@many
@given(st.lists(st.tuples(dense_values(TYPES), st.sampled_from(["default", "row_sparse"])), max_size=4))
def test_files(entries):
    arrays = {f"a{i}": nd.array(v, dtype=v.dtype).tostype(kind) for i, (v, kind) in enumerate(entries)}
    file = io.BytesIO()
    nd.serial.write(file, arrays)
    back = nd.load_frombuffer(file.getvalue())
    for key, (values, kind) in zip(arrays, entries):
        check(back[key], values, stored(values) if kind == "row_sparse" else None, values.dtype)


# --- retain


@many
@given(
    dense_values(), st.lists(st.integers(0, 5), max_size=8), st.sampled_from(["int64", "float32", "int32"])
)
def test_retain(values, ids, dtype):
    array, rows = row_sparse(values), nd.array(ids, dtype=dtype)
    if any(i >= len(values) for i in ids):
        with pytest.raises(BoundsError, match="outside"):
            array.retain(rows)
        return
    want = np.zeros_like(values)
    want[ids] = values[ids]
    kept = sorted(set(ids)) if len(stored(values)) else []
    for found in (array.retain(rows), array.retain(ids), sparse.retain(array, rows)):
        check(found, want, kept)
    check(sparse.retain(nd.array(values), rows), want)


def test_retain_refuses():
    with pytest.raises(BoundsError, match="row -1"):
        two_rows().retain([-1])
    with pytest.raises(MXNetError, match="input .indices. is missing"):
        sparse.retain(two_rows(), invalid_arg="garbage_value")
    with pytest.raises(DTypeError, match="row numbers"):
        two_rows().retain(["a"])


# --- arithmetic


@many
@given(dense_values(), st.integers(0, 2**20), st.sampled_from(["default", "row_sparse"]))
def test_arithmetic_of_two_arrays(values, seed, kind):
    rng = np.random.RandomState(seed)
    other = rng.randint(-3, 4, values.shape) * (rng.rand(len(values)) < 0.5).reshape(
        -1, *[1] * (values.ndim - 1)
    )
    other = other.astype("f4")
    left, right = row_sparse(values), nd.array(other).tostype(kind)
    either = sorted({*stored(values), *stored(other)}) if kind == "row_sparse" else None
    check(left + right, values + other, either)
    check(left - right, values - other, either)
    check(nd.elemwise_add(left, right), values + other, either)
    check(nd.add_n(left, right, left), values * 2 + other, either)
    check(left * right, values * other, either or stored(values))
    check(right + left, values + other, either)
    check(nd.maximum(left, right), np.maximum(values, other))
    check(left == right, values == other, dtype="float32")


@many
@given(dense_values(), st.sampled_from([0, 1, 2, -1.5]))
def test_arithmetic_with_numbers(values, number):
    array, rows = row_sparse(values), stored(values)
    check(array * number, values * np.float32(number), rows)
    check(number * array, values * np.float32(number), rows)
    check(-array, -values, rows)
    check(array + number, values + np.float32(number), None if number else rows)
    check(array - number, values - np.float32(number), None if number else rows)
    if number:
        check(array / number, values / np.float32(number), rows)
    check(array > number, values > number, rows if number >= 0 else None, "float32")


def test_operators_that_leave_zero_zero_stay_sparse():
    for name in ("abs", "sqrt", "square", "sign", "relu", "tanh", "expm1"):
        found = getattr(nd, name)(two_rows())
        check(found, getattr(nd, name)(nd.array(TWO_ROWS)).asnumpy(), [0, 2])
    check(two_rows().clip(0, 1), TWO_ROWS.clip(0, 1), [0, 2])
    check(two_rows().clip(1, 2), TWO_ROWS.clip(1, 2))
    check(nd.exp(two_rows()), nd.exp(nd.array(TWO_ROWS)).asnumpy())
    check(two_rows().sum(), [10])
    check(two_rows().T, TWO_ROWS.T)


def test_arithmetic_in_place():
    for change, want in [
        (lambda a: a.__iadd__(two_rows()), TWO_ROWS * 2),
        (lambda a: a.__isub__(nd.ones((4, 2))), TWO_ROWS - 1),
        (lambda a: a.__imul__(2), TWO_ROWS * 2),
        (lambda a: a.__itruediv__(2), TWO_ROWS / 2),
        (lambda a: a.__iadd__(1), TWO_ROWS + 1),
        (lambda a: a.__imod__(2), TWO_ROWS % 2),
        (lambda a: a.__ipow__(2), TWO_ROWS**2),
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


@pytest.mark.parametrize(
    ("before", "after"), [("default", "csr"), ("csr", "default"), ("row_sparse", "default")]
)
def test_a_changed_storage_type_is_recorded(before, after):
    array = nd.array(TWO_ROWS).tostype(before)
    array.attach_grad()
    with mx.autograd.record():
        other = array.tostype(after)
        loss = mx.nd.dot(other, mx.nd.ones((TWO_ROWS.shape[1], 1))).sum()
    assert other.stype == after
    loss.backward()
    assert (array.grad.asnumpy() == 1).all()


def test_cast_storage():
    check(nd.cast_storage(nd.array(TWO_ROWS), "row_sparse"), TWO_ROWS, [0, 2])
    check(sparse.cast_storage(two_rows(), stype="default"), TWO_ROWS)
    out = sparse.zeros("row_sparse", (4, 2))
    assert nd.cast_storage(nd.array(TWO_ROWS), "row_sparse", out=out) is out
    check(out, TWO_ROWS, [0, 2])
    with pytest.raises(ArgumentError, match="out is default"):
        nd.cast_storage(two_rows(), "row_sparse", out=nd.ones((4, 2)))
    symbol = mx.sym.cast_storage(mx.sym.Variable("x"), stype="row_sparse")
    check(symbol.eval(x=nd.array(TWO_ROWS))[0], TWO_ROWS, [0, 2])


def gradient(shape=(5, 2), dtype="float32"):
    values = np.array([[1, 2], [3, 4]], dtype)
    return mx.nd.sparse.row_sparse_array((values, [1, 3]), shape=shape, dtype=dtype)


def test_only_stored_rows_change():
    weight = mx.nd.ones((5, 2))
    mx.nd.sgd_update(weight, gradient(), out=weight, lr=0.1, wd=1)
    expected = np.ones((5, 2))
    expected[[1, 3]] -= 0.1 * (np.array([[1, 2], [3, 4]]) + 1)
    np.testing.assert_allclose(weight.asnumpy(), expected, rtol=1e-6)


def test_the_result_may_go_elsewhere():
    weight, target = mx.nd.ones((5, 2)), mx.nd.zeros((5, 2))
    mx.nd.sgd_update(weight, gradient(), out=[target], lr=1)
    assert weight.asnumpy().tolist() == [[1, 1]] * 5
    assert target.asnumpy().tolist() == [[1, 1], [0, -1], [1, 1], [-2, -3], [1, 1]]


@pytest.mark.parametrize("shape", [(4, 2), (6, 2), (5, 3)])
def test_gradients_of_another_shape_are_refused(shape):
    weight = mx.nd.ones(shape)
    with pytest.raises(ShapeError, match=r"sgd_update.*\(5, 2\)"):
        mx.nd.sgd_update(weight, gradient(), out=weight, lr=1)
    assert weight.asnumpy().min() == 1


def test_states_of_another_shape_are_refused():
    weight = mx.nd.ones((5, 2))
    with pytest.raises(ShapeError, match=r"sgd_mom_update.*\(4, 2\)"):
        mx.nd.sgd_mom_update(weight, gradient(), mx.nd.zeros((4, 2)), out=weight, lr=1)
    with pytest.raises(ShapeError, match="history"):
        mx.nd.contrib.group_adagrad_update(weight, gradient(), mx.nd.zeros((4, 1)), out=weight, lr=1)
    assert weight.asnumpy().min() == 1


def test_other_types_are_refused():
    weight = mx.nd.ones((5, 2))
    with pytest.raises(DTypeError, match="float64"):
        mx.nd.sgd_update(weight, gradient(dtype="float64"), out=weight, lr=1)
    with pytest.raises(DTypeError, match="out has type float64"):
        mx.nd.sgd_update(weight, gradient(), out=mx.nd.ones((5, 2), dtype="float64"), lr=1)
    with pytest.raises(OpError, match="out is int"):
        mx.nd.sgd_update(weight, gradient(), out=5, lr=1)
