"""Suppression, proposals and matching give our rows in our order, for batches of any size."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_dynamic, check_same, exported

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


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"id_index": 0, "background_id": 1, "valid_thresh": 0.2},
        {"id_index": 0, "force_suppress": True, "topk": 9},
        {"topk": 0},
        {"topk": 50, "in_format": "center", "out_format": "corner", "overlap_thresh": 0.1},
        {"out_format": "center", "overlap_thresh": 1.5},
    ],
)
def test_suppression(attrs, ties, opset):
    symbol = contrib.box_nms(X, **{"overlap_thresh": 0.3, **attrs})
    check_dynamic(symbol, {"x": rows(2, 20, ties)}, {"x": rows(5, 20, ties)}, {"x": BATCH}, opset=opset)


def test_suppression_takes_any_number_of_axes_and_is_onnx_own():
    for shape in ((20, 6), (2, 3, 20, 6)):
        data = rows(int(np.prod(shape[:-2])), 20).reshape(shape)
        check_same(contrib.box_nms(X, id_index=0), {"x": data})
    model = exported(contrib.box_nms(X), {"x": rows(2, 20)})
    assert [node.op_type for node in model.graph.node].count("NonMaxSuppression") == 1


def probabilities(images):
    found = np.exp(2 * floats(images, 4, 30))
    return found / found.sum(1, keepdims=True)


ANCHORS = np.sort(rng.rand(1, 30, 2, 2), 2).reshape(1, 30, 4).astype("f4")


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize(
    "attrs",
    [{}, {"force_suppress": True, "nms_topk": 8}, {"nms_threshold": 0}, {"clip": False, "threshold": 0.9}],
)
def test_detections(attrs, opset):
    symbol = contrib.MultiBoxDetection(X, Y, Z, **attrs)
    first, other = ({"x": probabilities(n), "y": floats(n, 120)} for n in (2, 5))
    check_dynamic(symbol, {**first, "z": ANCHORS}, other, {"x": BATCH, "y": BATCH}, opset=opset)


def maps(images):
    info = np.array([[24, 20, 1], [20, 16, 0.5], [24, 12, 1]], "f4")[:images]
    return {"x": rng.rand(images, 8, 6, 5).astype("f4"), "y": 0.3 * floats(images, 16, 6, 5), "z": info}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("attrs", [{"iou_loss": True}, {"output_score": True, "rpn_post_nms_top_n": 70}])
def test_proposals(attrs, opset):
    own = {
        "scales": (2, 4),
        "ratios": (0.5, 1),
        "feature_stride": 4,
        "rpn_pre_nms_top_n": 60,
        "rpn_min_size": 2,
    }
    symbol = contrib.MultiProposal(X, Y, Z, **{"rpn_post_nms_top_n": 10, **own, **attrs})
    check_dynamic(symbol, maps(2), maps(3), dict.fromkeys("xyz", BATCH), opset=opset)


def test_matching():
    symbol = contrib.bipartite_matching(X, threshold=0.2, topk=2)
    scores = [np.round(rng.rand(n, 5, 4) * 5).astype("f4") / 5 for n in (2, 6)]
    check_dynamic(symbol, {"x": scores[0]}, {"x": scores[1]}, {"x": BATCH})
