"""BatchNorm multiplied into the layer before it."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.models import with_parameters
from helpers.onnx_runs import check_same
from helpers.walk import walks

LAYERS = [
    ((2, 4, 6, 5), "Convolution", {"kernel": (3, 3), "num_filter": 6}, 1),
    ((2, 4, 6, 5), "Convolution", {"kernel": (3, 2), "num_filter": 6, "num_group": 2, "no_bias": True}, -3),
    ((2, 6, 5, 4), "Convolution", {"kernel": (3, 2), "num_filter": 6, "layout": "NHWC"}, 3),
    ((2, 4, 7), "Convolution", {"kernel": (3,), "num_filter": 2, "no_bias": True}, 1),
    ((2, 4, 3, 3), "Deconvolution", {"kernel": (2, 3), "stride": (2, 2), "num_filter": 6, "num_group": 2}, 1),
    (
        (2, 3, 3, 4),
        "Deconvolution",
        {"kernel": (2, 2), "num_filter": 3, "layout": "NHWC", "no_bias": False},
        -1,
    ),
    ((2, 4, 3), "FullyConnected", {"num_hidden": 5}, 1),
    ((2, 4, 3), "FullyConnected", {"num_hidden": 5, "flatten": False, "no_bias": True}, -1),
]


def network(shape, layer, attrs, axis, **options):
    """Return a layer with BatchNorm behind it, and drawn parameters."""
    net = getattr(mx.sym, layer)(mx.sym.Variable("data"), name="layer", **attrs)
    net = mx.sym.BatchNorm(net, axis=axis, name="norm", **options)
    return with_parameters(net, {"data": np.random.RandomState(1).randn(*shape).astype("float32")})


def kinds(model):
    return {node.op_type for node in model.graph.node}


@walks([(*row, fixed) for row in LAYERS for fixed in (False, True)])
def test_layers(shape, layer, attrs, axis, fixed):
    net = network(shape, layer, attrs, axis, fix_gamma=fixed)
    model = check_same(net.symbol, net.arrays, net.params, fold_batchnorm=True)
    assert "BatchNormalization" not in kinds(model)
    assert {each.name for each in model.graph.initializer} >= {"layer_weight", "layer_bias"}


@pytest.mark.parametrize("reason", ["axis", "statistics", "unknown", "read by another", "shared weight"])
def test_what_stays(reason):
    shape, layer, attrs, axis = LAYERS[0]
    axis = 2 if reason == "axis" else axis
    net = network(shape, layer, attrs, axis, output_mean_var=reason == "statistics")
    symbol, params = net.symbol, net.params
    if reason == "unknown":
        params = [name for name in params if name != "norm_beta"]
    if reason == "read by another":
        symbol = mx.sym.Group([symbol, symbol.get_internals()["layer_output"]])
    if reason == "shared weight":
        weight = symbol.get_internals()["layer_weight"]
        symbol = mx.sym.Group([symbol, mx.sym.sum(weight)])
    model = check_same(symbol, net.arrays, params, fold_batchnorm=True)
    assert "BatchNormalization" in kinds(model)
    assert "BatchNormalization" in kinds(check_same(net.symbol, net.arrays, net.params))


def test_parameters_given_stay_as_they_are(tmp_path):
    net = network(*LAYERS[0])
    params = {name: mx.nd.array(net.arrays[name]) for name in net.params}
    before = {name: value.asnumpy().copy() for name, value in params.items()}
    path = tmp_path / "net.onnx"
    mx.onnx.export_model(net.symbol, params, [(2, 4, 6, 5)], onnx_file_path=path, fold_batchnorm=True)
    assert all((params[name].asnumpy() == value).all() for name, value in before.items())
