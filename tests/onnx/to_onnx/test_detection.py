"""Suppression, proposals and matching give our rows in our order, for batches of any size."""

from itertools import product

import numpy as np

import dpmodule as mx
from helpers.onnx_runs import check_dynamic, check_same, exported
from helpers.walk import walks

rng = np.random.RandomState(3)
contrib = mx.sym.contrib
X, Y, Z = (mx.sym.Variable(name) for name in "xyz")
BATCH = {0: "batch"}


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


def rows(images, count, ties=False):
    """Return classes, scores and corners."""
    boxes = np.sort(rng.rand(images, count, 2, 2), 2).reshape(images, count, 4)
    kinds, scores = rng.randint(-1, 3, (images, count, 1)), rng.rand(images, count, 1)
    if ties:
        scores, boxes = np.round(scores * 4) / 4, np.round(boxes * 4) / 4
    return np.concatenate([kinds, scores, boxes], -1).astype("f4")


def test_suppression_takes_any_number_of_axes_and_is_onnx_own():
    for shape in ((20, 6), (2, 3, 20, 6)):
        data = rows(int(np.prod(shape[:-2])), 20).reshape(shape)
        check_same(contrib.box_nms(X, id_index=0), {"x": data})
    model = exported(contrib.box_nms(X), {"x": rows(2, 20)})
    assert [node.op_type for node in model.graph.node].count("NonMaxSuppression") == 1


ANCHORS = np.sort(rng.rand(1, 30, 2, 2), 2).reshape(1, 30, 4).astype("f4")


def detected(images):
    found = np.exp(2 * floats(images, 4, 30))
    return {"x": found / found.sum(1, keepdims=True), "y": floats(images, 120), "z": ANCHORS}


def maps(images):
    info = np.array([[24, 20, 1], [20, 16, 0.5], [24, 12, 1]], "f4")[:images]
    return {"x": rng.rand(images, 8, 6, 5).astype("f4"), "y": 0.3 * floats(images, 16, 6, 5), "z": info}


SUPPRESSIONS = [
    {"id_index": 0, "background_id": 1, "valid_thresh": 0.2},
    {"id_index": 0, "force_suppress": True, "topk": 9},
    {"topk": 0},
    {"topk": 50, "in_format": "center", "out_format": "corner", "overlap_thresh": 0.1},
    {"out_format": "center", "overlap_thresh": 1.5},
]
DETECTIONS = {"force_suppress": True, "nms_topk": 8}, {"nms_threshold": 0}, {"clip": False, "threshold": 0.9}
PROPOSALS = {"iou_loss": True}, {"output_score": True, "rpn_post_nms_top_n": 70}
RPN = {"scales": (2, 4), "ratios": (0.5, 1), "feature_stride": 4, "rpn_pre_nms_top_n": 60, "rpn_min_size": 2}
ROWS = [
    *[
        (
            contrib.box_nms(X, **{"overlap_thresh": 0.3, **attrs}),
            lambda n, ties=ties: {"x": rows(n, 20, ties)},
        )
        for attrs, ties in product(SUPPRESSIONS, (False, True))
    ],
    *[(contrib.MultiBoxDetection(X, Y, Z, **attrs), detected) for attrs in DETECTIONS],
    *[
        (contrib.MultiProposal(X, Y, Z, **{"rpn_post_nms_top_n": 10, **RPN, **attrs}), maps)
        for attrs in PROPOSALS
    ],
    (
        contrib.bipartite_matching(X, threshold=0.2, topk=2),
        lambda n: {"x": np.round(rng.rand(n, 5, 4) * 5).astype("f4") / 5},
    ),
]


@walks(product(ROWS, (13, 21)))
def test_any_batch(row, opset):
    symbol, make = row
    first, other = make(2), make(3)
    dynamic = {name: BATCH for name, value in first.items() if len(value) == 2}
    check_dynamic(symbol, first, other, dynamic, opset=opset)
