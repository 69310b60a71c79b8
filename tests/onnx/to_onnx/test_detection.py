"""Suppression takes any number of axes, and is ONNX's own; see test_every_operator.py for the rest."""

import numpy as np

import dpmodule as mx
from helpers.onnx_runs import check_same, exported

contrib, X = mx.sym.contrib, mx.sym.Variable("x")


def test_suppression():
    draw = np.random.RandomState(3)
    for shape in ((20, 6), (2, 3, 20, 6)):
        corners = np.sort(draw.rand(*shape[:-1], 2, 2), -2).reshape(*shape[:-1], 4)
        data = np.concatenate([draw.randint(-1, 3, (*shape[:-1], 1)), draw.rand(*shape[:-1], 1), corners], -1)
        check_same(contrib.box_nms(X, id_index=0), {"x": data.astype("f4")})
    model = exported(contrib.box_nms(X), {"x": data[0].astype("f4")})
    assert [node.op_type for node in model.graph.node].count("NonMaxSuppression") == 1
