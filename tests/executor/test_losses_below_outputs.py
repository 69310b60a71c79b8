"""Outputs behind which every gradient ends in a loss need none from outside: detection networks reshape their losses.

Which networks run without a head gradient, and which do not, was tried with MXNet 1.9.1.
"""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError

DATA = mx.sym.Variable("data")


def dense(name="fc"):
    return mx.sym.FullyConnected(DATA, num_hidden=3, name=name)


def softmax():
    return mx.sym.SoftmaxOutput(dense(), name="softmax")


def square_loss():
    return mx.sym.MakeLoss(mx.sym.square(dense()), name="loss")


def gradient(net, **bound):
    executor = net.simple_bind(mx.cpu(), data=(4, 5), **bound)
    rng = np.random.RandomState(0)
    for name in sorted(executor.arg_dict):
        array = executor.arg_dict[name]
        if not name.startswith("other"):
            array[:] = rng.randint(0, 3, array.shape) if name.endswith("label") else rng.rand(*array.shape)
    executor.forward(is_train=True)
    executor.backward()
    return {k: g.asnumpy() for k, g in executor.grad_dict.items() if g is not None}


def expected_of_softmax():
    rng = np.random.RandomState(0)
    data, bias, weight = rng.rand(4, 5), rng.rand(3), rng.rand(3, 5)
    label = rng.randint(0, 3, 4)
    scores = np.exp(data @ weight.T + bias)
    diff = scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[label]
    return {"fc_weight": diff.T @ data, "fc_bias": diff.sum(axis=0)}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: mx.sym.Reshape(s, shape=(1, -1, 3)),
        mx.sym.transpose,
        lambda s: s * 2,
        mx.sym.log,
        lambda s: mx.sym.slice_axis(s, axis=0, begin=0, end=2),
        lambda s: mx.sym.Concat(s, mx.sym.BlockGrad(dense("other"))),
    ],
    ids=["reshape", "transpose", "times", "log", "slice", "concat"],
)
def test_the_loss_below_gives_its_own_gradient(wrap):
    found = gradient(wrap(softmax()))
    for name, value in expected_of_softmax().items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def test_a_reshaped_makeloss():
    rng = np.random.RandomState(0)
    data, bias, weight = rng.rand(4, 5), rng.rand(3), rng.rand(3, 5)
    diff = 2 * (data @ weight.T + bias)
    found = gradient(mx.sym.Reshape(square_loss(), shape=(2, -1)))
    np.testing.assert_allclose(found["fc_weight"], diff.T @ data, rtol=1e-5)
    np.testing.assert_allclose(gradient(mx.sym.sum(square_loss()))["fc_bias"], diff.sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    "net",
    [
        dense(),
        mx.sym.sign(dense()),
        softmax() + dense("other"),
        mx.sym.Group([mx.sym.Reshape(softmax(), shape=(-1,)), dense("other")]),
    ],
    ids=["dense", "sign", "sum", "group"],
)
def test_a_way_around_the_loss_needs_a_gradient(net):
    with pytest.raises(ArgumentError, match="out_grads"):
        gradient(net)


def test_a_way_to_arguments_without_gradient_needs_none():
    net = softmax() + dense("other")
    req = {
        name: "null" if name.startswith("other") or name == "data" else "write"
        for name in net.list_arguments()
    }
    found = gradient(net, grad_req=req)
    np.testing.assert_allclose(found["fc_bias"], expected_of_softmax()["fc_bias"], rtol=1e-5, atol=1e-6)
