"""Outputs behind which every gradient ends in a loss need none from outside: detection networks reshape their losses.

Which networks run without a head gradient, and which do not, was tried with MXNet 1.9.1.
"""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError

S = mx.sym
DATA = S.Variable("data")


def dense(name="fc"):
    return S.FullyConnected(DATA, num_hidden=3, name=name)


SOFTMAX = S.SoftmaxOutput(dense(), name="softmax")
SQUARE = S.MakeLoss(S.square(dense()), name="loss")
RNG = np.random.RandomState(0)
VALUES = {"data": RNG.rand(4, 5), "fc_weight": RNG.rand(3, 5), "fc_bias": RNG.rand(3)}
VALUES["softmax_label"] = RNG.randint(0, 3, 4)


def gradient(net, **bound):
    """Return the gradient of the weight and of the bias."""
    executor = net.simple_bind(mx.cpu(), data=(4, 5), **bound)
    executor.forward(is_train=True, **{k: VALUES[k] for k in executor.arg_dict if k in VALUES})
    executor.backward()
    return [executor.grad_dict[name].asnumpy() for name in ("fc_weight", "fc_bias")]


def expected(loss):
    """Return the same by formula."""
    values = VALUES["data"] @ VALUES["fc_weight"].T + VALUES["fc_bias"]
    scores = np.exp(values)
    diff = 2 * values
    if loss is SOFTMAX:
        diff = scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[VALUES["softmax_label"]]
    return [diff.T @ VALUES["data"], diff.sum(axis=0)]


BESIDE = {"fc_weight": "write", "fc_bias": "write"}


@pytest.mark.parametrize(
    ("net", "loss", "options"),
    [
        (S.Reshape(SOFTMAX, shape=(1, -1, 3)), SOFTMAX, {}),
        (S.log(SOFTMAX), SOFTMAX, {}),
        (S.Concat(SOFTMAX, S.BlockGrad(dense("other"))), SOFTMAX, {}),
        (SOFTMAX + dense("other"), SOFTMAX, {"grad_req": BESIDE}),
        (S.sum(SQUARE), SQUARE, {}),
    ],
    ids=["reshape", "log", "concat", "null", "sum of squares"],
)
def test_the_loss_below_gives_its_own_gradient(net, loss, options):
    for found, value in zip(gradient(net, **options), expected(loss), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("net", [S.sign(dense()), SOFTMAX + dense("other")], ids=["sign", "sum"])
def test_a_way_around_the_loss_needs_a_gradient(net):
    with pytest.raises(ArgumentError, match="out_grads"):
        gradient(net)
