"""Operators about storage, and what operators do with stored parts."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import nd, ops
from dpmodule.base import ArgumentError, BoundsError, DTypeError, OpError
from dpmodule.ops.sparse import Csr, RowSparse, dispatch, rule_of, stored_rows
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes

RNG = np.random.RandomState(3)
TABLE = RNG.uniform(-1, 1, (5, 2, 3)).astype("f4")
STYPES = ("default", "row_sparse", "csr")


def sparse_values(shape, seed=0, density=0.5):
    rng = np.random.RandomState(seed)
    values = np.where(rng.rand(*shape) < density, rng.uniform(0.5, 1.5, shape), 0).astype("f4")
    values[1] = 0
    return values * rng.choice([-1, 1], shape).astype("f4")


def check(found, stype, want, rtol=1e-5):
    assert found.stype == stype
    if stype != "default":
        found.check_format()
    np.testing.assert_allclose(found.asnumpy(), want, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("stype", STYPES)
def test_casting_storage_changes_no_value(stype):
    case = OpCase("cast_storage", (TABLE,), {"stype": stype}, lambda x: x)
    check_value(case)
    check_gradient(OpCase("cast_storage", (TABLE.astype("f8"),), {"stype": stype}))


@pytest.mark.parametrize("rows", [[0], [4, 1, 4], [], [[0, 1], [2, 3]]])
@pytest.mark.parametrize("dtype", ["f4", "i8"])
def test_retaining_rows(rows, dtype):
    rows = np.array(rows, dtype)
    mask = np.isin(np.arange(5), rows.astype(int)).reshape(5, 1, 1)
    case = OpCase("_sparse_retain", (TABLE, rows), {}, lambda x, i: (x * mask).astype("f4"))
    check_value(case)
    check_gradient(OpCase("_sparse_retain", (TABLE.astype("f8"), rows)), inputs=(0,))


def test_rules_and_refusals():
    assert shapes("_sparse_retain", [None, (3,)], [(5, 2)]) == ([(5, 2), (3,)], [(5, 2)])
    with pytest.raises(OpError, match="stype"):
        run("cast_storage", TABLE, stype="coo")
    with pytest.raises(ArgumentError, match="not supported"):
        nd.cast_storage(nd.ones((2, 2)).tostype("csr"), "row_sparse")
    with pytest.raises(BoundsError, match="0 to 4"):
        nd.contrib.SparseEmbedding(nd.array([5]), nd.ones((5, 2)), input_dim=5, output_dim=2)
    with pytest.raises(DTypeError, match="convert with astype"):
        nd.dot(nd.ones((2, 2)).tostype("csr"), nd.ones((2, 2), dtype="float64"))
    with pytest.raises(BoundsError, match="row 9"):
        nd.sparse.retain(nd.ones((4, 2)).tostype("row_sparse"), nd.array([9]))


@pytest.mark.parametrize("right", ["default", "row_sparse"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_csr_times_dense(right, flip, dtype):
    a, b = sparse_values((7, 5)), sparse_values((7 if flip else 5, 3), 1)
    a, b = np.round(a * 3), np.round(b * 3)
    found = nd.dot(
        nd.array(a, dtype=dtype).tostype("csr"), nd.array(b, dtype=dtype).tostype(right), transpose_a=flip
    )
    check(found, "row_sparse" if flip else "default", (a.T if flip else a) @ b)
    dense = nd.dot(
        nd.array(a, dtype=dtype).tostype("csr"),
        nd.array(b, dtype=dtype),
        transpose_a=flip,
        forward_stype="default",
    )
    check(dense, "default", (a.T if flip else a) @ b)


@pytest.mark.parametrize("flip", [False, True])
def test_dense_times_csr_is_csr(flip):
    a, b = sparse_values((4, 6)), sparse_values((3, 6) if flip else (6, 3), 1)
    found = nd.dot(nd.array(a), nd.array(b).tostype("csr"), transpose_b=flip)
    check(found, "csr", a @ (b.T if flip else b))


def test_vectors_of_a_product():
    a, b = sparse_values((4, 6)), sparse_values((6,), 1)
    check(nd.dot(nd.array(a).tostype("csr"), nd.array(b)), "default", a @ b)


@pytest.mark.parametrize(
    "name", ["_maximum", "_minimum", "_hypot", "elemwise_add", "elemwise_sub", "elemwise_mul"]
)
@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_two_arrays_stored_alike(name, stype):
    a, b = sparse_values((6, 4)), sparse_values((6, 4), 5)
    want = {
        "_maximum": np.maximum,
        "_minimum": np.minimum,
        "_hypot": np.hypot,
        "elemwise_add": np.add,
        "elemwise_sub": np.subtract,
        "elemwise_mul": np.multiply,
    }[name](a, b)
    face = getattr(nd, name) if not name.startswith("_") else getattr(nd._internal, name)
    check(face(nd.array(a).tostype(stype), nd.array(b).tostype(stype)), stype, want)


@pytest.mark.parametrize("shape", [(6, 4), (1, 4), (6, 1), (1, 1)])
def test_csr_is_scaled_by_what_stretches(shape):
    a, b = sparse_values((6, 4)), np.random.RandomState(0).uniform(1, 2, shape).astype("f4")
    check(nd.broadcast_mul(nd.array(a).tostype("csr"), nd.array(b)), "csr", a * b)
    check(nd.broadcast_div(nd.array(a).tostype("csr"), nd.array(b)), "csr", a / b)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("keep", [False, True])
def test_sums_of_csr(axis, keep):
    a = sparse_values((6, 4))
    array = nd.array(a).tostype("csr")
    shape = (1,) if axis is None and not keep else None
    for name in ("sum", "mean"):
        want = getattr(a, name)(axis, keepdims=keep)
        attrs = {} if axis is None else {"axis": axis}
        check(
            getattr(nd.sparse, name)(array, keepdims=keep, **attrs),
            "default",
            want.reshape(shape or want.shape),
        )


def test_rows_of_csr():
    a = sparse_values((6, 4))
    array = nd.array(a).tostype("csr")
    check(nd.take(array, nd.array([5, 0, 0, 9, -1])), "csr", a[[5, 0, 0, 5, 0]])
    check(nd.take(array, nd.array([7, -1]), mode="wrap"), "csr", a[[1, 5]])
    check(nd.slice(array, begin=(1, 1), end=(5, 3)), "csr", a[1:5, 1:3])
    check(nd.slice(array, begin=(-3,), end=(None,)), "csr", a[-3:])
    check(nd.slice(array, begin=(0,), end=(5,), step=(2,)), "default", a[0:5:2])
    check(nd.concat(array, array, array, dim=0), "csr", np.concatenate([a, a, a]))
    check(nd.concat(array, array, dim=1), "default", np.concatenate([a, a], 1))


def test_counting_counts_what_is_stored():
    matrix = nd.sparse.csr_matrix(([0, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3]), shape=(4, 3))
    assert nd.contrib.getnnz(matrix).asnumpy().tolist() == [3]
    assert nd.contrib.getnnz(matrix, axis=1).asnumpy().tolist() == [1, 1, 0, 1]
    assert nd.contrib.getnnz(matrix, axis=0).asnumpy().tolist() == [1, 1, 1]


def test_storage_is_kept_only_where_zeros_stay_zero():
    for stype in ("row_sparse", "csr"):
        array = nd.array(sparse_values((6, 4))).tostype(stype)
        for found, kept in (
            (array + 0, True),
            (array + 1, False),
            (array * 2, True),
            (array > 0, True),
            (array >= 0, False),
            (array != 0, True),
            (nd.clip(array, -1, 1), True),
            (nd.clip(array, 1, 2), False),
            (nd.cos(array), False),
            (nd.contrib.quadratic(array, a=1, b=2, c=0), stype == "csr"),
            (nd.contrib.quadratic(array, a=1, b=2, c=1), False),
        ):
            assert found.stype == (stype if kept else "default")


def test_a_fallback_is_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(dispatch, "_logged_fallbacks", set())
    array = nd.array(sparse_values((3, 2))).tostype("csr")
    for _ in range(2):
        nd.softmax(array)
        nd.softmax(nd.ones((3, 2)))
    assert [record.message.split(" has ")[0] for record in caplog.records] == ["softmax"]
    monkeypatch.setattr(dispatch, "_logged_fallbacks", set())
    monkeypatch.setenv("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    nd.softmax(array)
    assert len(caplog.records) == 1


def test_operators_that_mxnet_has_for_dense_arrays_only():
    numbers, table = sparse_values((2, 3)) > 0, sparse_values((2, 4), 1)
    words, size = nd.array(numbers), {"input_dim": 2, "output_dim": 4}
    for indices in (words, words.tostype("csr")):
        for weight in (nd.array(table), nd.array(table).tostype("csr")):
            check(nd.Embedding(indices, weight, **size), "default", table[numbers.astype(int)])
    clipped = nd.sparse.clip(nd.array(table).tostype("csr"), 0.5, 2)
    np.testing.assert_allclose(clipped.asnumpy(), np.clip(table, 0.5, 2))


def test_records():
    rows = RowSparse(torch.tensor([1, 3]), torch.tensor([[1.0], [2.0]]), (5, 1))
    assert rows.dense().flatten().tolist() == [0, 1, 0, 2, 0]
    assert rows.pick(torch.tensor([[3, 0], [1, 1]])).flatten().tolist() == [2, 0, 1, 1]
    full = RowSparse(torch.arange(2), torch.ones(2, 1), (2, 1))
    assert full.dense() is full.values
    matrix = Csr.from_coordinates(
        torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([5.0, 6.0]), (3, 2)
    )
    assert matrix.starts.tolist() == [0, 1, 1, 2]
    assert matrix.dense().tolist() == [[0, 5], [0, 0], [6, 0]]
    grad = torch.sparse_coo_tensor(
        torch.tensor([[3, 1, 3]]), torch.ones(3, 2), (5, 2), check_invariants=False
    )
    found, values = stored_rows(grad)
    assert (found.tolist(), values.tolist()) == ([1, 3], [[1, 1], [2, 2]])


def test_gradients_of_a_table_are_rows():
    table_rule = rule_of(ops.get("Embedding"))
    a = ops.get("Embedding").parse({"input_dim": 10**12, "output_dim": 2, "sparse_grad": True})
    table = torch.zeros(1).expand(10**12, 2)  # takes four bytes: no dense tensor of this shape could be made
    (_, grad) = table_rule.grad(
        a, None, (False, True), (torch.ones(3, 2),), torch.tensor([5.0, 7.0, 5.0]), table
    )
    assert [p.tolist() for p in stored_rows(grad)] == [[5, 7], [[2, 2], [1, 1]]]


def test_autograd_of_products_and_tables():
    weight = nd.ones((6, 2))
    weight.attach_grad(stype="row_sparse")
    data = nd.array(sparse_values((4, 6), density=0.2)).tostype("csr")
    with mx.autograd.record():
        loss = nd.dot(data, weight)
    loss.backward()
    assert weight.grad.stype == "row_sparse"
    np.testing.assert_allclose(weight.grad.asnumpy(), data.asnumpy().T @ np.ones((4, 2)), rtol=1e-5)
    with mx.autograd.record():
        loss = nd.Embedding(nd.array([1, 3, 3]), weight, input_dim=6, output_dim=2, sparse_grad=True)
    loss.backward()
    assert weight.grad.indices.asnumpy().tolist() == [1, 3]
