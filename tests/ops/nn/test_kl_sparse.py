import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from helpers.numeric import shapes

rng = np.random.RandomState(4)


def bound(data, average, **attrs):
    symbol = mx.sym.IdentityAttachKLSparseReg(mx.sym.Variable("data"), name="reg", **attrs)
    executor = symbol.simple_bind(mx.cpu(), data=data.shape)
    executor.arg_dict["data"][:] = data
    executor.aux_dict["reg_moving_avg"][:] = average
    return executor


def test_backward_moves_the_average_and_adds_the_penalty():
    data, average, head = rng.rand(4, 3), np.full(3, 0.4), rng.randn(4, 3)
    executor = bound(data, average, sparseness_target=0.2, penalty=0.5, momentum=0.7)
    np.testing.assert_allclose(executor.forward(is_train=True)[0].asnumpy(), data, rtol=1e-6)
    np.testing.assert_allclose(executor.aux_dict["reg_moving_avg"].asnumpy(), average, rtol=1e-6)
    executor.backward(mx.nd.array(head))
    moved = 0.7 * average + 0.3 * data.mean(0)
    np.testing.assert_allclose(executor.aux_dict["reg_moving_avg"].asnumpy(), moved, rtol=1e-5)
    want = head + 0.5 * (-0.2 / moved + 0.8 / (1 - moved))
    np.testing.assert_allclose(executor.grad_dict["data"].asnumpy(), want, rtol=1e-4)


def test_prediction_leaves_the_average():
    executor = bound(rng.rand(4, 3), np.full(3, 0.4))
    executor.forward(is_train=False)
    np.testing.assert_allclose(executor.aux_dict["reg_moving_avg"].asnumpy(), 0.4, rtol=1e-6)


def test_refusals():
    with pytest.raises(ShapeError, match="flatten"):
        shapes("IdentityAttachKLSparseReg", (2, 3, 4), None)
    with pytest.raises(mx.base.MXNetError, match="momentum"):
        mx.sym.IdentityAttachKLSparseReg(mx.sym.Variable("data"), momentum=1.5)
