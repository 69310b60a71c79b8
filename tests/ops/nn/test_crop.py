import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from helpers.numeric import shapes

IMAGE = np.arange(2 * 5 * 6, dtype="f4").reshape(1, 2, 5, 6)


def test_all_forms():
    data = mx.nd.array(IMAGE)
    like = mx.nd.zeros((4, 1, 2, 3))
    np.testing.assert_array_equal(mx.nd.Crop(data, like).asnumpy(), IMAGE[:, :, :2, :3])
    np.testing.assert_array_equal(mx.nd.Crop(data, like, offset=(3, 2)).asnumpy(), IMAGE[:, :, 3:, 2:5])
    np.testing.assert_array_equal(mx.nd.Crop(data, like, center_crop=True).asnumpy(), IMAGE[:, :, 1:3, 1:4])
    np.testing.assert_array_equal(mx.nd.Crop(data, num_args=1, h_w=(5, 1)).asnumpy(), IMAGE[:, :, :, :1])


def test_only_the_first_input_gets_a_gradient():
    symbol = mx.sym.Crop(mx.sym.Variable("data"), mx.sym.Variable("like"), offset=(1, 1))
    bound = symbol.simple_bind(mx.cpu(), data=(1, 1, 3, 3), like=(1, 2, 2, 1))
    bound.grad_dict["like"][:] = 5
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((1, 1, 2, 1)))
    want = np.zeros((3, 3))
    want[1:, 1] = 1
    np.testing.assert_array_equal(bound.grad_dict["data"].asnumpy()[0, 0], want)
    assert not bound.grad_dict["like"].asnumpy().any()


def test_partial_shapes():
    assert shapes("Crop", (0, 3, 5, 0), num_args=1, h_w=(2, 2))[1] == [(0, 3, 2, 2)]
    assert shapes("Crop", (0, 3, 5, 6), None, num_args=2)[1] == [(0, 3, 0, 0)]
    assert shapes("Crop", (2, 3, 5, 6), (0, 0, 2, 0), num_args=2)[1] == [(2, 3, 2, 0)]


@pytest.mark.parametrize(
    ("ins", "attrs", "message"),
    [
        ([(1, 1, 5, 5)], {"h_w": (6, 1)}, r"part \(6, 1\), .* within \(5, 5\)"),
        ([(1, 1, 5, 5)], {}, "h_w is"),
        ([(1, 1, 5, 5)], {"h_w": (2, 2), "offset": (4, 0)}, r"offset is \(4, 0\)"),
        ([(1, 1, 5, 5), (1, 1, 2, 2)], {"offset": (0, -1)}, r"offset is \(0, -1\)"),
        ([(1, 1, 5, 5), (1, 2, 2)], {}, "the second input has shape"),
        ([(1, 5, 5)], {"h_w": (1, 1)}, "data has shape"),
    ],
)
def test_refusals(ins, attrs, message):
    with pytest.raises(ShapeError, match=message):
        shapes("Crop", *ins, num_args=len(ins), **attrs)
