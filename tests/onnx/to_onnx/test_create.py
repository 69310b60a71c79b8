"""Arrays made from attributes alone, in ONNX."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_op, check_same, runtime_outputs

S = mx.sym


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_types(dtype):
    for name, attrs in (
        ("_zeros", {"shape": (2, 3)}),
        ("_ones", {"shape": (2,)}),
        ("_full", {"shape": (2, 2), "value": 3.7}),
        ("_arange", {"start": 1, "stop": 9.5, "step": 2, "repeat": 2}),
        ("_linspace", {"start": 0, "stop": 7, "num": 5, "endpoint": False}),
        ("_eye", {"N": 3, "M": 4, "k": 1}),
    ):
        check_op(name, attrs={**attrs, "dtype": dtype})


def test_sizes_that_follow_from_elsewhere():
    """MXNet's recurrent cells begin from zeros whose batch is not said."""
    x = S.Variable("x")
    net = S.broadcast_add(S.zeros(shape=(0, 3), name="begin") + x, S.ones((1, 3)))
    model = check_same(net, {"x": np.ones((2, 3), "float32")}, dynamic=True)
    assert runtime_outputs(model, {"x": np.ones((5, 3), "float32")})[0].shape == (5, 3)


def test_a_length_that_only_another_value_has():
    wide = S.repeat(S.Variable("x"), repeats=2, axis=0)
    net = S.Group([wide, S._internal._zeros(shape=(0, 1)) + S.slice_axis(wide, axis=1, begin=0, end=1)])
    model = check_same(net, {"x": np.ones((2, 3), "float32")}, dynamic=True)
    assert runtime_outputs(model, {"x": np.ones((5, 3), "float32")})[1].shape == (10, 1)
