"""Normalisation in ONNX, beyond the rows of the tables."""

import itertools

import numpy as np

import dpmodule as mx
from helpers.models import with_parameters
from helpers.onnx_runs import check_same, exported, our_outputs, runtime_outputs
from helpers.walk import walks

X = mx.sym.Variable("x")


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
