"""Pooling in ONNX: MXNet's windows, whatever ONNX and its runtime make of padding and ceilings."""

import itertools

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.onnx_runs import check_same, exported, our_outputs, runtime_outputs
from helpers.walk import walks

KERNELS = [((1, 2), (3, 1), (0, 1)), ((3, 2), (2, 2), (1, 0)), ((2, 2), (3, 4), (2, 3)), ((3, 3), (), ())]
"""Kernels, strides and pads: windows that lie in the padding, beyond it, and between which elements are left out."""


def pooled(x, **attrs):
    symbol = mx.sym.Pooling(mx.sym.Variable("x"), name="op", **attrs)
    return symbol, {"x": np.random.RandomState(0).randn(*x).astype("float32")}


@walks(list(itertools.product(KERNELS, ("max", "avg", "sum"), ("valid", "full", "same"), (True, False))))
def test_windows(window, kind, convention, count_include_pad):
    kernel, stride, pad = window
    attrs = {"kernel": kernel, "stride": stride, "pool_type": kind, "pooling_convention": convention}
    attrs |= {"count_include_pad": count_include_pad, "pad": () if convention == "same" else pad}
    symbol, arrays = pooled((2, 3, 7, 6), **attrs)
    check_same(symbol, arrays, dynamic=True)


@walks(list(itertools.product(((3,), (2, 3), (2, 1, 2)), ("lp", "max", "avg"), (1, 2, 3), (False, True))))
def test_norms_of_one_to_three_axes(kernel, kind, p, whole):
    attrs = {"kernel": kernel, "pool_type": kind, "p_value": p, "global_pool": whole}
    layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(kernel)] if p == 2 else None
    symbol, arrays = pooled((2, 5, 4, 6)[: len(kernel) + 1] + (3,), layout=layout, **attrs)
    check_same(symbol, {"x": np.abs(arrays["x"]) if p == 2 else arrays["x"]}, dynamic=True)


@walks(list(itertools.product(KERNELS[1::2], ("max", "avg", "sum"), ("valid", "full"))))
def test_the_old_pooling(window, kind, convention):
    kernel, stride, pad = window
    data = mx.sym.Variable("x")
    symbol = mx.sym.Pooling_v1(
        data, kernel=kernel, stride=stride, pad=pad, pool_type=kind, pooling_convention=convention, name="op"
    )
    check_same(symbol, {"x": np.random.RandomState(0).randn(2, 3, 6, 5).astype("float32")}, dynamic=True)


@walks(list(itertools.product(("max", "avg"), ("valid", "full"), (True, False))))
def test_pictures_of_any_size(kind, convention, count_include_pad):
    attrs = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 0), "count_include_pad": count_include_pad}
    symbol, arrays = pooled((2, 3, 7, 6), pool_type=kind, pooling_convention=convention, **attrs)
    model = exported(symbol, arrays, dynamic={"x": {0: "batch", 2: "height", 3: "width"}})
    for size in ((7, 6), (8, 9), (4, 5)):
        arrays = {"x": np.random.RandomState(1).randn(1, 3, *size).astype("float32")}
        (ours,), (theirs,) = our_outputs(symbol, arrays), runtime_outputs(model, arrays)
        np.testing.assert_allclose(theirs, ours, 1e-5, 1e-6)


REFUSED = [
    ({"pooling_convention": "same"}, "'same' requires fixed sizes"),
    ({"pooling_convention": "full", "stride": (3, 3)}, "requires fixed sizes"),
    ({"pooling_convention": "full", "pool_type": "sum"}, "require fixed sizes"),
    ({"pool_type": "avg", "pad": (2, 2), "count_include_pad": False}, "as long as the kernel"),
]


@pytest.mark.parametrize(("attrs", "reason"), REFUSED)
def test_what_any_size_does_not_allow(attrs, reason):
    symbol, arrays = pooled((2, 3, 7, 7), kernel=(2, 2), **attrs)
    with pytest.raises(ArgumentError, match=reason):
        exported(symbol, arrays, dynamic={"x": {2: "height", 3: "width"}})


@walks([(7, 5), (3,), (1,), (2, 6)])
def test_about_equal_windows(*size):
    symbol = mx.sym.contrib.AdaptiveAvgPooling2D(mx.sym.Variable("x"), output_size=size, name="op")
    check_same(symbol, {"x": np.random.RandomState(0).rand(2, 3, 14, 12).astype("float32")}, dynamic=True)
