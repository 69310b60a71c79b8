"""Pooling in ONNX: MXNet's windows, whatever ONNX and its runtime make of padding and ceilings."""

from itertools import product

import numpy as np

import dpmodule as mx
from helpers.onnx_runs import check_same, compare, exported
from helpers.walk import walks

S = mx.sym
X = S.Variable("x")
KERNELS = [((1, 2), (3, 1), (0, 1)), ((3, 2), (2, 2), (1, 0)), ((2, 2), (3, 4), (2, 3)), ((3, 3), (), ())]
"""Kernels, strides and pads: windows that lie in the padding, beyond it, and between which elements are left out."""
BOTH = (True, False)


def values(*shape):
    return {"x": np.random.RandomState(0).randn(*shape).astype("float32")}


@walks(product(KERNELS, ("max", "avg", "sum"), ("valid", "full", "same"), BOTH))
def test_windows(window, kind, convention, count_include_pad):
    kernel, stride, pad = window
    attrs = {"kernel": kernel, "stride": stride, "pool_type": kind, "pooling_convention": convention}
    attrs |= {"count_include_pad": count_include_pad, "pad": () if convention == "same" else pad}
    check_same(S.Pooling(X, name="op", **attrs), values(2, 3, 7, 6), dynamic=True)


@walks(product(((3,), (2, 3), (2, 1, 2)), ("lp", "max", "avg"), (1, 2, 3), BOTH))
def test_norms_of_one_to_three_axes(kernel, kind, p, whole):
    attrs = {"kernel": kernel, "pool_type": kind, "p_value": p, "global_pool": whole}
    layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(kernel)] if p == 2 else None
    data = values(*(2, 5, 4, 6)[: len(kernel) + 1], 3)["x"]
    symbol = S.Pooling(X, layout=layout, name="op", **attrs)
    check_same(symbol, {"x": np.abs(data) if p == 2 else data}, dynamic=True)


@walks(product(KERNELS[1::2], ("max", "avg", "sum"), ("valid", "full")))
def test_the_old_pooling(window, kind, convention):
    attrs = dict(zip(("kernel", "stride", "pad"), window), pool_type=kind, pooling_convention=convention)
    check_same(S.Pooling_v1(X, name="op", **attrs), values(2, 3, 6, 5), dynamic=True)


@walks(product(("max", "avg"), ("valid", "full"), BOTH))
def test_pictures_of_any_size(kind, convention, count_include_pad):
    attrs = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 0), "count_include_pad": count_include_pad}
    symbol = S.Pooling(X, pool_type=kind, pooling_convention=convention, name="op", **attrs)
    model = exported(symbol, values(2, 3, 7, 6), dynamic={"x": {0: "batch", 2: "height", 3: "width"}})
    for size in ((7, 6), (8, 9), (4, 5)):
        compare(symbol, model, values(1, 3, *size), 1e-5, 1e-6)


@walks([(7, 5), (3,), (1,), (2, 6)])
def test_about_equal_windows(*size):
    symbol = S.contrib.AdaptiveAvgPooling2D(X, output_size=size, name="op")
    check_same(symbol, values(2, 3, 14, 12), dynamic=True)
