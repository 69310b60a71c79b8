"""Layers, normalisation and softmax in ONNX, beyond the rows of the tables."""

from itertools import product

import numpy as np

import dpmodule as mx
from helpers.models import with_parameters
from helpers.onnx_runs import check_dynamic, check_same
from helpers.walk import walks

RNG = np.random.RandomState(0)
S = mx.sym
X = S.Variable("x")


def values(*shape, dtype="float32"):
    return {"x": RNG.randn(*shape).astype(dtype)}


def kinds(model):
    return [node.op_type for node in model.graph.node]


def check(symbol, *shape, dtype=None, **options):
    """Check an operator with drawn parameters; return its model."""
    net = with_parameters(symbol, values(*shape))
    arrays = net.arrays | ({"x": net.arrays["x"].astype(dtype)} if dtype else {})
    return check_same(symbol, arrays, net.params, **options)


@walks(product(("leaky", "elu", "selu", "gelu", "rrelu"), (13, 17, 20, 21)))
def test_rectifiers(act_type, opset):
    model = check_same(S.LeakyReLU(X, act_type=act_type, name="op"), values(2, 3, 4), opset=opset)
    assert ("Gelu" in kinds(model)) == (act_type == "gelu" and opset >= 20)


LAYOUTS = {"NCW": 1, "NWC": 1, "NCHW": 2, "NHWC": 2, "NCDHW": 3, "NDHWC": 3}


@walks(product(("Convolution", "Deconvolution"), LAYOUTS, (1, 2)))
def test_convolutions_of_all_layouts(layer, layout, groups):
    rank = LAYOUTS[layout]
    spatial = (7, 6, 5)[:rank]
    shape = (*spatial, 4) if layout.endswith("C") else (4, *spatial)
    attrs = {"kernel": (3, 2, 2)[:rank], "stride": (2, 1, 2)[:rank], "pad": (1, 0, 1)[:rank]}
    attrs |= {"adj": (1, 0, 1)[:rank]} if layer == "Deconvolution" else {"dilate": (2, 1, 1)[:rank]}
    symbol = getattr(S, layer)(X, num_filter=6, num_group=groups, no_bias=groups == 2, layout=layout, **attrs)
    net = with_parameters(symbol, values(2, *shape))
    check_dynamic(symbol, net.arrays, values(5, *shape), True, net.params)


def test_embedding_takes_the_rows_that_mxnet_takes():
    table, indices = RNG.rand(4, 2).astype("float32"), np.array([[0, 3], [-2, 9], [2.9, 0.4]], "float32")
    symbol = S.Embedding(X, S.Variable("table"), input_dim=4, output_dim=2, name="op")
    check_same(symbol, {"x": indices, "table": table}, ["table"], dynamic=True)


@walks(product((-1, 1, 0), (False, True), (13, 17, 21)))
def test_layer_norm(axis, statistics, opset):
    model = check(S.LayerNorm(X, axis=axis, output_mean_var=statistics, name="op"), 3, 4, 5, opset=opset)
    assert ("LayerNormalization" in kinds(model)) == (opset >= 17 and not statistics)


@walks(product((1, 2, 4), (False, True)))
def test_group_norm_of_pictures_of_any_size(groups, statistics):
    symbol = S.GroupNorm(X, num_groups=groups, output_mean_var=statistics, name="op")
    net, dynamic = with_parameters(symbol, values(2, 4, 5, 3)), {"x": {0: "batch", 2: "height", 3: "width"}}
    check_dynamic(net.symbol, net.arrays, values(3, 4, 2, 6), dynamic, net.params)


@walks(product((3, 4, 5), ((2, 6, 3), (2, 6, 3, 2), (2, 6, 2, 3, 2))))
def test_local_response_norm(size, shape):
    check(S.LRN(X, nsize=size, alpha=0.5, name="op"), *shape, dynamic=True)


@walks(product(("BatchNorm", "BatchNorm_v1", "SyncBatchNorm", "BatchNormWithReLU"), (False, True), (13, 21)))
def test_statistics_of_batches(name, fixed, opset):
    face = getattr(S, name, None) or getattr(S.contrib, name)
    more = {"key": "bn"} if name == "SyncBatchNorm" else {}
    check(face(X, fix_gamma=fixed, output_mean_var=True, name="op", **more), 3, 4, 2, opset=opset)
