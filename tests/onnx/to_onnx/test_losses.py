"""Softmax and losses in ONNX, beyond the rows of the tables."""

import itertools

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_same, exported, our_outputs, runtime_outputs
from helpers.walk import walks

X = mx.sym.Variable("x")


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
