from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor
from helpers.switched import assert_same, fired, results, same_with_and_without
from helpers.walk import walks

S = mx.sym
NAME = "pooling_first"
IMAGE = {"x": (2, 3, 8, 7)}

RISING = {
    "relu": lambda v: S.Activation(v, act_type="relu"),
    "tanh": lambda v: S.Activation(v, act_type="tanh"),
    "sigmoid": lambda v: S.Activation(v, act_type="sigmoid"),
    "softrelu": lambda v: S.Activation(v, act_type="softrelu"),
    "relu op": S.relu,
    "tanh op": S.tanh,
    "sigmoid op": S.sigmoid,
    "leaky": lambda v: S.LeakyReLU(v, act_type="leaky", slope=0.1),
    "elu": lambda v: S.LeakyReLU(v, act_type="elu", slope=0.7),
}
OTHERS = {
    "softsign": lambda v: S.Activation(v, act_type="softsign"),
    "gelu": lambda v: S.LeakyReLU(v, act_type="gelu"),
    "selu": lambda v: S.LeakyReLU(v, act_type="selu"),
    "falling": lambda v: S.LeakyReLU(v, act_type="leaky", slope=-0.1),
    "flat": lambda v: S.LeakyReLU(v, act_type="leaky", slope=0.0),
    "clip": lambda v: S.clip(v, a_min=0, a_max=1),
    "abs": S.abs,
}
POOLS = {
    "2x2": {"kernel": (2, 2), "stride": (2, 2)},
    "overlapping": {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
    "uneven": {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 0)},
    "full": {"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"},
    "full padded": {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full"},
    "gaps": {"kernel": (2, 2), "stride": (3, 3)},
    "global": {"global_pool": True, "kernel": (1, 1)},
}
NO_POOLS = {
    "average": {"kernel": (2, 2), "stride": (2, 2), "pool_type": "avg"},
    "every place": {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1)},
    "no stride": {"kernel": (3, 3)},
    "windows in padding": {"kernel": (2, 2), "stride": (2, 2), "pad": (2, 2)},
    "windows beyond": {"kernel": (2, 2), "stride": (3, 3), "pooling_convention": "full"},
}


def pooled(activate, **attrs):
    net = S.Pooling(activate(S.Variable("x")), **{"pool_type": "max", **attrs})
    return S.MakeLoss(S.square(net))


@walks(product(RISING, POOLS, [False, True]), family=lambda kind, *_: kind)
def test_rising_activations_give_the_same_later(kind, pool, coarse):
    net = pooled(RISING[kind], **POOLS[pool])
    assert same_with_and_without(net, IMAGE, NAME, coarse=coarse)[NAME] == 1


def test_the_maximum_of_tanh_by_hand():
    net = S.Pooling(S.tanh(S.Variable("x")), kernel=(2, 2), stride=(2, 2), pool_type="max")
    one = net.simple_bind(mx.cpu(), x=(1, 1, 2, 4))
    one.arg_dict["x"][:] = mx.nd.array([[[[-1, -2, 0.5, 0.25], [-3, -0.5, 0.5, 0]]]])
    out = one.forward(is_train=True)[0].asnumpy()
    np.testing.assert_allclose(out[0, 0, 0], np.tanh([-0.5, 0.5]), rtol=1e-6)
    one.backward(mx.nd.array([[[[1, 10]]]]))
    want = np.zeros((2, 4))
    want[1, 1], want[0, 2] = 1 - np.tanh(0.5) ** 2, 10 * (1 - np.tanh(0.5) ** 2)  # the first of equals
    np.testing.assert_allclose(one.grad_dict["x"].asnumpy()[0, 0], want, rtol=1e-5)
    assert one.program(True).low.fired[NAME] == 1


def test_the_greater_of_neighbours_that_tanh_makes_equal_has_the_gradient():
    lower = np.float32(2)
    upper = np.nextafter(lower, np.float32(3))
    assert np.tanh(lower) == np.tanh(upper)
    net = S.Pooling(S.tanh(S.Variable("x")), kernel=(1, 2), stride=(1, 2), pool_type="max")
    one = net.simple_bind(mx.cpu(), x=(1, 1, 1, 2))
    one.arg_dict["x"][:] = mx.nd.array([[[[lower, upper]]]])
    one.forward(is_train=True)
    one.backward(mx.nd.ones((1, 1, 1, 1)))
    first, second = one.grad_dict["x"].asnumpy().ravel()
    assert first == 0
    assert second == pytest.approx(1 - np.tanh(2) ** 2, rel=1e-4)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_activations_stay_where_they_are(kind):
    assert NAME not in fired(pooled(OTHERS[kind], **POOLS["2x2"]), IMAGE)


@pytest.mark.parametrize("pool", NO_POOLS)
def test_before_other_poolings_they_stay(pool):
    assert NAME not in fired(pooled(RISING["relu"], **NO_POOLS[pool]), IMAGE)


@pytest.mark.parametrize(
    ("shape", "kernel"), [((2, 3, 8), (2,)), ((2, 3, 4, 4, 4), (2, 2, 2))], ids=["one axis", "three axes"]
)
@pytest.mark.parametrize("kind", ["relu", "tanh"])
def test_other_numbers_of_axes(kind, shape, kernel):
    net = pooled(RISING[kind], kernel=kernel, stride=kernel)
    assert same_with_and_without(net, {"x": shape}, NAME)[NAME] == 1


@pytest.mark.parametrize("kind", ["relu", "tanh", "sigmoid", "softrelu", "elu", "leaky"])
def test_not_a_number_and_infinite_ones_come_through_alike(kind):
    net = S.Pooling(RISING[kind](S.Variable("x")), kernel=(2, 2), stride=(2, 2), pool_type="max")
    found = []
    for off in ((), (NAME,)):
        with executor.disabled(*off):
            one = net.simple_bind(mx.cpu(), x=(1, 1, 2, 8))
            values = [
                [1, np.nan, np.inf, 2, -np.inf, -np.inf, -np.inf, 3],
                [0, 1, 5, 4, -np.inf, -np.inf, 1, np.inf],
            ]
            one.arg_dict["x"][:] = mx.nd.array([[values]])
            out = one.forward(is_train=True)[0].asnumpy()
            one.backward(mx.nd.ones(out.shape))
            found.append((out, one.grad_dict["x"].asnumpy()))
    for got, want in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["relu", "tanh", "sigmoid"])
def test_half_precision_gives_the_same_bits(kind):
    net = S.Pooling(RISING[kind](S.Variable("x")), kernel=(2, 2), stride=(2, 2), pool_type="max")
    found = [results(net, IMAGE, off, dtype="float16", seeds=True) for off in ((), (NAME,))]
    assert_same(found[0][0], found[1][0], 0)
    assert found[0][1][NAME] == 1


def test_an_activation_that_others_read_stays():
    active = S.tanh(S.Variable("x"), name="active")
    largest = S.Pooling(active, kernel=(2, 2), stride=(2, 2), pool_type="max")
    for net in (S.Group([largest, active]), S.Group([largest, S.sum(active)])):
        assert NAME not in same_with_and_without(net, IMAGE, NAME, seeds=True)


def test_what_goes_into_the_activation_may_have_other_readers():
    v = S.square(S.Variable("x"))
    net = S.Pooling(S.relu(v - 0.3), kernel=(2, 2), stride=(2, 2), pool_type="max")
    assert same_with_and_without(S.Group([net, v]), IMAGE, NAME, seeds=True)[NAME] == 1


@pytest.mark.parametrize(
    "grad_req", ["write", "add", {"data": "null", "conv_weight": "write", "conv_bias": "add"}]
)
@pytest.mark.parametrize("is_train", [True, False])
def test_behind_a_convolution(grad_req, is_train):
    net = S.Variable("data")
    net = S.Convolution(net, kernel=(3, 3), num_filter=4, name="conv")
    net = S.Pooling(S.tanh(net), kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = S.MakeLoss(S.Pooling(S.relu(net), kernel=(2, 2), stride=(2, 2), pool_type="max"))
    if isinstance(grad_req, dict):
        grad_req = {k: grad_req[k] for k in net.list_arguments()}
    counts = same_with_and_without(
        net, {"data": (2, 3, 10, 10)}, NAME, rtol=1e-5, grad_req=grad_req, is_train=is_train
    )
    assert counts[NAME] == 2


def test_a_monitor_sees_the_activation():
    net = S.Pooling(S.tanh(S.Variable("x"), name="active"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    one = net.simple_bind(mx.cpu(), x=IMAGE["x"])
    one.arg_dict["x"][:] = 0.5
    seen = {}
    one.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    one.forward()
    assert seen["active_output"].shape == IMAGE["x"]
    np.testing.assert_allclose(seen["active_output"], np.tanh(0.5), rtol=1e-6)
