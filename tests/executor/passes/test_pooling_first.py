from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from helpers.switched import fired, same_with_and_without
from helpers.walk import walks

S = mx.sym
NAME = "pooling_first"
IMAGE = {"x": (2, 3, 8, 7)}
X = S.Variable("x")
PAIR = {"kernel": (2, 2), "stride": (2, 2)}
THREE = {"kernel": (3, 3), "stride": (2, 2)}


def activation(kind):
    return lambda v: S.Activation(v, act_type=kind)


def leaky(kind, slope=0.25):
    return lambda v: S.LeakyReLU(v, act_type=kind, slope=slope)


RISING = {
    **{kind: activation(kind) for kind in ("relu", "tanh", "sigmoid", "softrelu")},
    **{f"{each.__name__} op": each for each in (S.relu, S.tanh, S.sigmoid)},
    "leaky": leaky("leaky", 0.1),
    "elu": leaky("elu", 0.7),
}
OTHERS = {
    "softsign": activation("softsign"),
    "gelu": leaky("gelu"),
    "selu": leaky("selu"),
    "falling": leaky("leaky", -0.1),
    "flat": leaky("leaky", 0.0),
    "clip": lambda v: S.clip(v, a_min=0, a_max=1),
    "abs": S.abs,
}
POOLS = {
    "2x2": PAIR,
    "overlapping": {**THREE, "pad": (1, 1)},
    "uneven": {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 0)},
    "full": {**THREE, "pooling_convention": "full"},
    "full padded": {**THREE, "pad": (1, 1), "pooling_convention": "full"},
    "gaps": {"kernel": (2, 2), "stride": (3, 3)},
    "global": {"global_pool": True, "kernel": (1, 1)},
}
NO_POOLS = {
    "average": {**PAIR, "pool_type": "avg"},
    "every place": {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1)},
    "no stride": {"kernel": (3, 3)},
    "windows in padding": {**PAIR, "pad": (2, 2)},
    "windows beyond": {"kernel": (2, 2), "stride": (3, 3), "pooling_convention": "full"},
}


def pooled(value, **attrs):
    return S.Pooling(value, **{"pool_type": "max", **attrs})


def loss(activate, **attrs):
    return S.MakeLoss(S.square(pooled(activate(X), **attrs)))


@walks(product(RISING, POOLS, [False, True]), family=lambda kind, *_: kind)
def test_rising_activations_give_the_same_later(kind, pool, coarse):
    assert same_with_and_without(loss(RISING[kind], **POOLS[pool]), IMAGE, NAME, coarse=coarse)[NAME] == 1


SPECIAL = np.array([[1, np.nan, np.inf, 2, *[-np.inf] * 3, 3], [0, 1, 5, 4, -np.inf, -np.inf, 1, np.inf]])
ACTIVE, SQUARED = S.tanh(X), S.square(X)
CONVOLVED = S.Convolution(X, kernel=(3, 3), num_filter=4, name="conv")
TWICE = S.MakeLoss(pooled(S.relu(pooled(S.tanh(CONVOLVED), **PAIR)), **PAIR))
LARGE = {"x": (2, 3, 10, 10)}
SOME = {"x": "null", "conv_weight": "write", "conv_bias": "add"}


def row(net, count, shapes=IMAGE, **options):
    return net, count, shapes, {"seeds": True, **options}


CASES = {
    **{kind: row(loss(each, **PAIR), 0) for kind, each in OTHERS.items()},
    **{kind: row(loss(S.relu, **each), 0) for kind, each in NO_POOLS.items()},
    "output": row(S.Group([pooled(ACTIVE, **PAIR), ACTIVE]), 0),
    "read": row(S.Group([pooled(ACTIVE, **PAIR), S.sum(ACTIVE)]), 0),
    "input read": row(S.Group([pooled(S.relu(SQUARED - 0.3), **PAIR), SQUARED]), 1),
    "convolved": row(TWICE, 2, LARGE, rtol=1e-5),
    "convolved, added": row(TWICE, 2, LARGE, rtol=1e-5, grad_req="add"),
    "convolved, some": row(TWICE, 2, LARGE, rtol=1e-5, grad_req=SOME),
    "convolved, predicting": row(TWICE, 2, LARGE, rtol=1e-5, is_train=False),
}
for kind in ("relu", "tanh", "sigmoid", "softrelu", "elu", "leaky"):
    net = pooled(RISING[kind](X), **PAIR)
    CASES[f"{kind} of NaN"] = row(net, 1, {"x": (1, 1, 2, 8)}, values={"x": [[SPECIAL]]})
    if kind in ("relu", "tanh", "sigmoid"):
        CASES[f"{kind} in halves"] = row(net, 1, dtype="float16", rtol=0)
    for axes in (1, 3):
        net = loss(RISING[kind], kernel=(2,) * axes, stride=(2,) * axes)
        CASES[f"{kind} over {axes}"] = row(net, 1, {"x": (2, 3, *[4] * axes)})


@pytest.mark.parametrize("case", CASES)
def test_where_it_fires(case):
    net, count, shapes, options = CASES[case]
    assert same_with_and_without(net, shapes, NAME, **options).get(NAME, 0) == count
    assert fired(net, shapes, False).get(NAME, 0) == count


def gradient(net, values):
    one = net.simple_bind(mx.cpu(), x=np.shape(values))
    out = one.forward(is_train=True, x=np.array(values, "f4"))[0]
    one.backward(mx.nd.arange(1, 1 + out.size).reshape(out.shape))
    assert one.program(True).low.fired[NAME] == 1
    return out.asnumpy().ravel(), one.grad_dict["x"].asnumpy()[0, 0]


def test_the_maximum_of_tanh_by_hand():
    out, grad = gradient(pooled(S.tanh(X), **PAIR), [[[[-1, -2, 0.5, 0.25], [-3, -0.5, 0.5, 0]]]])
    np.testing.assert_allclose(out, np.tanh([-0.5, 0.5]), rtol=1e-6)
    want = np.zeros((2, 4))
    want[1, 1], want[0, 2] = 1 - np.tanh(0.5) ** 2, 2 * (1 - np.tanh(0.5) ** 2)  # the first of equals
    np.testing.assert_allclose(grad, want, rtol=1e-5)


def test_the_greater_of_neighbours_that_tanh_makes_equal_has_the_gradient():
    lower = np.float32(2)
    upper = np.nextafter(lower, np.float32(3))
    assert np.tanh(lower) == np.tanh(upper)
    _, grad = gradient(pooled(S.tanh(X), kernel=(1, 2), stride=(1, 2)), [[[[lower, upper]]]])
    np.testing.assert_allclose(grad, [[0, 1 - np.tanh(2) ** 2]], rtol=1e-4)
