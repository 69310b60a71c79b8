import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ShapeError
from dpmodule.ops.contrib import boxes
from helpers.op_case import call, gradients, run, shapes

BOXES = np.array(
    [
        [0, 0.5, 0.1, 0.1, 0.2, 0.2],
        [1, 0.4, 0.1, 0.1, 0.2, 0.2],
        [0, 0.3, 0.1, 0.1, 0.14, 0.14],
        [2, 0.6, 0.5, 0.5, 0.7, 0.8],
    ]
)


def test_suppression_of_the_documented_example():
    attrs = {"overlap_thresh": 0.1, "id_index": 0, "force_suppress": True}
    found = run("_contrib_box_nms", BOXES, **attrs)
    np.testing.assert_array_equal(found, np.concatenate([BOXES[[3, 0]], np.full((2, 6), -1.0)]))
    head = np.arange(24.0).reshape(4, 6)
    (grad,) = gradients("_contrib_box_nms", BOXES, head=head, **attrs)
    np.testing.assert_array_equal(grad, np.stack([head[1], 0 * head[0], 0 * head[0], head[0]]))


def test_boxes_of_other_classes_stay_and_background_goes():
    found = run("_contrib_box_nms", BOXES, overlap_thresh=0.1, id_index=0)
    np.testing.assert_array_equal(found[:3], BOXES[[3, 0, 1]])
    found = run("_contrib_box_nms", BOXES, overlap_thresh=0.1, id_index=0, background_id=2)
    np.testing.assert_array_equal(found[:2], BOXES[[0, 1]])
    assert (found[2:] == -1).all()


def test_gradient_of_converted_boxes_is_moved_as_it_is():
    head = np.arange(24.0).reshape(4, 6)
    attrs = {"overlap_thresh": 0.9, "out_format": "center", "valid_thresh": 0.45}
    found = run("_contrib_box_nms", BOXES, **attrs)
    np.testing.assert_allclose(found[:2, 2:], [[0.6, 0.65, 0.2, 0.3], [0.15, 0.15, 0.1, 0.1]])
    (grad,) = gradients("_contrib_box_nms", BOXES, head=head, **attrs)
    np.testing.assert_array_equal(grad, np.stack([head[1], 0 * head[0], 0 * head[0], head[0]]))


def test_topk_of_zero_changes_nothing():
    np.testing.assert_array_equal(run("_contrib_box_nms", BOXES, topk=0), BOXES)


def test_nothing_valid():
    assert (run("_contrib_box_nms", BOXES, valid_thresh=2.0) == -1).all()


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"score_index": 3}, "score_index is 3"),
        ({"id_index": 9}, "id_index is 9"),
        ({"id_index": 1}, "must be different positions"),
        ({"coord_start": 3}, "must be different positions"),
    ],
)
def test_places_that_do_not_fit_are_told(attrs, message):
    with pytest.raises(ShapeError, match=message):
        shapes("_contrib_box_nms", [(4, 6)], **attrs)


def test_faces_and_old_names():
    data = mx.nd.array(BOXES)
    expected = mx.nd.contrib.box_nms(data).asnumpy()
    for found in (mx.nd.contrib.box_non_maximum_suppression(data), mx.contrib.nd.box_nms(data)):
        np.testing.assert_array_equal(found.asnumpy(), expected)
    assert mx.contrib.sym.box_nms(mx.sym.Variable("x"), name="n").list_outputs() == ["n_output0"]


def test_overlap_of_the_documented_example_in_both_formats():
    one = np.array([[0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5]])
    other = np.array([[0.25, 0.25, 0.75, 0.75]])
    np.testing.assert_allclose(run("_contrib_box_iou", one, other), [[1 / 7], [1 / 7]])
    centre = [np.concatenate([(b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]], 1) for b in (one, other)]
    np.testing.assert_allclose(run("_contrib_box_iou", *centre, format="center"), [[1 / 7], [1 / 7]])
    assert shapes("_contrib_box_iou", [(2, 3, 4), (5, 0)])[1] == [(2, 3, 5)]
    with pytest.raises(ShapeError, match="lhs has shape"):
        shapes("_contrib_box_iou", [(3, 5), (5, 4)])


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
    rows, columns = call("_contrib_bipartite_matching", torch.from_numpy(scores), threshold=0.2)
    for i in range(2):
        expected = slow_matching(scores[i], 0.2)
        np.testing.assert_array_equal(rows[i].numpy(), expected[0])
        np.testing.assert_array_equal(columns[i].numpy(), expected[1])


def test_matching_stops_one_pair_after_topk():
    scores = np.diag([0.5, 0.9, 0.7, 0.8])
    np.testing.assert_array_equal(
        run("_contrib_bipartite_matching", scores, threshold=0.1, topk=2), [-1, 1, 2, 3]
    )


def near(one, other):
    """Points closer than 1 exclude each other; those that are no numbers are near nothing."""
    return (one[0][:, :, None] - other[0][:, None]).abs() < 1


def slow(points, size):
    kept = []
    for i in range(size):
        if all(abs(points[i] - points[k]) >= 1 for k in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("spread", [5.0, 60.0, 1000.0])
@pytest.mark.parametrize("limit", [None, 3, 40])
def test_keeps_what_the_loop_keeps(spread, limit):
    random = np.random.RandomState(1)
    sizes = [500, 0, 129, 1, 128, 300, 7]
    points = random.rand(len(sizes), max(sizes)) * spread
    found = boxes.keep_greedily(torch.from_numpy(points)[:, :, None], torch.tensor(sizes), near, limit)
    for row, values, size in zip(found.numpy(), points, sizes, strict=True):
        expected = slow(values, size)
        assert not row[size:].any()
        assert list(np.flatnonzero(row)[:limit]) == expected[:limit]
        if limit is None:
            assert list(np.flatnonzero(row)) == expected


def test_a_long_chain_of_overlaps():
    points = torch.arange(300.0)[None, :, None] * 0.6
    found = boxes.keep_greedily(points, torch.tensor([300]), near)
    assert found[0].nonzero().view(-1).tolist() == list(range(0, 300, 2))


def test_groups_keep_the_order_of_their_elements():
    group, rank, sizes = boxes.group_by_key(torch.tensor([7, -2, 7, 3, -2, 7]))
    assert group.tolist() == [2, 0, 2, 1, 0, 2]
    assert rank.tolist() == [0, 0, 1, 0, 1, 2]
    assert sizes.tolist() == [2, 1, 3]


def test_chosen_positions_come_first():
    chosen = torch.tensor(
        [[False, True, False, True], [False, False, False, False], [True, True, True, True]]
    )
    assert boxes.chosen_first(chosen).tolist() == [[1, 3, 0, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
