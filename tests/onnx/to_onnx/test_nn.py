"""Layers in ONNX, beyond the rows of the tables."""

import itertools

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.models import with_parameters
from helpers.onnx_runs import check_same, exported, our_outputs, runtime_outputs
from helpers.walk import walks

RNG = np.random.RandomState(0)
X = mx.sym.Variable("x")


def values(*shape, dtype="float32"):
    return {"x": RNG.randn(*shape).astype(dtype)}


def kinds(model):
    return [node.op_type for node in model.graph.node]


@walks(list(itertools.product(("leaky", "elu", "selu", "gelu", "rrelu"), (13, 17, 20, 21))))
def test_rectifiers(act_type, opset):
    model = check_same(mx.sym.LeakyReLU(X, act_type=act_type, name="op"), values(2, 3, 4), opset=opset)
    assert ("Gelu" in kinds(model)) == (act_type == "gelu" and opset >= 20)


@walks([((2, 3), (3,)), ((2, 3, 4, 5), (3,)), ((2, 3, 4), (1,)), ((2, 3, 4), (2, 3)), ((5,), (5,))])
def test_learned_slopes(data, gamma):
    arrays = values(*data) | {"gamma": RNG.rand(*gamma).astype("float32")}
    check_same(mx.sym.LeakyReLU(X, mx.sym.Variable("gamma"), act_type="prelu", name="op"), arrays, ["gamma"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_goes(dtype):
    model = check_same(mx.sym.Dropout(X * 2, p=0.7, name="drop"), values(3, 4, dtype=dtype))
    assert "Dropout" not in kinds(model)


def test_dropout_that_always_drops_is_refused():
    with pytest.raises(ArgumentError, match="mode 'always' drops in prediction, too"):
        exported(mx.sym.Dropout(X, mode="always", name="drop"), values(3, 4))


LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
CASES = [
    (layer, rank, layout, groups)
    for layer in ("Convolution", "Deconvolution")
    for rank, layouts in LAYOUTS.items()
    for layout, groups in itertools.product(layouts, (1, 2))
]


@walks(CASES)
def test_convolutions_of_all_layouts(layer, rank, layout, groups):
    spatial = (7, 6, 5)[:rank]
    shape = (2, *spatial, 4) if layout.endswith("C") else (2, 4, *spatial)
    attrs = {
        "kernel": (3, 2, 2)[:rank],
        "stride": (2, 1, 2)[:rank],
        "pad": (1, 0, 1)[:rank],
        "layout": layout,
    }
    if layer == "Deconvolution":
        attrs["adj"] = (1, 0, 1)[:rank]
    else:
        attrs["dilate"] = (2, 1, 1)[:rank]
    symbol = getattr(mx.sym, layer)(
        X, num_filter=6, num_group=groups, no_bias=groups == 2, name="op", **attrs
    )
    net = with_parameters(symbol, values(*shape))
    model = exported(net.symbol, net.arrays, net.params, dynamic=True)
    more = net.arrays | values(5, *shape[1:])
    np.testing.assert_allclose(runtime_outputs(model, more)[0], our_outputs(symbol, more)[0], 1e-4, 1e-5)


def test_pictures_of_any_size_go_through_convolutions_but_not_to_a_target():
    dynamic = {"x": {2: "height", 3: "width"}}
    attrs = {"kernel": (4, 4), "stride": (2, 2), "num_filter": 3}
    net = with_parameters(mx.sym.Deconvolution(X, pad=(1, 1), name="op", **attrs), values(1, 2, 5, 6))
    model = exported(net.symbol, net.arrays, net.params, dynamic=dynamic)
    more = net.arrays | values(1, 2, 9, 4)
    np.testing.assert_allclose(runtime_outputs(model, more)[0], our_outputs(net.symbol, more)[0], 1e-4, 1e-5)
    net = with_parameters(
        mx.sym.Deconvolution(X, target_shape=(9, 10), name="op", **attrs), values(1, 2, 5, 6)
    )
    check_same(net.symbol, net.arrays, net.params)
    with pytest.raises(ArgumentError, match="dynamic"):
        exported(net.symbol, net.arrays, net.params, dynamic=dynamic)


@walks([(0, 3), (-2, 9), (2.9, 0.4)])
def test_embedding_takes_the_rows_that_mxnet_takes(*indices):
    table = RNG.rand(4, 2).astype("float32")
    symbol = mx.sym.Embedding(X, mx.sym.Variable("table"), input_dim=4, output_dim=2, name="op")
    check_same(symbol, {"x": np.array([indices], "float32"), "table": table}, ["table"], dynamic=True)


@walks([((6,), True), ((6, 5), True), ((2, 3, 2), True), ((2, 3, 6), False), ((4, 6), False), ((6,), False)])
def test_dense_layers(shape, flatten):
    symbol = mx.sym.FullyConnected(X, num_hidden=3, flatten=flatten, name="op")
    net = with_parameters(symbol, values(*shape))
    check_same(symbol, net.arrays, net.params)


@walks(
    list(itertools.product(("float16", "float64"), ("Convolution", "FullyConnected", "BatchNorm", "Pooling")))
)
def test_other_types(dtype, layer):
    attrs = {"Convolution": {"kernel": (3, 3), "num_filter": 2}, "FullyConnected": {"num_hidden": 3}}
    attrs["Pooling"] = {"kernel": (2, 2), "pool_type": "avg"}
    symbol = getattr(mx.sym, layer)(X, name="op", **attrs.get(layer, {}))
    net = with_parameters(symbol, values(2, 3, 5, 6))
    keep = "float32" if layer == "BatchNorm" and dtype == "float16" else dtype
    arrays = {key: value.astype(dtype if key == "x" else keep) for key, value in net.arrays.items()}
    check_same(symbol, arrays, net.params, rtol=1e-2, atol=2e-2)
