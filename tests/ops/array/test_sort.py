"""Ties, running sums, counts."""

import numpy as np

import dpmodule as mx
from helpers.arrays import count, f4, f8, i1, i4, i8
from helpers.op_case import gradients_test, rules_test, values_test

TIES, X = f4([3, 1, 3, 2, 1]), f8([[3, 1, 2], [4, 6, 5]])
BOOLS, BYTES, SUMMED = np.array([[True, True], [False, True]]), i1([100, 100]), count(2, 3)
test_values = values_test(
    ("argsort", (TIES,), {"is_ascend": False}, f4([0, 2, 3, 1, 4])),
    ("topk", (TIES,), {"k": 2}, f4([0, 2])),
    *[("cumsum", (SUMMED,), {"axis": a}, lambda x, a=a: np.cumsum(x, a)) for a in (None, 1, -1)],
    ("cumsum", (BYTES,), {}, i1([100, -56])),
    ("cumsum", (BYTES,), {"dtype": "int32"}, i4([100, 200])),
    ("cumsum", (BOOLS,), {"axis": 1}, i8([[1, 2], [0, 1]])),
)
test_gradients_by_hand = gradients_test(
    ("topk", (X,), {"k": 2, "ret_typ": "value"}, [[[1, 0, 1], [0, 1, 1]]]),
    ("argsort", (X,), {}, [np.zeros((2, 3))]),
)
test_shapes = rules_test(
    ("topk", [(0, 4)], {"k": 2}, None, [(0, 2)]), ("sort", [(0, 4)], {"axis": None}, None, [None])
)


def test_histogram_of_arrays():
    data, edges = mx.nd.array([1, 2, 3, 4, 5, 9]), mx.nd.array([0, 2, 3, 5])
    found = mx.nd.histogram(data, bins=edges)
    assert found[0].dtype == np.int64
    assert [x.asnumpy().tolist() for x in found] == [[1, 1, 3], [0, 2, 3, 5]]
    found = mx.nd.histogram(mx.nd.array([1, 2, 3, 4], dtype="int32"), bins=3, range=(0, 3.5))
    assert [x.asnumpy().tolist() for x in found] == [[0, 1, 2], [0, 1, 2, 3]]
    found = mx.nd.histogram(data[:4], bins=3)  # from the least to the greatest
    assert [x.asnumpy().tolist() for x in found] == [[1, 1, 2], [1, 2, 3, 4]]


def test_histogram_as_a_symbol():
    data, edges = mx.sym.var("data"), mx.sym.var("edges")
    symbol = mx.sym.histogram(data, bins=edges)
    assert symbol.list_arguments() == ["data", "edges"]
    assert symbol.infer_shape(data=(5,), edges=(4,))[1] == [(3,), (4,)]
    assert mx.sym.histogram(data, bins=3, range=(0, 1)).list_arguments() == ["data"]
