"""Interleaved attention for sequences and batches of any length."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_dynamic

rng = np.random.RandomState(4)
ANY = {0: "time", 1: "batch"}


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_attention_to_itself(opset):
    x, contrib = mx.sym.Variable("x"), mx.sym.contrib
    weights = mx.sym.softmax(contrib.interleaved_matmul_selfatt_qk(x, heads=2))
    symbol = contrib.interleaved_matmul_selfatt_valatt(x, weights, heads=2)
    check_dynamic(symbol, {"x": floats(5, 2, 24)}, {"x": floats(7, 3, 24)}, {"x": ANY}, opset=opset)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_attention_to_an_encoder(opset):
    queries, pairs, contrib = mx.sym.Variable("q"), mx.sym.Variable("kv"), mx.sym.contrib
    weights = mx.sym.softmax(contrib.interleaved_matmul_encdec_qk(queries, pairs, heads=2))
    symbol = contrib.interleaved_matmul_encdec_valatt(pairs, weights, heads=2)
    first, other = (
        {"q": floats(5, 2, 8), "kv": floats(3, 2, 16)},
        {"q": floats(4, 3, 8), "kv": floats(9, 3, 16)},
    )
    check_dynamic(symbol, first, other, {"q": ANY, "kv": {0: "source", 1: "batch"}}, opset=opset)


def test_scaling_by_a_length_that_is_not_known():
    symbol = mx.sym.contrib.div_sqrt_dim(mx.sym.Variable("x"))
    check_dynamic(symbol, {"x": floats(2, 4)}, {"x": floats(2, 9)}, {"x": {1: "width"}})
