"""Comparing, counting, masking and copying rows."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.arrays import INF, NAN, f4, f8, i4, i8, u1
from helpers.op_case import gradients, values_test

X = f4([1, NAN, INF, -INF])
test_values = values_test(
    ("_contrib_boolean_mask", (np.ones((2, 3)), np.ones(2)), {}, np.ones((2, 3))),
    ("_contrib_allclose", (f4([1, NAN]), f4([1.00001, NAN])), {"rtol": 1e-3}, u1(1)),
    ("_contrib_allclose", (f4([1, NAN]), f4([1.00001, NAN])), {"rtol": 1e-7}, u1(0)),
    ("_contrib_arange_like", (np.ones((2, 3), "i8"),), {"repeat": 2}, i8([[0, 0, 1], [1, 2, 2]])),
    ("_contrib_index_array", (np.ones((2, 3)),), {"axes": (-1,)}, i8([[[0], [1], [2]]] * 2)),
    ("_contrib_edge_id", (f4([[0, 5], [0, 0]]), f4([0, 1]), f4([1, 1])), {}, f4([5, -1])),
    ("_contrib_quadratic", (i4([1, 2]),), {"a": 1.5}, i4([1, 6])),
    ("all_finite", (f4([1, INF]),), {}, f4([0])),
)


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
    found = [grads[key].asnumpy().tolist() for key in ("data", "index")]
    assert found == [[[2, 2], [0, 0], [2, 2]], [0, 0, 0]]
    assert mx.nd.contrib.boolean_mask(mx.nd.ones((2, 3)), mx.nd.zeros((2,))).shape == (0, 3)


def test_finiteness_of_one_and_many():
    arrays = [mx.nd.ones((2,)), mx.nd.array([NAN])]
    assert mx.nd.multi_all_finite(*arrays, num_arrays=2).asscalar() == 0
    assert mx.nd.multi_all_finite(*arrays[:1]).asscalar() == 1
    for before in (0, 1):  # MXNet goes on with what out holds where init_output is off
        out = mx.nd.full((1,), before)
        assert mx.nd.all_finite(arrays[0], init_output=False, out=out).asscalar() == 1
        assert mx.nd.multi_all_finite(*arrays, num_arrays=2, init_output=False, out=out).asscalar() == 0


@pytest.mark.parametrize(("name", "wanted"), [("isnan", 1), ("isinf", 2), ("isfinite", 0)])
def test_isnan_isinf_isfinite(name, wanted):
    found = getattr(mx.nd.contrib, name)(mx.nd.array(X)).asnumpy()
    assert found.tolist() == getattr(np, name)(X).tolist()
    assert found[wanted] == 1


def test_stored_zeros_of_a_csr_matrix_count():
    edges = mx.nd.sparse.csr_matrix(([0.0, 1.0, 2.0], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    u, v = mx.nd.array([0, 0, 0, 1, 1]), mx.nd.array([0, 1, 2, 1, 2])
    empty, dense = mx.nd.sparse.zeros("csr", (2, 3)), mx.nd.array([[0, 5], [0, 0]])
    for found, wanted in (
        (mx.nd.contrib.getnnz(edges), [3]),
        (mx.nd.contrib.getnnz(edges, axis=1), [2, 1]),
        (mx.nd.contrib.getnnz(edges, axis=0), [1, 1, 1]),
        (mx.nd.contrib.edge_id(edges, u, v), [1, -1, 0, 2, -1]),
        (mx.nd.contrib.edge_id(empty, u, v), [-1] * 5),
        (mx.nd.contrib.getnnz(dense, axis=0), [0, 1]),
        (mx.nd.contrib.getnnz(dense.tostype("csr"), axis=0), [0, 1]),
    ):
        assert found.asnumpy().tolist() == wanted


@pytest.mark.parametrize(("attrs", "factor"), [({}, 4), ({"inverse": True}, 0.25)])
def test_a_scaled_gradient(attrs, factor):
    x = f8([-1.4, 0.6, 2.5])
    np.testing.assert_allclose(gradients("_scale_gradient", x, f8([4]), head=x, **attrs)[0], factor * x)
