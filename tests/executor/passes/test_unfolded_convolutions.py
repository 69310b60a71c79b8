import importlib

import numpy as np
import pytest

import dpmodule as mx
from helpers.switched import fired, results, same_with_and_without

S = mx.sym
NAME = "unfolded_convolutions"
MODULE = importlib.import_module("dpmodule.executor.passes.unfolded_convolutions")
UNFOLD = MODULE.unfold
SHAPE = (2, 3, 4, 4)


@pytest.fixture(autouse=True)
def products(monkeypatch):
    """Let small weights count as large ones, and note how often data is laid out as rows."""
    calls = []
    monkeypatch.setattr(MODULE, "unfold", lambda *args: calls.append(args[0].shape) or UNFOLD(*args))
    monkeypatch.setattr(MODULE, "_MIN_WEIGHT", 1)
    return calls


def net(**attrs):
    options = {"kernel": (3, 3), "num_filter": 16, "name": "conv", **attrs}
    value = S.Convolution(S.tanh(S.Variable("data"), name="first"), **options)
    return S.MakeLoss(S.square(S.relu(value, name="active"), name="last"), name="loss")


def shared():
    weight, value = S.Variable("w"), S.Variable("data")
    for i in range(2):
        value = S.Convolution(value, weight, kernel=(1, 1), num_filter=4, no_bias=True, name=f"c{i}")
    return S.MakeLoss(value)


def computed_weight():
    weight = S.tanh(S.Variable("w", shape=(16, 3, 3, 3)))
    value = S.Convolution(S.Variable("data"), weight, kernel=(3, 3), num_filter=16, no_bias=True, name="c")
    value = S.Activation(S.BatchNorm(value, name="bn", fix_gamma=False), act_type="relu")
    return S.MakeLoss(S.Convolution(value, kernel=(1, 1), num_filter=16, name="d"))


CASES = {
    "plain": (net(), SHAPE),
    "padded": (net(pad=(1, 1)), (1, 3, 4, 4)),
    "strides": (net(pad=(1, 0), stride=(2, 3)), (1, 4, 6, 9)),
    "dilated": (net(dilate=(2, 1), pad=(2, 1)), (1, 2, 5, 3)),
    "uneven": (net(kernel=(1, 3), pad=(0, 2)), (2, 3, 1, 5)),
    "points": (net(kernel=(1, 1), no_bias=True), (4, 5, 2, 2)),
    "one channel": (net(no_bias=True), (3, 1, 4, 4)),
    "one position": (net(kernel=(4, 4)), (3, 2, 4, 4)),
}


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("req", ["write", "add", ["conv_weight"], ["data"], ["conv_bias", "data"]])
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_without(case, req, is_train, products):
    symbol, shape = CASES[case]
    if isinstance(req, list):
        req = {name: "null" if name in req else "write" for name in symbol.list_arguments()}
    options = {"grad_req": req, "is_train": is_train}
    assert same_with_and_without(symbol, {"data": shape}, NAME, rtol=2e-6, **options)[NAME] == 1
    assert products


def test_a_product_of_windows_by_hand():
    symbol = S.Convolution(S.Variable("data"), kernel=(2, 2), num_filter=9, name="conv")
    one = symbol.simple_bind(mx.cpu(), data=(1, 2, 3, 3))
    rng, shapes = np.random.RandomState(0), ((1, 2, 3, 3), (9, 2, 2, 2), 9, (1, 9, 2, 2))
    x, w, b, head = (rng.uniform(-1, 1, shape).astype("f4") for shape in shapes)
    out = one.forward(is_train=True, data=x, conv_weight=w, conv_bias=b)[0].asnumpy()
    one.backward(mx.nd.array(head))
    want, dx, dw = np.zeros_like(head), np.zeros_like(x), np.zeros_like(w)
    for i, j in np.ndindex(2, 2):
        window, grad = x[0, :, i : i + 2, j : j + 2], head[0, :, i, j][:, None, None, None]
        want[0, :, i, j] = (w * window).sum(axis=(1, 2, 3)) + b
        dw += grad * window
        dx[0, :, i : i + 2, j : j + 2] += (grad * w).sum(axis=0)
    grads = [one.grad_dict[name].asnumpy() for name in ("data", "conv_weight", "conv_bias")]
    for found, value in zip((out, *grads), (want, dx, dw, head.sum(axis=(0, 2, 3))), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    assert one.program(True).low.fired[NAME] == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "least"),
    [((2, 3, 9, 9), "float32", 1), (SHAPE, "float64", 1), (SHAPE, "float32", 433)],
    ids=["positions", "type", "small weight"],
)
def test_sizes_and_types_decide_when_it_runs(shape, dtype, least, products, monkeypatch):
    monkeypatch.setattr(MODULE, "_MIN_WEIGHT", least)
    assert same_with_and_without(net(), {"data": shape}, NAME, dtype=dtype)[NAME] == 1
    assert not products


@pytest.mark.parametrize(
    ("symbol", "shape"),
    [
        (net(num_group=2), (2, 4, 4, 4)),
        (net(kernel=(3,)), (2, 3, 4)),
        (net(kernel=(2, 2, 2)), (1, 3, 3, 3, 3)),
        (shared(), (2, 4, 1, 1)),
    ],
    ids=["groups", "one axis", "three axes", "shared weight"],
)
def test_other_convolutions_are_left_alone(symbol, shape):
    assert NAME not in fired(symbol, {"data": shape})


@pytest.mark.parametrize("off", [(), ("channels_last",)])
def test_weights_made_in_the_graph_and_other_layouts(off, products):
    assert results(computed_weight(), {"data": SHAPE}, off)[1][NAME] == 2
    assert same_with_and_without(computed_weight(), {"data": SHAPE}, NAME, *off, rtol=1e-5)[NAME] == 2
    assert products


def test_weights_are_restrided_only_where_the_convolution_runs_and_gradients_are_not_copied():
    one = net().simple_bind(mx.cpu(), data=SHAPE)
    assert "channels_last(conv_weight)" not in one.program(True).source
    one.forward(is_train=True, data=np.ones(SHAPE))
    before = one.grad_dict["conv_weight"].tensor.data_ptr()
    one.backward()
    after = one.grad_dict["conv_weight"].tensor
    assert after.data_ptr() != before
    assert after.is_contiguous()
