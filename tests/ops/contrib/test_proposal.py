import numpy as np
import pytest

from helpers.op_case import rules_test, run

ONE, MANY = "_contrib_Proposal", "_contrib_MultiProposal"
ATTRS = {"scales": (1.0,), "ratios": (1.0,), "feature_stride": 16, "rpn_min_size": 0}


MAPS = np.full((1, 2, 2, 3), 0.5), np.zeros((1, 4, 2, 3)), np.array([[32.0, 48.0, 1.0]])


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_equal_scores_keep_the_order_of_anchors(kind):
    found = run(ONE, *(x.astype(kind) for x in MAPS), rpn_post_nms_top_n=6, **ATTRS)
    assert found.dtype == kind
    assert found[:, 1:3].tolist() == [[16 * x, 16 * y] for y in (0, 1) for x in (0, 1, 2)]


test_shapes = rules_test(
    (MANY, [(2, 24, 5, 7), None, None], {"output_score": True}, [(2, 24, 5, 7), (2, 48, 5, 7), (2, 3)],
     [(600, 5), (600, 1)]),
)  # fmt: skip
