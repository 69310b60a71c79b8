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


RISING = {kind: activation(kind) for kind in ("relu", "tanh", "sigmoid", "softrelu")}
RISING |= {"relu op": S.relu, "leaky": leaky("leaky", 0.1), "elu": leaky("elu", 0.7)}
OTHERS = {"softsign": activation("softsign"), "falling": leaky("leaky", -0.1), "flat": leaky("leaky", 0.0)}
OTHERS["clip"] = lambda v: S.clip(v, a_min=0, a_max=1)
POOLS = {
    "overlapping": {**THREE, "pad": (1, 1)},
    "uneven": {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 0)},
    "full padded": {**THREE, "pad": (1, 1), "pooling_convention": "full"},
    "gaps": {"kernel": (2, 2), "stride": (3, 3)},
    "global": {"global_pool": True, "kernel": (1, 1)},
}
NO_POOLS = {"average": {**PAIR, "pool_type": "avg"}, "windows in padding": {**PAIR, "pad": (2, 2)}}
NO_POOLS["windows beyond"] = {**POOLS["gaps"], "pooling_convention": "full"}


def pooled(value, **attrs):
    return S.Pooling(value, **{"pool_type": "max", **attrs})


def loss(activate, **attrs):
    return S.MakeLoss(S.square(pooled(activate(X), **attrs)))


@walks(product(RISING, POOLS, [False, True]), family=lambda kind, *_: kind)
def test_rising_activations_give_the_same_later(kind, pool, coarse):
    values = {"x": np.random.RandomState(0).randint(-2, 3, IMAGE["x"]) / 2} if coarse else None
    assert same_with_and_without(loss(RISING[kind], **POOLS[pool]), IMAGE, NAME, values=values)[NAME] == 1


SPECIAL = np.array([[1, np.nan, np.inf, 2, *[-np.inf] * 3, 3], [0, 1, 5, 4, -np.inf, -np.inf, 1, np.inf]])
ACTIVE, SQUARED = S.tanh(X), S.square(X)
INNER = pooled(S.tanh(S.Convolution(X, kernel=(3, 3), num_filter=4, name="conv")), **PAIR)
CASES = {
    **{kind: (loss(each, **PAIR), 0) for kind, each in OTHERS.items()},
    **{kind: (loss(S.relu, **each), 0) for kind, each in NO_POOLS.items()},
    "output": (S.Group([pooled(ACTIVE, **PAIR), ACTIVE]), 0),
    "read": (S.Group([pooled(ACTIVE, **PAIR), S.sum(ACTIVE)]), 0),
    "input read": (S.Group([pooled(S.relu(SQUARED - 0.3), **PAIR), SQUARED]), 1),
    "twice": (S.MakeLoss(pooled(S.relu(INNER), **PAIR)), 2),
}
for kind in ("relu", "tanh", "sigmoid", "softrelu", "elu", "leaky"):
    net = pooled(RISING[kind](X), **PAIR)
    # the gradient that torch has for elu at NaN, NaN or 1, depends on the length of the processor's vectors
    values = np.nan_to_num(SPECIAL, posinf=np.inf, neginf=-np.inf) if kind == "elu" else SPECIAL
    CASES[f"{kind} of NaN"] = net, 1, {"x": (1, 1, 2, 8)}, {"values": {"x": [[values]]}}
    if kind in ("relu", "tanh", "sigmoid"):
        CASES[f"{kind} in halves"] = net, 1, IMAGE, {"dtype": "float16", "rtol": 0}
for axes in (1, 3):
    net = loss(S.relu, kernel=(2,) * axes, stride=(2,) * axes)
    CASES[f"{axes} axes"] = net, 1, {"x": (2, 3, *[4] * axes)}


@pytest.mark.parametrize("case", CASES)
def test_where_it_fires(case):
    net, count, shapes, options = (*CASES[case], *(IMAGE, {})[len(CASES[case]) - 2 :])
    assert same_with_and_without(net, shapes, NAME, seeds=True, **options).get(NAME, 0) == count
    assert fired(net, shapes, False).get(NAME, 0) == count


def test_the_greater_of_neighbours_that_tanh_makes_equal_has_the_gradient():
    lower = np.float32(2)
    upper = np.nextafter(lower, np.float32(3))
    assert np.tanh(lower) == np.tanh(upper)
    one = pooled(S.tanh(X), kernel=(1, 2), stride=(1, 2)).simple_bind(mx.cpu(), x=(1, 1, 1, 2))
    one.forward(is_train=True, x=np.array([[[[lower, upper]]]], "f4"))
    one.backward(mx.nd.ones((1, 1, 1, 1)))
    assert one.program(True).low.fired[NAME] == 1
    np.testing.assert_allclose(one.grad_dict["x"].asnumpy().ravel(), [0, 1 - np.tanh(2) ** 2], rtol=1e-4)
