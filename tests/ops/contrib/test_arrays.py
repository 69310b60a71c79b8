"""Comparing, counting, masking and copying rows."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import BoundsError, MXNetError, OpError, ShapeError
from helpers.op_case import gradients, shapes

NAN, INF = float("nan"), float("inf")


def test_boolean_mask_in_a_graph_has_a_shape_when_it_has_run():
    data, index = mx.sym.var("data"), mx.sym.var("index")
    symbol = mx.sym.sum(mx.sym.contrib.boolean_mask(data, index), axis=1) * 2
    with pytest.warns(UserWarning, match="cannot infer"):
        assert symbol.infer_shape(data=(3, 2), index=(3,)) == (None, None, None)
    args = {"data": mx.nd.array([[1, 2], [3, 4], [5, 6]]), "index": mx.nd.array([1, 0, 1])}
    grads = {key: mx.nd.ones(value.shape) for key, value in args.items()}
    executor = symbol.bind(mx.cpu(), args, args_grad=grads)
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [6, 22]
    executor.backward(mx.nd.ones((2,)))
    assert grads["data"].asnumpy().tolist() == [[2, 2], [0, 0], [2, 2]]
    assert grads["index"].asnumpy().tolist() == [0, 0, 0]
    args["index"][:] = 1
    assert executor.forward()[0].shape == (3,)


def test_boolean_mask_may_choose_nothing():
    assert mx.nd.contrib.boolean_mask(mx.nd.ones((2, 3)), mx.nd.zeros((2,))).shape == (0, 3)


def test_boolean_mask_refuses():
    with pytest.raises(OpError, match="axis"):
        mx.nd.contrib.boolean_mask(mx.nd.ones((2, 3)), mx.nd.zeros((3,)), axis=1)
    with pytest.raises(ShapeError, match="index"):
        mx.nd.contrib.boolean_mask(mx.nd.ones((2, 3)), mx.nd.zeros((3,)))


def test_index_copy_refuses_rows_that_do_not_exist():
    with pytest.raises(BoundsError, match="expected 0 to 2"):
        mx.nd.contrib.index_copy(mx.nd.zeros((3, 2)), mx.nd.array([3]), mx.nd.ones((1, 2)))
    with pytest.raises(ShapeError, match="new_tensor"):
        mx.nd.contrib.index_copy(mx.nd.zeros((3, 2)), mx.nd.array([1]), mx.nd.ones((2, 2)))


def test_allclose_is_a_number():
    one, other = mx.nd.array([1, NAN]), mx.nd.array([1.00001, NAN])
    found = mx.nd.contrib.allclose(one, other, rtol=1e-3)
    assert (found.shape, found.dtype, int(found.asnumpy())) == ((), np.uint8, 1)
    assert int(mx.nd.contrib.allclose(one, other, rtol=1e-7).asnumpy()) == 0


def test_finiteness_of_one_and_many():
    assert mx.nd.all_finite(mx.nd.ones((3,))).asscalar() == 1
    assert mx.nd.all_finite(mx.nd.array([1, INF])).asscalar() == 0
    arrays = [mx.nd.ones((2,)), mx.nd.array([NAN])]
    assert mx.nd.multi_all_finite(*arrays, num_arrays=2).asscalar() == 0
    assert mx.nd.multi_all_finite(*arrays[:1]).asscalar() == 1
    for before in (0, 1):  # MXNet goes on with what out holds where init_output is off
        out = mx.nd.full((1,), before)
        assert mx.nd.all_finite(arrays[0], init_output=False, out=out).asscalar() == 1
        assert mx.nd.multi_all_finite(*arrays, num_arrays=2, init_output=False, out=out).asscalar() == 0


def test_isnan_isinf_isfinite():
    x = mx.nd.array([1, NAN, INF, -INF])
    assert mx.nd.contrib.isnan(x).asnumpy().tolist() == [0, 1, 0, 0]
    assert mx.nd.contrib.isinf(x).asnumpy().tolist() == [0, 0, 1, 1]
    assert mx.nd.contrib.isfinite(x).asnumpy().tolist() == [1, 0, 0, 0]


def test_arange_like_keeps_the_type():
    found = mx.nd.contrib.arange_like(mx.nd.ones((2, 3), dtype="int64"), repeat=2)
    assert found.dtype == np.int64
    assert found.asnumpy().tolist() == [[0, 0, 1], [1, 2, 2]]


def test_index_array_counts_axes_from_the_end_too():
    found = mx.nd.contrib.index_array(mx.nd.ones((2, 3)), axes=(-1,))
    assert found.asnumpy()[..., 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(MXNetError, match="axes"):
        mx.nd.contrib.index_array(mx.nd.ones((2, 3)), axes=(2,))


def test_stored_zeros_of_a_csr_matrix_count():
    edges = mx.nd.sparse.csr_matrix(([0.0, 1.0, 2.0], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    assert mx.nd.contrib.getnnz(edges).asnumpy().tolist() == [3]
    assert mx.nd.contrib.getnnz(edges, axis=1).asnumpy().tolist() == [2, 1]
    assert mx.nd.contrib.getnnz(edges, axis=0).asnumpy().tolist() == [1, 1, 1]
    u, v = mx.nd.array([0, 0, 0, 1, 1]), mx.nd.array([0, 1, 2, 1, 2])
    assert mx.nd.contrib.edge_id(edges, u, v).asnumpy().tolist() == [1, -1, 0, 2, -1]
    empty = mx.nd.sparse.zeros("csr", (2, 3))
    assert mx.nd.contrib.edge_id(empty, u, v).asnumpy().tolist() == [-1] * 5


def test_dense_matrices_count_what_is_not_zero():
    dense = mx.nd.array([[0, 5], [0, 0]])
    assert mx.nd.contrib.getnnz(dense).asnumpy().tolist() == [1]
    for matrix in (dense, dense.tostype("csr")):
        assert mx.nd.contrib.getnnz(matrix, axis=0).asnumpy().tolist() == [0, 1]
    assert mx.nd.contrib.edge_id(dense, mx.nd.array([0, 1]), mx.nd.array([1, 1])).asnumpy().tolist() == [
        5,
        -1,
    ]
    with pytest.raises(ShapeError):
        shapes("_contrib_getnnz", [(2, 3, 4)])


def test_gradients_that_are_not_derivatives():
    x = np.array([-1.4, 0.6, 2.5])
    assert gradients("_contrib_round_ste", x, head=x)[0].tolist() == x.tolist()
    assert gradients("_contrib_sign_ste", x, head=x)[0].tolist() == x.tolist()
    assert gradients("_contrib_gradientmultiplier", x, scalar=-2.0)[0].tolist() == [-2, -2, -2]
    assert gradients("_scale_gradient", x, np.array([4.0]))[0].tolist() == [4, 4, 4]
    assert gradients("_scale_gradient", x, np.array([4.0]), inverse=True)[0].tolist() == [0.25, 0.25, 0.25]


def test_quadratic_of_integers_cuts_the_fraction():
    found = mx.nd.contrib.quadratic(mx.nd.array([1, 2], dtype="int32"), a=1.5)
    assert (found.dtype, found.asnumpy().tolist()) == (np.int32, [1, 6])
