"""BatchNorm multiplied into the layer before it."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.models import with_parameters
from helpers.onnx_runs import check_same
from helpers.walk import walks

GROUPED = {"num_group": 2, "no_bias": True}
LAYERS = [
    ((2, 4, 6, 5), "Convolution", {"kernel": (3, 3), "num_filter": 6}, 1),
    ((2, 4, 6, 5), "Convolution", {"kernel": (3, 2), "num_filter": 6, **GROUPED}, -3),
    ((2, 6, 5, 4), "Convolution", {"kernel": (3, 2), "num_filter": 6, "layout": "NHWC"}, 3),
    ((2, 4, 7), "Convolution", {"kernel": (3,), "num_filter": 2, "no_bias": True}, 1),
    ((2, 4, 3, 3), "Deconvolution", {"kernel": (2, 3), "stride": (2, 2), "num_filter": 6, "num_group": 2}, 1),
    (
        *((2, 3, 3, 4), "Deconvolution"),
        *({"kernel": (2, 2), "num_filter": 3, "layout": "NHWC", "no_bias": False}, -1),
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
    before = {name: value.copy() for name, value in net.arrays.items()}
    model = check_same(net.symbol, net.arrays, net.params, fold_batchnorm=True)
    assert "BatchNormalization" not in kinds(model)
    assert {each.name for each in model.graph.initializer} >= {"layer_weight", "layer_bias"}
    for name, value in before.items():
        np.testing.assert_array_equal(net.arrays[name], value)


@pytest.mark.parametrize("reason", ["axis", "statistics", "unknown", "read by another", "shared weight"])
def test_what_stays(reason):
    net = network(*LAYERS[0][:3], 2 if reason == "axis" else 1, output_mean_var=reason == "statistics")
    symbol, params = net.symbol, net.params
    if reason == "unknown":
        params = [name for name in params if name != "norm_beta"]
    if reason == "read by another":
        symbol = mx.sym.Group([symbol, symbol.get_internals()["layer_output"]])
    if reason == "shared weight":
        symbol = mx.sym.Group([symbol, mx.sym.sum(symbol.get_internals()["layer_weight"])])
    assert "BatchNormalization" in kinds(check_same(symbol, net.arrays, params, fold_batchnorm=True))
    assert "BatchNormalization" in kinds(check_same(net.symbol, net.arrays, net.params))
