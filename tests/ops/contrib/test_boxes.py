import numpy as np
import pytest
import torch

from dpmodule.ops.contrib import boxes
from helpers.arrays import f8
from helpers.op_case import gradients, rules_test, run, values_test

BOXES = f8(
    [[0, 0.5, 0.1, 0.1, 0.2, 0.2], [1, 0.4, 0.1, 0.1, 0.2, 0.2],
     [0, 0.3, 0.1, 0.1, 0.14, 0.14], [2, 0.6, 0.5, 0.5, 0.7, 0.8]]
)  # fmt: skip
NMS = {"overlap_thresh": 0.1, "id_index": 0}
CENTER = {"overlap_thresh": 0.9, "out_format": "center", "valid_thresh": 0.45}
ONE, OTHER = f8([[0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5]]), f8([[0.25, 0.25, 0.75, 0.75]])


def kept(*rows):
    return np.concatenate([BOXES[list(rows)], np.full((4 - len(rows), 6), -1.0)])


def centred(b):
    return np.concatenate([(b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]], 1)


test_values = values_test(
    ("_contrib_box_nms", (BOXES,), {**NMS, "force_suppress": True}, kept(3, 0)),  # of MXNet's documents
    ("_contrib_box_nms", (BOXES,), {**NMS, "background_id": 2}, kept(0, 1)),
    ("_contrib_box_nms", (BOXES,), {"valid_thresh": 2.0}, kept()),
    ("_contrib_box_iou", (centred(ONE), centred(OTHER)), {"format": "center"}, f8([[1 / 7], [1 / 7]])),
)
test_shapes = rules_test(("_contrib_box_iou", [(2, 3, 4), (5, 0)], {}, None, [(2, 3, 5)]))


@pytest.mark.parametrize("attrs", [{**NMS, "force_suppress": True}, CENTER])
def test_gradients_move_with_the_boxes(attrs):
    head = np.arange(24.0).reshape(4, 6)
    grad = gradients("_contrib_box_nms", BOXES, head=head, **attrs)[0]
    np.testing.assert_array_equal(grad, np.stack([head[1], 0 * head[0], 0 * head[0], head[0]]))
    found = run("_contrib_box_nms", BOXES, **CENTER)[:2, 2:]
    np.testing.assert_allclose(found, [[0.6, 0.65, 0.2, 0.3], [0.15, 0.15, 0.1, 0.1]])


def near(one, other):
    """Points closer than 1 exclude each other; those that are no numbers are near nothing."""
    return (one[0][:, :, None] - other[0][:, None]).abs() < 1


@pytest.mark.parametrize(("spread", "limit"), [(5.0, None), (60.0, 3), (1000.0, 40)])
def test_keeps_what_the_loop_keeps(spread, limit):
    sizes = [500, 0, 129, 1, 128, 300, 7]
    points = np.random.RandomState(1).rand(len(sizes), max(sizes)) * spread
    found = boxes.keep_greedily(torch.from_numpy(points)[:, :, None], torch.tensor(sizes), near, limit)
    for row, values, size in zip(found.numpy(), points, sizes, strict=True):
        expected = []
        for i in range(size):
            if all(abs(values[i] - values[k]) >= 1 for k in expected):
                expected.append(i)
        assert not row[size:].any()
        assert list(np.flatnonzero(row)[:limit]) == expected[:limit]
