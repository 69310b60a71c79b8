"""Attention with interleaved projections: shapes, and against separate heads."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from helpers.op_case import run, shapes

HEADS, SIZE, LENGTH, BATCH = 3, 4, 5, 2


def test_self_attention_is_what_separate_heads_give():
    random = np.random.RandomState(0)
    q, k, v = random.standard_normal((3, LENGTH, BATCH, HEADS, SIZE))
    packed = np.stack([q, k, v], 3).reshape(LENGTH, BATCH, -1)
    scores = run("_contrib_interleaved_matmul_selfatt_qk", packed, heads=HEADS)
    wanted = np.einsum("qnhd,knhd->nhqk", q, k) / SIZE**0.5
    np.testing.assert_allclose(scores, wanted.reshape(-1, LENGTH, LENGTH))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    found = run("_contrib_interleaved_matmul_selfatt_valatt", packed, weights, heads=HEADS)
    per_head = weights.reshape(BATCH, HEADS, LENGTH, LENGTH)
    wanted = np.einsum("nhqk,knhd->qnhd", per_head, v).reshape(LENGTH, BATCH, -1)
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize(
    ("name", "ins", "out"),
    [
        ("selfatt_qk", [(5, 2, 36)], (6, 5, 5)),
        ("selfatt_valatt", [(5, 2, 36), (6, 5, 5)], (5, 2, 12)),
        ("encdec_qk", [(5, 2, 12), (7, 2, 24)], (6, 5, 7)),
        ("encdec_valatt", [(7, 2, 24), (6, 5, 7)], (5, 2, 12)),
    ],
)
def test_shapes(name, ins, out):
    assert shapes(f"_contrib_interleaved_matmul_{name}", ins, heads=3)[1] == [out]


@pytest.mark.parametrize(
    ("name", "ins"),
    [
        ("selfatt_qk", [(5, 2, 35)]),
        ("selfatt_qk", [(5, 36)]),
        ("selfatt_valatt", [(5, 2, 36), (6, 5, 4)]),
        ("encdec_qk", [(5, 2, 12), (7, 3, 24)]),
        ("encdec_valatt", [(7, 2, 24), (6, 5, 5)]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name, ins):
    with pytest.raises(ShapeError, match="expected"):
        shapes(f"_contrib_interleaved_matmul_{name}", ins, heads=3)
    with pytest.raises(ShapeError, match="expected"):
        getattr(mx.nd.contrib, f"interleaved_matmul_{name}")(*map(mx.nd.ones, ins), heads=3)
