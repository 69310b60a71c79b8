"""Operators of the contrib namespace for lengths that are not known, and at every version of ONNX's operators."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_dynamic, check_same, exported, our_outputs

rng = np.random.RandomState(7)
contrib = mx.sym.contrib
X = mx.sym.Variable("x")
BATCH = {0: "batch"}


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("opset", [13, 17, 20, 21])
@pytest.mark.parametrize("size", [6, 7, 8])
def test_fourier_transform_and_back(size, opset):
    symbol = mx.sym.Group([contrib.fft(X), contrib.ifft(contrib.fft(X))])
    check_dynamic(symbol, {"x": floats(2, size)}, {"x": floats(5, size)}, {"x": BATCH}, opset=opset)


@pytest.mark.parametrize(
    "symbol",
    [
        contrib.index_array(X),
        contrib.index_array(X, axes=(1, 0)),
        contrib.arange_like(X, step=0.5, repeat=2),
        contrib.arange_like(X, axis=0, start=3),
        contrib.getnnz(X, axis=0),
        mx.sym.all_finite(X),
        contrib.quadratic(X, a=2, b=3, c=1),
    ],
    ids=lambda symbol: symbol.name,
)
def test_of_any_batch(symbol):
    check_dynamic(symbol, {"x": floats(2, 6)}, {"x": floats(5, 6)}, {"x": BATCH})


@pytest.mark.parametrize("values", [[1, np.nan], [np.inf, 1], [-np.inf, -np.inf], [1e-9, 0], [1, 2]])
def test_closeness_of_what_is_not_finite(values):
    for equal_nan in (True, False):
        symbol = contrib.allclose(X, mx.sym.Variable("y"), equal_nan=equal_nan)
        for other in ([1, np.nan], [np.inf, 1], [-np.inf, -np.inf], [1, 2]):
            check_same(symbol, {"x": np.array(values, "f4"), "y": np.array(other, "f4")})


def deformable(masked, groups):
    """Return a deformable convolution, and its arrays for a number of images."""
    make = contrib.ModulatedDeformableConvolution if masked else contrib.DeformableConvolution
    inputs = [
        mx.sym.Variable(name)
        for name in (["x", "offset"] + (["mask"] if masked else []) + ["weight", "bias"])
    ]
    symbol = make(
        *inputs,
        kernel=(3, 2),
        stride=(1, 2),
        pad=(1, 1),
        num_filter=4,
        num_group=groups,
        num_deformable_group=2,
    )
    fixed = {"weight": floats(4, 4 // groups, 3, 2), "bias": floats(4)}

    def arrays(images):
        found = {"x": floats(images, 4, 6, 7), "offset": 2 * floats(images, 24, 6, 4), **fixed}
        return {**found, "mask": rng.rand(images, 12, 6, 4).astype("f4")} if masked else found

    return symbol, arrays


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_deformable_convolution(masked, groups, opset):
    symbol, arrays = deformable(masked, groups)
    marks = dict.fromkeys(("x", "offset", *(["mask"] if masked else [])), BATCH)
    model = check_dynamic(symbol, arrays(2), arrays(3), marks, ["weight", "bias"], opset=opset)
    made = {node.op_type for node in model.graph.node}
    # ONNX's operator surrounds the image with zeros, as only the modulated form does
    assert ("DeformConv" in made) == (masked and opset >= 19)


def test_rows_whose_number_depends_on_values():
    symbol = contrib.boolean_mask(X, mx.sym.Variable("index"))
    arrays = {"x": floats(4, 3), "index": np.array([1, 0, 0, 1], "f4")}
    model = check_same(symbol, arrays)
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param
    assert our_outputs(symbol, arrays)[0].shape == (2, 3)


def test_casts_for_mixed_precision():
    halves = mx.sym.amp_cast(X, dtype="float16")
    check_same(halves, {"x": floats(2, 3)})
    check_same(halves, {"x": np.arange(3, dtype="i4")})
    model = exported(mx.sym.amp_cast(X, dtype="float32"), {"x": floats(2, 3)})
    assert "Cast" not in {node.op_type for node in model.graph.node}
