import importlib
from types import SimpleNamespace

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn.unfold import WindowGrid
from helpers.switched import fired, same_with_and_without

S = mx.sym
NAME = "unfolded_convolutions"
MODULE = importlib.import_module(f"dpmodule.executor.passes.{NAME}")
UNFOLD = importlib.import_module("dpmodule.ops.nn.unfold")
SHAPE = (2, 3, 4, 4)


@pytest.fixture(autouse=True)
def products(monkeypatch):
    """Note how often a convolution is a product, as those of small images are here; there are no tiles."""
    calls, train = [], MODULE.train_convolution
    monkeypatch.setattr(
        MODULE, "train_convolution", lambda *args: calls.append(args[0].shape) or train(*args)
    )
    monkeypatch.setattr(MODULE, "is_fast_as_rows", lambda data, *args: data[2] < 65)
    monkeypatch.setattr("dpmodule.ops.nn.trained_convolution.has_tiles", lambda: False)
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


CASES = {
    "padded": (net(pad=(1, 1)), (1, 3, 4, 4)),
    "strides": (net(pad=(1, 0), stride=(2, 3)), (1, 4, 6, 9)),
    "dilated": (net(dilate=(2, 1), pad=(2, 1)), (1, 2, 5, 3)),
    "uneven": (net(kernel=(1, 3), pad=(0, 2)), (2, 3, 1, 5)),
    "points": (net(kernel=(1, 1), no_bias=True), (4, 5, 2, 2)),
    "one position": (net(kernel=(4, 4)), (3, 2, 4, 4)),
}


@pytest.mark.parametrize("frozen", ["", "conv_weight", "data"])
@pytest.mark.parametrize(("symbol", "shape"), CASES.values(), ids=CASES)
def test_results_are_those_without(symbol, shape, frozen, products):
    req = {name: "null" if name == frozen else "write" for name in symbol.list_arguments()}
    assert same_with_and_without(symbol, {"data": shape}, NAME, rtol=2e-6, grad_req=req)[NAME] == 1
    assert bool(products) == hasattr(native.core, "unfold")


@pytest.mark.parametrize(("shape", "dtype"), [((2, 3, 65, 9), "float32"), (SHAPE, "float64")])
def test_sizes_and_types_decide_when_it_runs(shape, dtype, products):
    assert same_with_and_without(net(pad=(1, 1)), {"data": shape}, NAME, dtype=dtype)[NAME] == 1
    assert not products


def test_fast_sizes(monkeypatch):
    for name in ("kernel_beats_mkl", "mkl_is_fastest"):
        monkeypatch.setattr(UNFOLD, name, lambda: False)
    monkeypatch.setattr(UNFOLD, "kernels", lambda: SimpleNamespace(vector_width=16))
    grid = WindowGrid((3, 3), (1, 1), (1, 1), (1, 1))
    points = WindowGrid((1, 1), (1, 1), (0, 0), (1, 1))
    # more filters than positions: from another size on where torch does without oneDNN
    sizes = [
        ((2, 64, 4, 4), 128),
        ((2, 16, 6, 6), 16),
        ((1, 128, 4, 4), 64),
        ((1, 256, 4, 4), 512),
        ((0, 64, 4, 4), 128),
    ]
    found = [UNFOLD.is_fast_as_rows(data, filters, grid, 1) for data, filters in sizes]
    assert found == [True, False, False, True, False]
    # torch convolves points by oneDNN with several threads
    assert [UNFOLD.is_fast_as_rows((2, 256, 4, 4), 300, points, n) for n in (1, 2)] == [False, True]
    large = (8, 64, 28, 28), 16, points
    cases = [(1, True), (1, False), (2, True)]
    assert [UNFOLD.is_fast_as_rows(*large, *case) for case in cases] == [True, False, False]
    monkeypatch.setattr(UNFOLD, "kernel_beats_mkl", lambda: True)
    large = (8, 64, 28, 28), 32, points
    assert [UNFOLD.is_fast_as_rows(*large, *case) for case in cases] == [True, False, True]
    # fewer multiplications, few filters, much weight; the same with as many multiplications as any weight needs
    others = [((8, 64, 11, 11), 32), ((8, 64, 56, 56), 16), ((8, 256, 8, 8), 320), ((32, 512, 9, 9), 512)]
    assert [UNFOLD.is_fast_as_rows(*each, points, 1) for each in others] == [False, False, False, True]
    # torch multiplies few positions of several images slowly
    assert UNFOLD.is_fast_as_rows((8, 256, 4, 4), 512, points, 1)
    # windows that copy pixels often need more filters: 49 times, 12 times; and most with AVX2
    large = WindowGrid((7, 7), (1, 1), (3, 3), (1, 1)), WindowGrid((7, 7), (2, 2), (3, 3), (1, 1))
    assert [UNFOLD.is_fast_as_rows((4, 64, 8, 8), 256, grid, 1) for grid in large] == [False, True]
    monkeypatch.setattr(UNFOLD, "kernels", lambda: SimpleNamespace(vector_width=8))
    assert not UNFOLD.is_fast_as_rows((4, 64, 8, 8), 256, large[1], 1)
    # neither copies nor single images need more where MKL is the fastest
    single = (1, 128, 7, 7), 128, grid, 1
    assert not UNFOLD.is_fast_as_rows(*single)
    monkeypatch.setattr(UNFOLD, "mkl_is_fastest", lambda: True)
    assert [UNFOLD.is_fast_as_rows((4, 64, 8, 8), 256, large[0], 1), UNFOLD.is_fast_as_rows(*single)] == [
        True
    ] * 2


def test_other_convolutions_are_left_alone():
    others = [(net(num_group=2), (2, 4, 4, 4)), (net(kernel=(3,)), (2, 3, 4)), (shared(), (2, 4, 1, 1))]
    assert [fired(symbol, {"data": shape}).get(NAME, 0) for symbol, shape in others] == [0] * 3


@pytest.mark.skipif(not hasattr(native.core, "unfold"), reason="there is no extension")
def test_gradients_are_not_copied():
    one = net().simple_bind(mx.cpu(), data=SHAPE)
    assert "channels_last(conv_weight)" not in one.program(True).source
    one.forward(is_train=True, data=np.ones(SHAPE))
    before = one.grad_dict["conv_weight"].tensor.data_ptr()
    one.backward()
    after = one.grad_dict["conv_weight"].tensor
    assert after.data_ptr() != before
    assert after.is_contiguous()
