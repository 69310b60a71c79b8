import numpy as np
import pytest
import torch

from dpmodule.base import ShapeError
from dpmodule.ops.contrib import deformable
from helpers.op_case import call, gradients, run, shapes

PLAIN, MODULATED = "_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"
ATTRS = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 2}
random = np.random.RandomState(5)


def inputs(images=3):
    offset = random.standard_normal((images, 18, 4, 5))
    return [
        random.standard_normal((images, 2, 4, 5)),
        offset,
        random.standard_normal((2, 2, 3, 3)),
        np.ones(2),
    ]


def test_without_offsets_it_is_a_convolution():
    data, offset, weight, bias = inputs()
    expected = run("Convolution", data, weight, bias, **ATTRS)
    np.testing.assert_allclose(run(PLAIN, data, 0 * offset, weight, bias, **ATTRS), expected, 1e-10)
    mask = np.ones((3, 9, 4, 5))
    np.testing.assert_allclose(run(MODULATED, data, 0 * offset, mask, weight, bias, **ATTRS), expected, 1e-10)
    np.testing.assert_allclose(run(MODULATED, data, 0 * offset, 0 * mask, weight, bias, **ATTRS), 1.0)


def test_an_offset_of_a_pixel_moves_the_image():
    data = np.arange(20.0).reshape(1, 1, 4, 5)
    offset = np.zeros((1, 2, 4, 5))
    offset[:, 1] = 1
    found = run(PLAIN, data, offset, np.ones((1, 1, 1, 1)), kernel=(1, 1), num_filter=1, no_bias=True)
    np.testing.assert_array_equal(found[..., :4], data[..., 1:])
    assert not found[..., 4].any()


def test_the_border_of_both_kinds():
    data, weight = np.ones((1, 1, 3, 3)), np.ones((1, 1, 1, 1))
    attrs = {"kernel": (1, 1), "num_filter": 1, "no_bias": True}
    for move, plain, modulated in ((-0.25, 0.0, 0.75), (2.25, 1.0, 0.75), (3.0, 0.0, 0.0)):
        offset = np.full((1, 2, 3, 3), [[[[0.0]], [[move]]]])
        found = run(PLAIN, data, offset, weight, **attrs)[0, 0, 0, 0]
        assert found == pytest.approx(plain)
        found = run(MODULATED, data, offset, np.ones((1, 1, 3, 3)), weight, **attrs)[0, 0, 0, 0]
        assert found == pytest.approx(modulated)


def test_a_batch_in_parts_gives_the_same_values_and_gradients(monkeypatch):
    values = inputs()
    head = random.standard_normal((3, 2, 4, 5))
    whole = run(PLAIN, *values, **ATTRS), gradients(PLAIN, *values, head=head, **ATTRS)
    monkeypatch.setattr(deformable, "_COLUMNS", 1)
    parts = run(PLAIN, *values, **ATTRS), gradients(PLAIN, *values, head=head, **ATTRS)
    np.testing.assert_allclose(parts[0], whole[0])
    for one, other in zip(parts[1], whole[1], strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-12)


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_other_precisions(kind):
    data, offset, weight, bias = (torch.from_numpy(x) for x in inputs())
    expected = call(PLAIN, data, offset, weight, bias, **ATTRS)[0]
    found = call(PLAIN, *(x.to(kind) for x in (data, offset, weight, bias)), **ATTRS)[0]
    assert found.dtype == kind
    tolerance = 1e-4 if kind == torch.float32 else 0.1
    np.testing.assert_allclose(found.double().numpy(), expected.numpy(), tolerance, tolerance)


def test_shapes_follow_from_the_data():
    ins, outs = shapes(MODULATED, [(2, 4, 8, 9), None, None, None, None], num_deformable_group=2, **ATTRS)
    assert ins[1:] == [(2, 36, 8, 9), (2, 18, 8, 9), (2, 4, 3, 3), (2,)]
    assert outs == [(2, 2, 8, 9)]
    with pytest.raises(ShapeError, match=r"offset has shape .* expected \(2, 18, 8, 9\)"):
        shapes(PLAIN, [(2, 4, 8, 9), (2, 17, 8, 9), None, None], **ATTRS)
    with pytest.raises(ShapeError, match="num_deformable_group 3 the channels"):
        shapes(PLAIN, [(2, 4, 8, 9), None, None, None], num_deformable_group=3, **ATTRS)
    with pytest.raises(ShapeError, match=r"expected \(N, C, H, W\) and \(h, w\)"):
        shapes(PLAIN, [(2, 4, 8), None, None, None], kernel=(3,), num_filter=2)


def test_bins_moved_by_offsets():
    name = "_contrib_DeformablePSROIPooling"
    y, x = np.meshgrid(np.arange(9.0), np.arange(12.0), indexing="ij")
    data, rois = np.stack([y, x])[None], np.array([[0, 2, 2, 5, 5.0]])
    attrs = {"spatial_scale": 1.0, "output_dim": 2, "group_size": 1, "pooled_size": 2, "sample_per_part": 2}
    still = run(name, data, rois, no_trans=True, **attrs)
    np.testing.assert_allclose(still[0, 1], [[2, 4], [2, 4]])
    trans = np.zeros((1, 2, 2, 2))
    trans[0, 0, 0, 1] = 1.0
    moved = run(name, data, rois, trans, trans_std=0.25, **attrs)
    np.testing.assert_allclose(moved[0, 1], [[2, 5], [2, 4]])
    assert not run(name, data, rois + [0, 50, 50, 50, 50], no_trans=True, **attrs).any()
