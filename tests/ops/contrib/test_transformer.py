"""Attention with interleaved projections: shapes; integers in scaled dot products."""

import dpmodule as mx
from helpers.op_case import rules_test

NAME, ATTRS = "_contrib_interleaved_matmul_", {"heads": 3}
test_shapes = rules_test(
    (f"{NAME}selfatt_qk", [(5, 2, 36)], ATTRS, None, [(6, 5, 5)]),
    (f"{NAME}selfatt_valatt", [(5, 2, 36), (6, 5, 5)], ATTRS, None, [(5, 2, 12)]),
    (f"{NAME}encdec_qk", [(5, 2, 12), (7, 2, 24)], ATTRS, None, [(6, 5, 7)]),
    (f"{NAME}encdec_valatt", [(7, 2, 24), (6, 5, 7)], ATTRS, None, [(5, 2, 12)]),
)


def test_scaled_integers_are_truncated():
    scaled = mx.nd.contrib.div_sqrt_dim(mx.nd.array([[4, -3, 1, 9]], dtype="int32"))
    assert (str(scaled.dtype), scaled.asnumpy().tolist()) == ("<class 'numpy.int32'>", [[2, -1, 0, 4]])
