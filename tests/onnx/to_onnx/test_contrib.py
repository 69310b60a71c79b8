"""Operators of the contrib namespace for lengths that are not known, and at every version of ONNX's operators."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_dynamic

rng = np.random.RandomState(7)
contrib = mx.sym.contrib
X = mx.sym.Variable("x")
BATCH = {0: "batch"}


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


def kinds(model):
    return {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("size", [7, 8])
def test_fourier_transform_and_back(size, opset):
    symbol = mx.sym.Group([contrib.fft(X), contrib.ifft(contrib.fft(X))])
    check_dynamic(symbol, {"x": floats(2, size)}, {"x": floats(5, size)}, {"x": BATCH}, opset=opset)


ANY_BATCH = [
    contrib.index_array(X),
    contrib.index_array(X, axes=(1, 0)),
    contrib.arange_like(X, step=0.5, repeat=2),
    contrib.arange_like(X, axis=0, start=3),
    contrib.getnnz(X, axis=0),
    mx.sym.all_finite(X),
    contrib.quadratic(X, a=2, b=3, c=1),
]


@pytest.mark.parametrize("symbol", ANY_BATCH, ids=lambda symbol: symbol.name)
def test_any_batch(symbol):
    check_dynamic(symbol, {"x": floats(2, 6)}, {"x": floats(5, 6)}, {"x": BATCH})


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_deformable_convolution(masked, groups, opset):
    def arrays(images):
        found = {"x": floats(images, 4, 6, 7), "offset": 2 * floats(images, 24, 6, 4)}
        return {**found, "mask": rng.rand(images, 12, 6, 4).astype("f4")} if masked else found

    make = contrib.ModulatedDeformableConvolution if masked else contrib.DeformableConvolution
    params = {"weight": floats(4, 4 // groups, 3, 2), "bias": floats(4)}
    inputs = [mx.sym.Variable(name) for name in (*arrays(2), *params)]
    attrs = {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 1), "num_deformable_group": 2}
    symbol = make(*inputs, num_filter=4, num_group=groups, **attrs)
    marks = dict.fromkeys(arrays(2), BATCH)
    model = check_dynamic(symbol, arrays(2) | params, arrays(3), marks, [*params], opset=opset)
    # ONNX's operator surrounds the image with zeros, as only the modulated form does
    assert ("DeformConv" in kinds(model)) == (masked and opset >= 19)
