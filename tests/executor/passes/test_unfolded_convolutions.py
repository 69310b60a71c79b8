import importlib

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor
from helpers.switched import fired, results, same_with_and_without

S = mx.sym
NAME = "unfolded_convolutions"
MODULE = importlib.import_module("dpmodule.executor.passes.unfolded_convolutions")
UNFOLD = MODULE.unfold


@pytest.fixture(autouse=True)
def products(monkeypatch):
    """Let small weights count as large ones, and note how often data is laid out as rows."""
    calls = []

    def unfold(*args):
        calls.append(args[0].shape)
        return UNFOLD(*args)

    monkeypatch.setattr(MODULE, "unfold", unfold)
    monkeypatch.setattr(MODULE, "_MIN_WEIGHT", 1)
    return calls


def net(**attrs):
    options = {"kernel": (3, 3), "num_filter": 16, "name": "conv", **attrs}
    value = S.Convolution(S.tanh(S.Variable("data"), name="first"), **options)
    return S.MakeLoss(S.square(S.relu(value, name="active"), name="last"), name="loss")


CASES = {
    "plain": ({}, (2, 3, 4, 4)),
    "padded": ({"pad": (1, 1)}, (1, 3, 4, 4)),
    "strides": ({"pad": (1, 0), "stride": (2, 3)}, (1, 4, 6, 9)),
    "dilated": ({"dilate": (2, 1), "pad": (2, 1)}, (1, 2, 5, 3)),
    "uneven": ({"kernel": (1, 3), "pad": (0, 2)}, (2, 3, 1, 5)),
    "points": ({"kernel": (1, 1), "no_bias": True}, (4, 5, 2, 2)),
    "one channel": ({"no_bias": True}, (3, 1, 4, 4)),
    "one position": ({"kernel": (4, 4)}, (3, 2, 4, 4)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("is_train", [True, False])
def test_results_are_those_without(case, grad_req, is_train, products):
    attrs, shape = CASES[case]
    counts = same_with_and_without(
        net(**attrs), {"data": shape}, NAME, rtol=2e-6, grad_req=grad_req, is_train=is_train
    )
    assert counts[NAME] == 1
    assert products


def test_a_product_of_windows_by_hand():
    symbol = S.Convolution(S.Variable("data"), kernel=(2, 2), num_filter=9, name="conv")
    one = symbol.simple_bind(mx.cpu(), data=(1, 2, 3, 3))
    rng = np.random.RandomState(0)
    x, w, b, head = (
        rng.uniform(-1, 1, s).astype("f4") for s in ((1, 2, 3, 3), (9, 2, 2, 2), 9, (1, 9, 2, 2))
    )
    out = one.forward(is_train=True, data=x, conv_weight=w, conv_bias=b)[0].asnumpy()
    one.backward(mx.nd.array(head))
    want, dx, dw = np.zeros_like(head), np.zeros_like(x), np.zeros_like(w)
    for i, j in np.ndindex(2, 2):
        window = x[0, :, i : i + 2, j : j + 2]
        want[0, :, i, j] = (w * window).sum(axis=(1, 2, 3)) + b
        dw += head[0, :, i, j][:, None, None, None] * window
        dx[0, :, i : i + 2, j : j + 2] += (head[0, :, i, j][:, None, None, None] * w).sum(axis=0)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.grad_dict["data"].asnumpy(), dx, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.grad_dict["conv_weight"].asnumpy(), dw, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.grad_dict["conv_bias"].asnumpy(), head.sum(axis=(0, 2, 3)), rtol=1e-5)
    assert one.program(True).low.fired[NAME] == 1


@pytest.mark.parametrize("names", [("conv_weight",), ("data",), ("conv_bias", "data")])
def test_some_gradients_are_not_wanted(names):
    symbol = net()
    req = {name: "null" if name in names else "write" for name in symbol.list_arguments()}
    assert same_with_and_without(symbol, {"data": (2, 3, 4, 4)}, NAME, grad_req=req, rtol=2e-6)[NAME] == 1


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 3, 9, 9), "float32"), ((2, 3, 4, 4), "float64")], ids=["positions", "type"]
)
def test_sizes_and_types_decide_when_it_runs(shape, dtype, products):
    counts = same_with_and_without(net(), {"data": shape}, NAME, dtype=dtype)
    assert counts[NAME] == 1
    assert not products


def test_small_weights_are_left_to_the_convolution(monkeypatch, products):
    monkeypatch.setattr(MODULE, "_MIN_WEIGHT", 433)
    results(net(), {"data": (2, 3, 4, 4)})
    assert not products


def shared():
    weight, value = S.Variable("w"), S.Variable("data")
    for i in range(2):
        value = S.Convolution(
            value, weight, kernel=(1, 1), num_filter=4, no_bias=True, num_group=1, name=f"c{i}"
        )
    return S.MakeLoss(value)


OTHERS = {
    "groups": (lambda: net(num_group=2), (2, 4, 4, 4)),
    "one axis": (lambda: net(kernel=(3,)), (2, 3, 4)),
    "three axes": (lambda: net(kernel=(2, 2, 2)), (1, 3, 3, 3, 3)),
    "shared weight": (shared, (2, 4, 1, 1)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_convolutions_are_left_alone(case):
    make, shape = OTHERS[case]
    assert NAME not in fired(make(), {"data": shape})


@pytest.mark.parametrize("off", [(), ("channels_last",)])
def test_weights_made_in_the_graph_and_other_layouts(off, products):
    weight = S.Variable("w", shape=(16, 3, 3, 3))
    value = S.Convolution(
        S.Variable("data"), S.tanh(weight), kernel=(3, 3), num_filter=16, no_bias=True, name="c"
    )
    value = S.Activation(S.BatchNorm(value, name="bn", fix_gamma=False), act_type="relu")
    symbol = S.MakeLoss(S.Convolution(value, kernel=(1, 1), num_filter=16, name="d"))
    shapes = {"data": (2, 3, 4, 4)}
    found = results(symbol, shapes, off)[1]
    assert found[NAME] == 2
    assert same_with_and_without(symbol, shapes, NAME, "channels_last", rtol=1e-5)[NAME] == 2
    assert products


def test_weights_are_restrided_only_where_the_convolution_runs():
    source = net().simple_bind(mx.cpu(), data=(2, 3, 4, 4)).program(True).source
    assert "channels_last(conv_weight)" not in source
    assert "Convolution(first, conv_weight, conv_bias)" in source


def test_a_gradient_needs_no_copy():
    one = net().simple_bind(mx.cpu(), data=(2, 3, 4, 4))
    one.arg_dict["data"][:] = 1
    one.forward(is_train=True)
    before = one.grad_dict["conv_weight"].tensor.data_ptr()
    one.backward()
    after = one.grad_dict["conv_weight"].tensor
    assert after.data_ptr() != before
    assert after.is_contiguous()


def test_a_monitor_sees_the_same():
    seen = []
    for names in ((), (NAME,)):
        with executor.disabled(*names):
            one = net().simple_bind(mx.cpu(), data=(2, 3, 4, 4))
            one.arg_dict["data"][:] = one.arg_dict["conv_weight"][:] = 0.5
            found = {}
            one.set_monitor_callback(lambda name, array, found=found: found.update({name: array.asnumpy()}))
            one.forward(is_train=True)
            seen.append(found)
    assert seen[0].keys() == seen[1].keys()
    np.testing.assert_allclose(seen[0]["conv_output"], seen[1]["conv_output"], rtol=1e-5)
