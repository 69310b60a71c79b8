"""Attention with interleaved projections: shapes, and against separate heads."""

import numpy as np

from helpers.arrays import randn
from helpers.op_case import rules_test, run

HEADS, SIZE, LENGTH, BATCH = 3, 4, 5, 2
NAME, ATTRS = "_contrib_interleaved_matmul_", {"heads": 3}
test_shapes = rules_test(
    [
        (f"{NAME}selfatt_qk", [(5, 2, 36)], ATTRS, None, [(6, 5, 5)]),
        (f"{NAME}selfatt_valatt", [(5, 2, 36), (6, 5, 5)], ATTRS, None, [(5, 2, 12)]),
        (f"{NAME}encdec_qk", [(5, 2, 12), (7, 2, 24)], ATTRS, None, [(6, 5, 7)]),
        (f"{NAME}encdec_valatt", [(7, 2, 24), (6, 5, 7)], ATTRS, None, [(5, 2, 12)]),
    ]
)


def test_self_attention_is_what_separate_heads_give():
    q, k, v = randn(3, LENGTH, BATCH, HEADS, SIZE)
    packed = np.stack([q, k, v], 3).reshape(LENGTH, BATCH, -1)
    scores = run(f"{NAME}selfatt_qk", packed, heads=HEADS)
    wanted = np.einsum("qnhd,knhd->nhqk", q, k) / SIZE**0.5
    np.testing.assert_allclose(scores, wanted.reshape(-1, LENGTH, LENGTH))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    found = run(f"{NAME}selfatt_valatt", packed, weights, heads=HEADS)
    per_head = weights.reshape(BATCH, HEADS, LENGTH, LENGTH)
    np.testing.assert_allclose(found, np.einsum("nhqk,knhd->qnhd", per_head, v).reshape(LENGTH, BATCH, -1))
