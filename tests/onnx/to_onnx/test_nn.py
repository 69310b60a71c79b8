"""Layers, normalisation, softmax and losses in ONNX, beyond the rows of the tables."""

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
    with pytest.raises(ArgumentError, match="mode 'always' also drops in prediction"):
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


# normalisation


def drawn(symbol, *shape):
    """Return a network and values of its variables, for x of a shape."""
    return with_parameters(symbol, {"x": np.random.RandomState(0).randn(*shape).astype("float32")})


@walks(list(itertools.product((-1, 1, 0), (False, True), (13, 17, 21))))
def test_layers(axis, statistics, opset):
    net = drawn(mx.sym.LayerNorm(X, axis=axis, output_mean_var=statistics, name="op"), 3, 4, 5)
    model = check_same(net.symbol, net.arrays, net.params, opset=opset)
    kinds = {node.op_type for node in model.graph.node}
    assert ("LayerNormalization" in kinds) == (opset >= 17 and not statistics)


@walks(list(itertools.product((1, 2, 4), (False, True))))
def test_groups_of_pictures_of_any_size(groups, statistics):
    net = drawn(mx.sym.GroupNorm(X, num_groups=groups, output_mean_var=statistics, name="op"), 2, 4, 5, 3)
    dynamic = {"x": {0: "batch", 2: "height", 3: "width"}}
    model = exported(net.symbol, net.arrays, net.params, dynamic=dynamic)
    more = net.arrays | {"x": np.random.RandomState(1).randn(3, 4, 2, 6).astype("float32")}
    for ours, theirs in zip(our_outputs(net.symbol, more), runtime_outputs(model, more), strict=True):
        np.testing.assert_allclose(theirs, ours, 1e-4, 1e-5)


@walks([(2, 6, 3), (2, 6, 3, 2), (2, 6, 2, 3, 2)])
def test_neighbouring_channels(*shape):
    for size in (3, 4, 5):
        net = drawn(mx.sym.LRN(X, nsize=size, alpha=0.5, name="op"), *shape)
        check_same(net.symbol, net.arrays, dynamic=True)


BATCH_NORMS = ("BatchNorm", "BatchNorm_v1", "SyncBatchNorm", "BatchNormWithReLU")


@walks(list(itertools.product(BATCH_NORMS, (False, True), (13, 21))))
def test_statistics_of_batches(name, fixed, opset):
    face = getattr(mx.sym, name, None) or getattr(mx.sym.contrib, name)
    more = {"key": "bn"} if name == "SyncBatchNorm" else {}
    net = drawn(face(X, fix_gamma=fixed, output_mean_var=True, name="op", **more), 3, 4, 2)
    check_same(net.symbol, net.arrays, net.params, opset=opset)


def test_parameters_of_half_precision_data_stay_single():
    net = drawn(mx.sym.BatchNorm(X, fix_gamma=False, name="op"), 3, 4, 2)
    arrays = net.arrays | {"x": net.arrays["x"].astype("float16")}
    check_same(net.symbol, arrays, net.params, rtol=1e-3, atol=1e-3)


# softmax and losses


def scores(*shape):
    return {"x": np.random.RandomState(0).randn(*shape).astype("float32")}


@walks(
    list(
        itertools.product(
            ("softmax", "log_softmax", "softmin"), (0, 1, -1), (None, 2.5), ("float32", "float16")
        )
    )
)
def test_softmax(name, axis, temperature, dtype):
    symbol = getattr(mx.sym, name)(X, axis=axis, temperature=temperature, dtype=dtype, name="op")
    check_same(symbol, scores(3, 4, 5), rtol=2e-3, atol=2e-3, dynamic={"x": {0: "batch", 2: "length"}})


@walks([(2, -1), (1, 1), (0, 0)])
def test_softmax_up_to_ends(rest, axis):
    shape = [3, 4, 5]
    del shape[rest]
    lengths = np.random.RandomState(1).randint(0, 3, shape).astype("int32")
    symbol = mx.sym.softmax(X, mx.sym.Variable("ends"), axis=axis, use_length=True, name="op")
    check_same(symbol, scores(3, 4, 5) | {"ends": lengths}, dynamic={"x": {axis % 3: "length"}})


FORMS = [{}, {"multi_output": True}, {"preserve_shape": True}]


@walks(list(itertools.product(FORMS, ((3, 4), (3, 4, 5), (3, 4, 2, 2)))))
def test_all_forms_of_softmax_output(form, shape):
    symbol = mx.sym.SoftmaxOutput(X, name="op", **form)
    model = exported(symbol, scores(*shape), dynamic=True)
    more = scores(6, *shape[1:])
    arrays = more | {"op_label": np.zeros(symbol.infer_shape(x=more["x"].shape)[0][1], "float32")}
    np.testing.assert_allclose(runtime_outputs(model, more)[0], our_outputs(symbol, arrays)[0], 1e-5, 1e-6)


@pytest.mark.parametrize("opset", [13, 21])
def test_the_loss_of_class_numbers(opset):
    symbol = mx.sym.softmax_cross_entropy(X, mx.sym.Variable("label"), name="op")
    check_same(symbol, scores(3, 4) | {"label": np.array([0, 3, 7], "float32")}, opset=opset)


@walks([None, 1.0, 3.0])
def test_smooth_l1(scalar):
    check_same(mx.sym.smooth_l1(X, scalar=scalar, name="op"), scores(4, 5))
