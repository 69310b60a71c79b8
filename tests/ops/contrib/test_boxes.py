import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.ops.contrib import boxes
from helpers.arrays import f8
from helpers.op_case import call, gradients, rules_test, run, values_test

BOXES = f8(
    [
        [0, 0.5, 0.1, 0.1, 0.2, 0.2],
        [1, 0.4, 0.1, 0.1, 0.2, 0.2],
        [0, 0.3, 0.1, 0.1, 0.14, 0.14],
        [2, 0.6, 0.5, 0.5, 0.7, 0.8],
    ]
)
NMS = {"overlap_thresh": 0.1, "id_index": 0}
CENTER = {"overlap_thresh": 0.9, "out_format": "center", "valid_thresh": 0.45}
ONE, OTHER = f8([[0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5]]), f8([[0.25, 0.25, 0.75, 0.75]])


def kept(*rows):
    return np.concatenate([BOXES[list(rows)], np.full((4 - len(rows), 6), -1.0)])


def centred(b):
    return np.concatenate([(b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]], 1)


test_values = values_test(
    [
        ("_contrib_box_nms", (BOXES,), {**NMS, "force_suppress": True}, kept(3, 0)),  # of MXNet's documents
        ("_contrib_box_nms", (BOXES,), NMS, kept(3, 0, 1)),
        ("_contrib_box_nms", (BOXES,), {**NMS, "background_id": 2}, kept(0, 1)),
        ("_contrib_box_nms", (BOXES,), {"topk": 0}, BOXES),
        ("_contrib_box_nms", (BOXES,), {"valid_thresh": 2.0}, kept()),
        ("_contrib_box_iou", (ONE, OTHER), {}, f8([[1 / 7], [1 / 7]])),
        ("_contrib_box_iou", (centred(ONE), centred(OTHER)), {"format": "center"}, f8([[1 / 7], [1 / 7]])),
    ]
)
test_shapes = rules_test([("_contrib_box_iou", [(2, 3, 4), (5, 0)], {}, None, [(2, 3, 5)])])


@pytest.mark.parametrize("attrs", [{**NMS, "force_suppress": True}, CENTER])
def test_gradients_move_with_the_boxes(attrs):
    head = np.arange(24.0).reshape(4, 6)
    grad = gradients("_contrib_box_nms", BOXES, head=head, **attrs)[0]
    np.testing.assert_array_equal(grad, np.stack([head[1], 0 * head[0], 0 * head[0], head[0]]))
    found = run("_contrib_box_nms", BOXES, **CENTER)[:2, 2:]
    np.testing.assert_allclose(found, [[0.6, 0.65, 0.2, 0.3], [0.15, 0.15, 0.1, 0.1]])


def test_faces_and_old_names():
    data = mx.nd.array(BOXES)
    expected = mx.nd.contrib.box_nms(data).asnumpy()
    for found in (mx.nd.contrib.box_non_maximum_suppression(data), mx.contrib.nd.box_nms(data)):
        np.testing.assert_array_equal(found.asnumpy(), expected)
    assert mx.contrib.sym.box_nms(mx.sym.Variable("x"), name="n").list_outputs() == ["n_output0"]


def slow_matching(scores, threshold):
    rows, columns = np.full(scores.shape[0], -1.0), np.full(scores.shape[1], -1.0)
    for place in np.argsort(-scores.ravel(), kind="stable"):
        r, c = divmod(int(place), scores.shape[1])
        if scores[r, c] > threshold and rows[r] < 0 and columns[c] < 0:
            rows[r], columns[c] = c, r
    return rows, columns


@pytest.mark.parametrize("shape", [(6, 4), (3, 9), (40, 12)])
def test_matching_is_greedy_and_takes_the_first_of_equals(shape):
    random = np.random.RandomState(0)
    scores = np.stack([random.rand(*shape), random.randint(0, 4, shape) / 4.0])
    found = call("_contrib_bipartite_matching", torch.from_numpy(scores), threshold=0.2)
    for i in range(2):
        for one, expected in zip(found, slow_matching(scores[i], 0.2), strict=True):
            np.testing.assert_array_equal(one[i].numpy(), expected)
    few = run("_contrib_bipartite_matching", np.diag([0.5, 0.9, 0.7, 0.8]), threshold=0.1, topk=2)
    assert few.tolist() == [-1, 1, 2, 3]  # stops one pair after topk


def near(one, other):
    """Points closer than 1 exclude each other; those that are no numbers are near nothing."""
    return (one[0][:, :, None] - other[0][:, None]).abs() < 1


@pytest.mark.parametrize("spread", [5.0, 60.0, 1000.0])
@pytest.mark.parametrize("limit", [None, 3, 40])
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


def test_a_long_chain_of_overlaps():
    points = torch.arange(300.0)[None, :, None] * 0.6
    found = boxes.keep_greedily(points, torch.tensor([300]), near)
    assert found[0].nonzero().view(-1).tolist() == list(range(0, 300, 2))


def test_groups_and_chosen_positions_keep_the_order():
    found = boxes.group_by_key(torch.tensor([7, -2, 7, 3, -2, 7]))
    assert [each.tolist() for each in found] == [[2, 0, 2, 1, 0, 2], [0, 0, 1, 0, 1, 2], [2, 1, 3]]
    chosen = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    assert boxes.chosen_first(chosen).tolist() == [[1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
