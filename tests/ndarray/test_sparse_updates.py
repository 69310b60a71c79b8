"""Updates by row-sparse gradients: which rows change, and what is refused."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import DTypeError, OpError, ShapeError


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
