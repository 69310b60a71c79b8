"""Fourier transforms for lengths that are not known, at every version of ONNX's operators."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_dynamic

contrib, X = mx.sym.contrib, mx.sym.Variable("x")


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("size", [7, 8])
def test_fourier_transform_and_back(size, opset):
    symbol = mx.sym.Group([contrib.fft(X), contrib.ifft(contrib.fft(X))])
    first, other = ({"x": np.random.RandomState(rows).randn(rows, size).astype("f4")} for rows in (2, 5))
    check_dynamic(symbol, first, other, {"x": {0: "batch"}}, opset=opset)
