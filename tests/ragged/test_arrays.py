"""`RaggedNDArray`: how it is made, read, written and kept."""

import copy
import pickle

import numpy as np
import torch

import dpmodule as mx
from helpers.walk import walks

ROWS = [[1.0, 2.0], [], [3.0]]
nd = mx.nd


def array(**attach):
    made = nd.ragged_array(ROWS)
    if attach:
        made.attach_grad(**attach)
    return made


def test_parts():
    a = nd.ragged_array(np.array([1, 2, 3], "f4"), [0, 2, 2, 3])
    assert (a.shape, a.ndim, a.size, len(a), a.dtype, a.stype) == ((3,), 1, 3, 3, np.float32, "ragged")
    found = [each.asnumpy().tolist() for each in (a.values, a.offsets, a.lengths)]
    assert found == [[1, 2, 3], [0, 2, 2, 3], [2, 0, 1]]
    assert a.offsets.dtype == np.int64
    assert (a.tolist(), a.context) == (ROWS, mx.cpu())
    values = torch.arange(6.0).view(3, 2).double()  # which keep their memory and type
    a = nd.ragged_array(values, torch.tensor([0, 3]))
    assert (a.shape, a.dtype) == ((1, 2), np.float64)
    a.values[:] = 7
    assert values.eq(7).all()


@walks(
    (nd.ragged_array(nd.array([1, 2], dtype="int32"), nd.array([0, 1, 2])), np.int32, [[1], [2]]),
    (nd.ragged_array([[1, 2**40], []]), np.int64, [[1, 2**40], []]),
    (nd.ragged_array([1, 2], [0, 2], dtype="float64"), np.float64, [[1, 2]]),
    (nd.ragged_array([np.ones((2, 1), "f4"), np.zeros((0, 1), "f4")]), np.float32, [[[1], [1]], []]),
)
def test_types_of_values(made, dtype, rows):
    assert (made.dtype, made.tolist()) == (dtype, rows)


def test_rows_and_slices_share_memory():
    a = array()
    assert a[0].asnumpy().tolist() == [1, 2]
    assert a[-1].asnumpy().tolist() == [3]
    assert a[1].shape == (0,)
    assert (a[1:].tolist(), a[:2].tolist(), a[2:1].tolist()) == (ROWS[1:], ROWS[:2], [])
    assert [row.asnumpy().tolist() for row in a] == ROWS
    assert a.rows(torch.tensor([2, 0, 0])).tolist() == [ROWS[2], ROWS[0], ROWS[0]]
    a[1:].values[:] = 9
    assert a.tolist() == [[1, 2], [], [9]]
    a[:] = nd.ragged_array([[5.0], [6.0, 7.0], []])
    assert a.tolist() == [[5], [6, 7], []]


def test_offsets_are_copied():
    for offsets in (nd.array([0, 2, 3], dtype="int64"), torch.tensor([0, 2, 3]), np.array([0, 2, 3])):
        ragged = nd.ragged_array([1.0, 2.0, 3.0], offsets)
        offsets[:] = 9
        assert ragged.tolist() == [[1, 2], [3]]


def test_padding_joining_and_repr():
    assert array().padded().asnumpy().tolist() == [[1, 2], [0, 0], [3, 0]]
    assert array().padded(-1, 3).asnumpy().tolist() == [[1, 2, -1], [-1, -1, -1], [3, -1, -1]]
    assert nd.concatenate([array(), array()[:1]]).tolist() == [*ROWS, ROWS[0]]
    assert repr(array()) == "\n[[1. 2.]\n []\n [3.]]\n<RaggedNDArray 3, 3 values @cpu(0)>"


def test_pickles_and_copies():
    a = array()
    for again in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a), a.copy()):
        assert (again.tolist(), again.dtype, again.context) == (ROWS, np.float32, mx.cpu())
    assert pickle.loads(pickle.dumps(a.astype("bfloat16"))).tolist() == ROWS
    for there in (a.copyto(mx.cpu(1)), a.as_in_context(mx.cpu(1))):
        assert (there.context, there.tolist()) == (mx.cpu(1), ROWS)
    target = nd.ragged_array([[0], [0], [0]], dtype="float64")
    a.copyto(target)
    assert (target.tolist(), target.dtype) == (ROWS, np.float64)


def summed(values):
    return nd.sequence_pool(values, pool_type="sum")


def test_gradients_recorded_by_autograd():
    a, added = array(grad_req="write"), array(grad_req="add")
    with mx.autograd.record():
        b = a * a
        total = summed(b).sum() + b.values.sum()
    total.backward()
    assert (a.grad.stype, a.grad.tolist()) == ("ragged", [[4, 8], [], [12]])
    for _ in range(2):
        with mx.autograd.record():
            b = added * 3
        b.backward(nd.ragged_array([[1.0, 10.0], [], [100.0]]))
    assert added.grad.tolist() == [[6, 60], [], [600]]


def test_gradients_as_results_and_of_gradients():
    a = array(grad_req="write")
    with mx.autograd.record():
        (first,) = mx.autograd.grad([a * a * a], [a], create_graph=True)
        total = summed(first)
    assert first.tolist() == [[3, 12], [], [27]]
    total.backward()
    assert a.grad.tolist() == [[6, 12], [], [18]]


def test_a_variable_whose_rows_are_written_anew():
    a = array(grad_req="write")
    kept = a.grad
    a[:] = nd.ragged_array([[5.0], [1.0, 2.0], [3.0, 4.0]])
    with mx.autograd.record():
        b = summed(a * a)
    b.backward()
    assert a.grad is kept
    assert kept.tolist() == [[10], [2, 4], [6, 8]]
