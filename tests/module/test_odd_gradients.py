"""Gradients that autograd returns as views, expansions or in another layout, under every optimizer.

Fused update kernels ignore strides: a gradient handed to them as it comes would write garbage without an error. Each
case knows its gradient from a NumPy formula, and each optimizer's rule is that of helpers/rules.py.
"""

from itertools import product

import numpy as np

import dpmodule as mx
from helpers import rules
from helpers.walk import walks

RNG = np.random.RandomState(11)
X = RNG.randn(4, 6)
W = RNG.randn(6, 3)


def with_data(net):
    """A loss that reads the data without depending on it."""
    return mx.sym.MakeLoss(mx.sym.broadcast_add(net, 0 * mx.sym.sum(mx.sym.Variable("data"))))


def sum_head():
    """Loss sum(w): the gradient is a stride-0 expansion of the head gradient."""
    return with_data(mx.sym.sum(mx.sym.Variable("w_weight", shape=W.shape))), W, np.ones_like(W)


def transposed():
    """Loss sum(x @ w.T.T): the gradient is a transposed view."""
    w = mx.sym.transpose(mx.sym.Variable("w_weight", shape=(3, 6)))
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.dot(mx.sym.Variable("data"), w)))
    return net, W.T.copy(), np.tile(X.sum(0), (3, 1))


def tied():
    """One weight used twice, once transposed: two gradients add up."""
    w, data = mx.sym.Variable("w_weight", shape=W.shape), mx.sym.Variable("data")
    twice = mx.sym.dot(mx.sym.dot(data, w), mx.sym.transpose(w))
    back = np.ones((4, 6))
    return mx.sym.MakeLoss(mx.sym.sum(twice)), W, X.T @ (back @ W) + back.T @ (X @ W)


def added():
    """Loss a + b with one shape: both gradients and the head are one tensor."""
    return with_data(mx.sym.Variable("w_weight", shape=W.shape) + mx.sym.Variable("v_weight")), W, None


def concatenated():
    """Two parameters joined: each gradient is a slice of one tensor."""
    w = mx.sym.Concat(*[mx.sym.Variable(f"{n}_weight", shape=W.shape) for n in "wv"], dim=1)
    return mx.sym.MakeLoss(mx.sym.dot(mx.sym.Variable("data"), w)), W, np.tile(X.sum(0)[:, None], (1, 3))


def convolved():
    """A convolution's weight gradient in channels_last strides."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=3, no_bias=True, name="w")
    return mx.sym.MakeLoss(mx.sym.sum(net)), RNG.randn(3, 2, 3, 3), None


CASES = {f.__name__: f for f in (sum_head, transposed, tied, added, concatenated, convolved)}


def conv_gradient(x):
    grad = np.zeros((3, 2, 3, 3))
    for i in range(3):
        for j in range(3):
            grad[:, :, i, j] = x[:, :, i : i + 4, j : j + 4].sum((0, 2, 3))
    return grad


RULES = {"sgd": {"momentum": 0.9}, "nag": {"momentum": 0.9}, "adam": {}, "adagrad": {}, "rmsprop": {}}


@walks(product([1, 2], list(RULES), list(CASES)), family=lambda contexts, optimizer, case: optimizer)
def test_update_equals_the_numpy_rule(contexts, optimizer, case):
    net, start, gradient = CASES[case]()
    rule, extra = getattr(rules, optimizer), {"wd": 0.01, **RULES[optimizer]}
    x = RNG.randn(4, 2, 6, 6) if case == "convolved" else X
    mod = mx.mod.Module(net, label_names=None, context=[mx.cpu(i) for i in range(contexts)])
    mod.bind([("data", x.shape)])
    names = [n for n in net.list_arguments() if n != "data"]
    mod.init_params(arg_params={n: mx.nd.array(start) for n in names})
    mod.init_optimizer("local", optimizer, {"learning_rate": 0.1, "rescale_grad": 1.0, **extra})
    if gradient is None:
        gradient = conv_gradient(x) if case == "convolved" else np.ones_like(start)
    shared_by_all = case in ("sum_head", "added")  # each context computes the whole loss
    gradient = gradient * (contexts if shared_by_all else 1)
    want, state = start.copy(), {}
    for t in range(1, 4):
        mod.forward_backward(mx.io.DataBatch([mx.nd.array(x)]))
        mod.update()
        if case == "tied":
            back = np.ones((4, 6))
            gradient = x.T @ (back @ want) + back.T @ (x @ want)
        want, state = rule(want, gradient, state, t, lr=0.1, **extra)
        for name in names:
            got = mod.get_params()[0][name].asnumpy()
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"{name} at step {t}")
