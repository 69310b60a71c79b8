"""`RaggedNDArray`: how it is made, read, written and kept."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import dpmodule as mx

ROWS = [[1.0, 2.0], [], [3.0]]


def array():
    return mx.nd.ragged_array(ROWS)


def test_parts():
    a = mx.nd.ragged_array(np.array([1, 2, 3], "f4"), [0, 2, 2, 3])
    assert (a.shape, a.ndim, a.size, len(a), a.dtype, a.stype) == ((3,), 1, 3, 3, np.float32, "ragged")
    assert a.values.asnumpy().tolist() == [1, 2, 3]
    assert a.offsets.asnumpy().tolist() == [0, 2, 2, 3]
    assert a.offsets.dtype == np.int64
    assert a.lengths.asnumpy().tolist() == [2, 0, 1]
    assert a.tolist() == ROWS
    assert a.context == mx.cpu()


def test_values_keep_their_memory_and_type():
    values = torch.arange(6.0).view(3, 2).double()
    a = mx.nd.ragged_array(values, torch.tensor([0, 3]))
    assert (a.shape, a.dtype) == ((1, 2), np.float64)
    a.values[:] = 7
    assert values.eq(7).all()
    b = mx.nd.ragged_array(mx.nd.array([1, 2], dtype="int32"), mx.nd.array([0, 1, 2]))
    assert (b.dtype, b.tolist()) == (np.int32, [[1], [2]])


def test_types_of_python_numbers():
    assert mx.nd.ragged_array([[1, 2**40], []]).tolist() == [[1, 2**40], []]
    assert mx.nd.ragged_array([[1, 2], []]).dtype == np.int64
    assert mx.nd.ragged_array([[1.5], []]).dtype == np.float32
    assert mx.nd.ragged_array([1, 2], [0, 2], dtype="float64").dtype == np.float64
    assert mx.nd.ragged_array([np.ones((2, 3), "f4"), np.zeros((0, 3), "f4")]).shape == (2, 3)


@pytest.mark.parametrize(
    ("values", "offsets", "kind", "text"),
    [
        ([1, 2], [0, 1], "ArgumentError", "from 0 to 1, expected 0 to 2"),
        ([1, 2], [1, 2], "ArgumentError", "from 1 to 2"),
        ([1, 2], [0, 2, 1, 2], "ArgumentError", "must not descend"),
        ([1, 2], [], "ShapeError", "offsets have shape"),
        ([1, 2], [[0, 2]], "ShapeError", "offsets have shape"),
        ([1, 2], [0, 1.5, 2], "DTypeError", "expected integers"),
        ([], None, "ArgumentError", "an empty list"),
        (3, None, "ArgumentError", "expected a list of rows"),
        ([[[1, 2]], [3]], None, "ShapeError", "rows have the shapes"),
        (5.0, [0, 1], "ShapeError|ArgumentError", "expected"),
    ],
)
def test_nonsense_is_refused(values, offsets, kind, text):
    kinds = tuple(getattr(mx.base, one) for one in kind.split("|"))
    with pytest.raises(kinds, match=text):
        mx.nd.ragged_array(values, offsets)


def test_rows_and_slices_share_memory():
    a = array()
    assert a[0].asnumpy().tolist() == [1, 2]
    assert a[-1].asnumpy().tolist() == [3]
    assert a[1].shape == (0,)
    assert (a[1:].tolist(), a[:2].tolist(), a[2:1].tolist()) == (ROWS[1:], ROWS[:2], [])
    assert [row.asnumpy().tolist() for row in a] == ROWS
    a[1:].values[:] = 9
    assert a.tolist() == [[1, 2], [], [9]]
    with pytest.raises(mx.base.BoundsError):
        a[3]
    for key in (slice(None, None, 2), "x", (0, 1), None):
        with pytest.raises(mx.base.ArgumentError):
            a[key]


def test_picking_rows():
    assert array().rows(torch.tensor([2, 0, 0])).tolist() == [ROWS[2], ROWS[0], ROWS[0]]


def test_padding():
    assert array().padded().asnumpy().tolist() == [[1, 2], [0, 0], [3, 0]]
    assert array().padded(-1, 3).asnumpy().tolist() == [[1, 2, -1], [-1, -1, -1], [3, -1, -1]]
    with pytest.raises(mx.base.ArgumentError, match="at least 2"):
        array().padded(length=1)


def test_repr_shows_rows():
    assert repr(array()) == "\n[[1. 2.]\n []\n [3.]]\n<RaggedNDArray 3, 3 values @cpu(0)>"
    long = repr(mx.nd.ragged_array([[i] for i in range(100)]))
    assert "..." in long
    assert long.count("\n") < 20


def test_pickles_and_copies():
    for again in (
        pickle.loads(pickle.dumps(array())),
        copy.copy(array()),
        copy.deepcopy(array()),
        array().copy(),
    ):
        assert (again.tolist(), again.dtype, again.context) == (ROWS, np.float32, mx.cpu())
    half = array().astype("bfloat16")
    assert pickle.loads(pickle.dumps(half)).tolist() == ROWS
    there = array().copyto(mx.cpu(1))
    assert (there.context, there.tolist()) == (mx.cpu(1), ROWS)
    assert array().as_in_context(mx.cpu(1)).context == mx.cpu(1)
    target = mx.nd.ragged_array([[0], [0], [0]], dtype="float64")
    array().copyto(target)
    assert (target.tolist(), target.dtype) == (ROWS, np.float64)
    with pytest.raises(mx.base.ShapeError):
        array().copyto(mx.nd.ragged_array([[0]]))
    with pytest.raises(mx.base.DTypeError):
        array().copyto(mx.nd.ones((3,)))


def test_writing_whole():
    a = array()
    a[:] = mx.nd.ragged_array([[5.0], [6.0, 7.0], []])
    assert a.tolist() == [[5], [6, 7], []]
    for key, value in ((0, a), (slice(None), 3), (slice(None), mx.nd.ones((3,)))):
        with pytest.raises(mx.base.ArgumentError, match="written completely"):
            a[key] = value


def test_joining():
    assert mx.nd.concatenate([array(), array()[:1]]).tolist() == [*ROWS, ROWS[0]]
    with pytest.raises(mx.base.ArgumentError):
        mx.nd.concatenate([array(), mx.nd.ones((3,))])


def test_there_is_no_dense_form():
    a = array()
    calls = [
        a.asnumpy,
        a.torch,
        lambda: np.asarray(a),
        lambda: a.raw,
        lambda: a.reshape((3,)),
        lambda: a.T,
    ]
    for call in calls:
        with pytest.raises(mx.base.MXNetError, match="ragged"):
            call()
    for stype in ("default", "csr"):
        with pytest.raises(mx.base.ArgumentError, match="ragged"):
            a.tostype(stype)
    with pytest.raises(mx.base.ArgumentError, match="ragged"):
        mx.nd.save("never.params", {"a": a})


def test_arithmetic_and_functions():
    a = array()
    assert (a + 1).tolist() == [[2, 3], [], [4]]
    assert (2 - a * a / 2).tolist() == [[1.5, 0], [], [-2.5]]
    assert mx.nd.relu(-a).tolist() == [[0, 0], [], [0]]
    assert (a > 1.5).tolist() == [[0, 1], [], [1]]


def test_gradients_recorded_by_autograd():
    a = array()
    a.attach_grad()
    with mx.autograd.record():
        b = a * a
        total = mx.nd.sequence_pool(b, pool_type="sum").sum() + b.values.sum()
    total.backward()
    assert a.grad.stype == "ragged"
    assert a.grad.tolist() == [[4, 8], [], [12]]


def test_gradients_that_add_up_and_ragged_heads():
    a = array()
    a.attach_grad(grad_req="add")
    for _ in range(2):
        with mx.autograd.record():
            b = a * 3
        b.backward(mx.nd.ragged_array([[1.0, 10.0], [], [100.0]]))
    assert a.grad.tolist() == [[6, 60], [], [600]]


def test_gradients_as_results_and_of_gradients():
    a = mx.nd.ragged_array([[1.0, 2.0], [], [3.0]])
    a.attach_grad()
    with mx.autograd.record():
        b = a * a * a
        (first,) = mx.autograd.grad([b], [a], create_graph=True)
        total = mx.nd.sequence_pool(first, pool_type="sum")
    assert first.tolist() == [[3, 12], [], [27]]
    total.backward()
    assert a.grad.tolist() == [[6, 12], [], [18]]


def test_a_variable_whose_rows_are_written_anew():
    a = array()
    a.attach_grad()
    kept = a.grad
    a[:] = mx.nd.ragged_array([[5.0], [1.0, 2.0], [3.0, 4.0]])
    with mx.autograd.record():
        b = mx.nd.sequence_pool(a * a, pool_type="sum")
    b.backward()
    assert a.grad is kept
    assert kept.tolist() == [[10], [2, 4], [6, 8]]


def test_gradients_of_other_arrays_through_ragged_ones():
    weight = mx.nd.array(np.arange(8).reshape(4, 2))
    weight.attach_grad()
    ids = mx.nd.ragged_array([[1, 1], [3]])
    with mx.autograd.record():
        found = mx.nd.sequence_pool(mx.nd.Embedding(ids, weight, input_dim=4, output_dim=2), pool_type="sum")
    found.backward()
    assert weight.grad.asnumpy().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]
