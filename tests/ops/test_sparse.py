"""Operators about storage, and what operators do with stored parts."""

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import nd
from dpmodule.ops.sparse import Csr, RowSparse, dispatch, stored_rows
from helpers.arrays import f4
from helpers.op_case import rules_test
from helpers.walk import walks

test_shapes = rules_test(("_sparse_retain", [None, (3,)], {}, [(5, 2), (3,)], [(5, 2)], [(5, 2)]))


def sparse_values(shape, seed=0, density=0.5):
    rng = np.random.RandomState(seed)
    values = np.where(rng.rand(*shape) < density, rng.uniform(0.5, 1.5, shape), 0).astype("f4")
    values[1] = 0
    return values * rng.choice([-1, 1], shape).astype("f4")


def csr(values, dtype="float32"):
    return nd.array(values, dtype=dtype).tostype("csr")


def check(found, stype, want):
    assert found.stype == stype
    if stype != "default":
        found.check_format()
    np.testing.assert_allclose(found.asnumpy(), want, rtol=1e-5, atol=1e-6)


@walks(product(["default", "row_sparse"], [False, True], ["float16", "float32", "float64", "int32"]))
def test_csr_times_dense(right, flip, dtype):
    a, b = sparse_values((7, 5)), sparse_values((7 if flip else 5, 3), 1)
    a, b = np.round(a * 3), np.round(b * 3)
    other, want = nd.array(b, dtype=dtype), (a.T if flip else a) @ b
    stype = "row_sparse" if flip else "default"
    check(nd.dot(csr(a, dtype), other.tostype(right), transpose_a=flip), stype, want)
    check(nd.dot(csr(a, dtype), other, transpose_a=flip, forward_stype="default"), "default", want)


A, B, V = sparse_values((6, 4)), sparse_values((6, 4), 5), sparse_values((6,), 1)
X = csr(A)
STRETCHED = [np.random.RandomState(0).uniform(1, 2, shape).astype("f4") for shape in [(6, 4), (1, 4), (6, 1)]]


@walks(
    (lambda: nd.dot(nd.array(A), csr(B.T)), "csr", A @ B.T),
    (lambda: nd.dot(nd.array(A), csr(B), transpose_b=True), "csr", A @ B.T),
    (lambda: nd.dot(csr(A.T), nd.array(V)), "default", A.T @ V),
    *[(lambda b=b: nd.broadcast_mul(X, nd.array(b)), "csr", A * b) for b in STRETCHED],
    *[(lambda b=b: nd.broadcast_div(X, nd.array(b)), "csr", A / b) for b in STRETCHED],
    *[
        (lambda f=n, a=a, k=k: getattr(nd, f)(X, axis=a, keepdims=k), "default", getattr(A, n)(a, keepdims=k))
        for n, a, k in product(("sum", "mean"), (0, 1, -1), (False, True))
    ],
    *[(lambda n=n: getattr(nd.sparse, n)(X), "default", getattr(A, n)().reshape(1)) for n in ("sum", "mean")],
    (lambda: nd.take(X, nd.array([5, 0, 0, 9, -1])), "csr", A[[5, 0, 0, 5, 0]]),
    (lambda: nd.take(X, nd.array([7, -1]), mode="wrap"), "csr", A[[1, 5]]),
    (lambda: nd.slice(X, begin=(1, 1), end=(5, 3)), "csr", A[1:5, 1:3]),
    (lambda: nd.slice(X, begin=(-3,), end=(None,)), "csr", A[-3:]),
    (lambda: nd.slice(X, begin=(0,), end=(5,), step=(2,)), "default", A[0:5:2]),
    (lambda: nd.concat(X, X, X, dim=0), "csr", np.concatenate([A, A, A])),
    (lambda: nd.concat(X, X, dim=1), "default", np.concatenate([A, A], 1)),
)  # fmt: skip
def test_calls_with_csr(call, stype, want):
    check(call(), stype, np.array(want))


PAIRS = {"_maximum": np.maximum, "_minimum": np.minimum, "_hypot": np.hypot}
PAIRS |= {"elemwise_add": np.add, "elemwise_sub": np.subtract, "elemwise_mul": np.multiply}


@walks(product(PAIRS, ["row_sparse", "csr"]))
def test_two_arrays_stored_alike(name, stype):
    face = getattr(nd if name.startswith("e") else nd._internal, name)
    check(face(nd.array(A).tostype(stype), nd.array(B).tostype(stype)), stype, PAIRS[name](A, B))


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_storage_is_kept_only_where_zeros_stay_zero(stype):
    x, quadratic = nd.array(A).tostype(stype), nd.contrib.quadratic
    kept = [x + 0, x * 2, x > 0, x != 0, nd.clip(x, -1, 1)]
    kept.append(nd.zeros_like(x))
    others = [x + 1, x >= 0, nd.clip(x, 1, 2), nd.cos(x), quadratic(x, a=1, b=2, c=1)]
    (kept if stype == "csr" else others).append(quadratic(x, a=1, b=2, c=0))
    assert {found.stype for found in kept} == {stype}
    assert {found.stype for found in others} == {"default"}


def test_a_fallback_is_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(dispatch, "_logged_fallbacks", set())
    for _ in range(2):
        nd.softmax(X)
        nd.softmax(nd.ones((3, 2)))
    assert [record.message.split(" has ")[0] for record in caplog.records] == ["softmax"]
    monkeypatch.setattr(dispatch, "_logged_fallbacks", set())
    monkeypatch.setenv("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "0")
    nd.softmax(X)
    assert len(caplog.records) == 1


def test_records():
    rows = RowSparse(torch.tensor([1, 3]), torch.tensor([[1.0], [2.0]]), (5, 1))
    assert rows.dense().flatten().tolist() == [0, 1, 0, 2, 0]
    assert rows.pick(torch.tensor([[3, 0], [1, 1]])).flatten().tolist() == [2, 0, 1, 1]
    full = RowSparse(torch.arange(2), torch.ones(2, 1), (2, 1))
    assert full.dense() is full.values
    places, numbers = (torch.tensor([0, 2]), torch.tensor([1, 0])), torch.tensor([5.0, 6.0])
    matrix = Csr.from_coordinates(*places, numbers, (3, 2))
    assert matrix.starts.tolist() == [0, 1, 1, 2]
    assert matrix.dense().tolist() == [[0, 5], [0, 0], [6, 0]]
    places = torch.tensor([[3, 1, 3]])
    grad = torch.sparse_coo_tensor(places, torch.ones(3, 2), (5, 2), check_invariants=False)
    assert [part.tolist() for part in stored_rows(grad)] == [[1, 3], [[1, 1], [2, 2]]]


def test_autograd_of_products_and_tables():
    weight, data = nd.ones((6, 2)), sparse_values((4, 6), density=0.2)
    weight.attach_grad(stype="row_sparse")
    lookup = {"input_dim": 6, "output_dim": 2, "sparse_grad": True}
    for loss, want in (
        (lambda: nd.dot(csr(data), weight), data.T @ np.ones((4, 2))),
        (lambda: nd.Embedding(nd.array([1, 3, 3]), weight, **lookup), f4([[0, 1, 0, 2, 0, 0]] * 2).T),
    ):
        with mx.autograd.record():
            found = loss()
        found.backward()
        check(weight.grad, "row_sparse", want)
    assert weight.grad.indices.asnumpy().tolist() == [1, 3]


def test_operators_that_mxnet_has_for_dense_arrays_only():
    numbers, table = sparse_values((2, 3)) > 0, sparse_values((2, 4), 1)
    words, weight = nd.array(numbers), nd.array(table)
    for indices, rows in product((words, words.tostype("csr")), (weight, weight.tostype("csr"))):
        check(nd.Embedding(indices, rows, input_dim=2, output_dim=4), "default", table[numbers.astype(int)])
    np.testing.assert_allclose(nd.sparse.clip(csr(table), 0.5, 2).asnumpy(), np.clip(table, 0.5, 2))
