import numpy as np
import pytest
import torch

from dpmodule.base import OpError, ShapeError
from helpers.op_case import call, run, shapes

PRIOR, TARGET, DETECTION = (f"_contrib_MultiBox{name}" for name in ("Prior", "Target", "Detection"))
ANCHORS = np.array([[[0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.6, 0.6], [0.7, 0.7, 0.9, 0.9]]])


def target(labels, scores, **attrs):
    inputs = (ANCHORS, labels, scores)
    return [x.numpy() for x in call(TARGET, *(torch.from_numpy(np.array(x)) for x in inputs), **attrs)]


def test_priors_of_one_pixel():
    found = run(PRIOR, np.zeros((1, 1, 1, 1)), sizes=(0.5, 0.2), ratios=(1.0, 4.0))
    squares = [[0.25, 0.25, 0.75, 0.75], [0.4, 0.4, 0.6, 0.6], [0.0, 0.375, 1.0, 0.625]]
    np.testing.assert_allclose(found, [squares], 1e-6)


def test_priors_of_steps_cut_off_at_the_border():
    found = run(PRIOR, np.zeros((2, 3, 1, 2)), sizes=(0.8,), clip=True, steps=(0.3, 0.4), offsets=(0, 1))
    # an anchor is as high as its size, and as wide in pixels
    np.testing.assert_allclose(found, [[[0.2, 0, 0.6, 0.4], [0.6, 0, 1.0, 0.4]]], 1e-6)


def test_priors_refuse_offsets_and_steps_that_mean_nothing():
    for attrs in ({"offsets": (0.5, 1.5)}, {"steps": (0.1, -1.0)}):
        with pytest.raises(OpError, match="expected offsets within"):
            run(PRIOR, np.zeros((1, 1, 2, 2)), **attrs)
    with pytest.raises(OpError, match="expected 2 numbers"):
        run(PRIOR, np.zeros((1, 1, 2, 2)), steps=(0.1,))


def test_shapes_of_priors_and_targets():
    assert shapes(PRIOR, [(4, 3, 5, 0)], sizes=(0.1, 0.2), ratios=(1, 2, 3))[1] == [(1, 0, 4)]
    assert shapes(PRIOR, [(4, 3, 5, 2)], sizes=(0.1, 0.2), ratios=(1, 2, 3))[1] == [(1, 40, 4)]
    assert shapes(TARGET, [(1, 7, 4), (2, 3, 5), None])[1] == [(2, 28), (2, 28), (2, 7)]
    assert shapes(TARGET, [None, None, (2, 4, 7)])[1] == [(2, 28), (2, 28), (2, 7)]
    with pytest.raises(ShapeError, match="expected 7 anchors"):
        shapes(TARGET, [(1, 7, 4), (2, 3, 5), (2, 4, 8)])
    with pytest.raises(ShapeError, match="differ in the number of anchors"):
        shapes(DETECTION, [(2, 4, 7), (2, 27), (1, 7, 4)])


def test_targets_are_matched_boxes_in_units_of_anchors():
    labels = np.array([[[2, 0.35, 0.3, 0.65, 0.7], [-1, -1, -1, -1, -1]]])
    moves, mask, classes = target(labels, np.zeros((1, 4, 3)), variances=(0.1, 0.1, 0.2, 0.2))
    np.testing.assert_array_equal(classes, [[0, 3, 0]])
    np.testing.assert_array_equal(mask.reshape(3, 4)[:, 0], [0, 1, 0])
    expected = [0.05 / 0.3 / 0.1, 0.05 / 0.3 / 0.1, 0, np.log(0.4 / 0.3) / 0.2]
    np.testing.assert_allclose(moves.reshape(3, 4)[1], expected, 1e-5, 1e-6)


def test_every_box_gets_an_anchor_however_little_they_overlap():
    labels = np.array([[[0, 0.3, 0.3, 0.6, 0.6], [1, 0.55, 0.55, 0.71, 0.71]]])
    assert target(labels, np.zeros((1, 3, 3)))[2].tolist() == [[0, 1, 2]]


def test_an_image_without_boxes_is_ignored():
    moves, mask, classes = target(np.full((1, 2, 5), -1.0), np.zeros((1, 3, 3)), ignore_label=-7)
    assert not moves.any()
    assert not mask.any()
    assert (classes == -7).all()


def test_the_hardest_negatives_count_and_may_be_fewer_than_wanted():
    labels = np.array([[[0, 0.3, 0.3, 0.6, 0.6]]])
    scores = np.array([[[3.0, 0, 1], [0, 0, 0]]])
    attrs = {"negative_mining_thresh": 0.5}
    assert target(labels, scores, negative_mining_ratio=1, **attrs)[2].tolist() == [[-1, 1, 0]]
    assert target(labels, scores, negative_mining_ratio=9, **attrs)[2].tolist() == [[0, 1, 0]]


def test_detections_are_sorted_and_the_suppressed_are_marked():
    scores = np.array([[[0.1, 0.1, 0.1, 0.9], [0.3, 0.8, 0.2, 0.0], [0.6, 0.1, 0.7, 0.1]]])
    anchors = np.array([[[0.1, 0.1, 0.5, 0.5]] * 3 + [[0.6, 0.6, 0.9, 0.9]]])
    attrs = {"threshold": 0.5, "nms_threshold": 0.5}
    found = run(DETECTION, scores, np.zeros((1, 16)), anchors, **attrs)
    box = [0.1, 0.1, 0.5, 0.5]
    expected = [[0, 0.8, *box], [1, 0.7, *box], [-1, 0.6, *box], [-1] * 6]
    np.testing.assert_allclose(found[0], expected, 1e-6)
    forced = run(DETECTION, scores, np.zeros((1, 16)), anchors, force_suppress=True, **attrs)
    assert forced[0, :, 0].tolist() == [0, -1, -1, -1]
    few = run(DETECTION, scores, np.zeros((1, 16)), anchors, nms_topk=1, **attrs)
    assert few[0, :, 0].tolist() == [0, -1, -1, -1]


def test_nothing_detected():
    scores = np.array([[[0.9, 0.9], [0.1, 0.1]]])
    assert (run(DETECTION, scores, np.zeros((1, 8)), ANCHORS[:, :2], threshold=0.5) == -1).all()
    assert (run(DETECTION, scores[:, :1], np.zeros((1, 8)), ANCHORS[:, :2]) == -1).all()


@pytest.mark.parametrize("kind", ["f2", "f8"])
def test_halves_and_doubles(kind):
    scores = np.array([[[0.1, 0.9, 0.9], [0.9, 0.1, 0.1]]], kind)
    assert run(PRIOR, np.zeros((1, 1, 2, 2), kind)).dtype == kind
    found = run(DETECTION, scores, np.zeros((1, 12), kind), ANCHORS.astype(kind))
    assert found.dtype == kind
    assert found[0, 0, 0] == 0
    labels = np.array([[[0, 0.3, 0.3, 0.6, 0.6]]], kind)
    wanted = call(TARGET, *(torch.from_numpy(x) for x in (ANCHORS.astype(kind), labels, scores)))
    assert {x.numpy().dtype for x in wanted} == {np.dtype(kind)}
    assert wanted[2].tolist() == [[0, 1, 0]]
