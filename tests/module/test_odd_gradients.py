"""Gradients that autograd returns as views, expansions or in another layout, under every optimizer.

Fused update kernels ignore strides: a gradient handed to them as it comes would write garbage without an error. Each
case knows its gradient from a NumPy formula, and each optimizer's rule is that of helpers/rules.py.
"""

from itertools import product

import numpy as np

import dpmodule as mx
from helpers import rules
from helpers.small_fits import step
from helpers.walk import walks

S, RNG = mx.sym, np.random.RandomState(11)
X, W, BACK = RNG.randn(4, 6), RNG.randn(6, 3), np.ones((4, 6))
PICTURES, KERNEL = RNG.randn(4, 2, 6, 6), RNG.randn(3, 2, 3, 3)
DATA, WEIGHT = S.Variable("data"), S.Variable("w_weight", shape=W.shape)
TURNED = S.transpose(S.Variable("w_weight", shape=(3, 6)))
JOINED = S.Concat(WEIGHT, S.Variable("v_weight", shape=W.shape), dim=1)
WINDOWS = [[PICTURES[:, :, i : i + 4, j : j + 4].sum((0, 2, 3)) for j in range(3)] for i in range(3)]
# data, first value of the parameters, loss, and its gradient for a value
CASES = {
    # an expansion of the head gradient with strides of 0; each context computes the whole loss
    "sum": (X, W, S.broadcast_add(S.sum(WEIGHT), 0 * S.sum(DATA)), lambda w: np.ones_like(w)),
    "transposed": (X, W.T, S.sum(S.dot(DATA, TURNED)), lambda w: np.tile(X.sum(0), (3, 1))),
    # one weight used twice, once transposed: two gradients add up
    "tied": (X, W, S.sum(S.dot(S.dot(DATA, WEIGHT), S.transpose(WEIGHT))),
             lambda w: X.T @ (BACK @ w) + BACK.T @ (X @ w)),
    # each gradient is a slice of one tensor
    "joined": (X, W, S.dot(DATA, JOINED), lambda w: np.tile(X.sum(0)[:, None], (1, 3))),
    # strides of channels_last
    "convolved": (PICTURES, KERNEL, S.sum(S.Convolution(DATA, kernel=(3, 3), num_filter=3, no_bias=True, name="w")),
                  lambda w: np.tile(np.transpose(WINDOWS, (2, 0, 1)), (3, 1, 1, 1))),
}  # fmt: skip
RULES = {"sgd": {"momentum": 0.9}, "adam": {}, "adagrad": {}, "rmsprop": {}, "ftrl": {}}


@walks(product([1, 2], list(RULES), list(CASES)), family=lambda contexts, optimizer, case: optimizer)
def test_update_equals_the_numpy_rule(contexts, optimizer, case):
    x, want, loss, gradient = CASES[case]
    rule, extra, state = getattr(rules, optimizer), {"wd": 0.01, **RULES[optimizer]}, {}
    net = S.MakeLoss(loss)
    mod = mx.mod.Module(net, label_names=None, context=[mx.cpu(i) for i in range(contexts)])
    mod.bind([("data", x.shape)])
    names = [n for n in net.list_arguments() if n != "data"]
    mod.init_params(arg_params={n: mx.nd.array(want) for n in names})
    mod.init_optimizer("local", optimizer, {"learning_rate": 0.1, "rescale_grad": 1.0, **extra})
    for t in range(1, 4):
        step(mod, mx.io.DataBatch([mx.nd.array(x)]))
        grad = gradient(want) * (contexts if case == "sum" else 1)
        want, state = rule(want, grad, state, t, lr=0.1, **extra)
        for name in names:
            got = mod.get_params()[0][name].asnumpy()
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"{name} at step {t}")
