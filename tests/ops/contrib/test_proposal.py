import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.op_case import call, run, shapes

ONE, MANY = "_contrib_Proposal", "_contrib_MultiProposal"
ATTRS = {"scales": (1.0,), "ratios": (1.0,), "feature_stride": 16, "rpn_min_size": 0}


def maps(images=1, height=2, width=3):
    scores = np.zeros((images, 2, height, width))
    scores[:, 1] = np.arange(images * height * width).reshape(images, height, width) / 100.0
    return (
        scores,
        np.zeros((images, 4, height, width)),
        np.tile([16.0 * height, 16.0 * width, 1.0], (images, 1)),
    )


def test_anchors_come_best_first_and_are_repeated():
    found = run(ONE, *maps(), rpn_post_nms_top_n=8, **ATTRS)
    places = [(y, x) for y in (1, 0) for x in (2, 1, 0)]
    expected = [[0, 16 * x, 16 * y, 16 * x + 15, 16 * y + 15] for y, x in places]
    np.testing.assert_array_equal(found, expected + expected[:2])


def test_each_image_has_its_number_and_scores():
    inputs = [torch.from_numpy(x) for x in maps(2)]
    rois, scores = call(MANY, *inputs, rpn_post_nms_top_n=2, output_score=True, **ATTRS)
    np.testing.assert_array_equal(rois[:, 0].numpy(), [0, 0, 1, 1])
    np.testing.assert_allclose(scores[:, 0].numpy(), [0.05, 0.04, 0.11, 0.10])


def test_padding_comes_last():
    scores, moves, info = maps()
    info[:] = [32, 32, 1]
    found = run(ONE, scores, moves, info, rpn_post_nms_top_n=4, **ATTRS)
    assert found[:, 1].tolist() == [16, 0, 16, 0]


def test_equal_scores_keep_the_order_of_anchors():
    scores, moves, info = maps()
    scores[:] = 0.5
    for kind in ("f2", "f4", "f8"):
        inputs = (x.astype(kind) for x in (scores, moves, info))
        found = run(ONE, *inputs, rpn_post_nms_top_n=6, **ATTRS)
        assert found.dtype == kind
        assert found[:, 1:3].tolist() == [[16 * x, 16 * y] for y in (0, 1) for x in (0, 1, 2)]


def test_moves_of_the_centre_and_of_the_sides():
    scores, moves, info = maps()
    moves[0, :, 1, 2] = [-0.5, 0, 0, np.log(0.5)]
    best = run(ONE, scores, moves, info, rpn_post_nms_top_n=1, **ATTRS)
    np.testing.assert_allclose(best, [[0, 24, 20, 39, 27]], 1e-6)
    moves[0, :, 1, 2] = [-8, -2, -1, 3]
    best = run(ONE, scores, moves, info, rpn_post_nms_top_n=1, iou_loss=True, **ATTRS)
    np.testing.assert_allclose(best, [[0, 24, 14, 46, 31]], 1e-6)


def test_maps_that_do_not_fit_are_told():
    scores, moves, info = maps()
    with pytest.raises(OpError, match="2 channels, expected 4"):
        run(ONE, scores, moves, info, **{**ATTRS, "ratios": (1.0, 2.0)})
    with pytest.raises(OpError, match="expected at most feature_stride 16 times"):
        run(ONE, scores, moves, info + 32, **ATTRS)
    with pytest.raises(OpError, match="2 images, expected 1"):
        run(ONE, *maps(2), **ATTRS)
    with pytest.raises(ShapeError, match="expected 4 axes"):
        shapes(ONE, [(1, 2, 3), None, None])


def test_shapes_of_the_other_inputs_follow():
    ins, outs = shapes(MANY, [(2, 24, 5, 7), None, None], output_score=True)
    assert ins[1:] == [(2, 48, 5, 7), (2, 3)]
    assert outs == [(600, 5), (600, 1)]


def test_outputs_of_a_symbol():
    for scores, expected in ((True, ["r_output", "r_score"]), (False, ["r_output"])):
        made = mx.contrib.sym.Proposal(*map(mx.sym.Variable, "abc"), output_score=scores, name="r")
        assert made.list_outputs() == expected
