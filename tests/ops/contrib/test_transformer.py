"""Attention with interleaved projections: shapes."""

from helpers.op_case import rules_test

NAME, ATTRS = "_contrib_interleaved_matmul_", {"heads": 3}
test_shapes = rules_test(
    (f"{NAME}selfatt_qk", [(5, 2, 36)], ATTRS, None, [(6, 5, 5)]),
    (f"{NAME}selfatt_valatt", [(5, 2, 36), (6, 5, 5)], ATTRS, None, [(5, 2, 12)]),
    (f"{NAME}encdec_qk", [(5, 2, 12), (7, 2, 24)], ATTRS, None, [(6, 5, 7)]),
    (f"{NAME}encdec_valatt", [(7, 2, 24), (6, 5, 7)], ATTRS, None, [(5, 2, 12)]),
)
