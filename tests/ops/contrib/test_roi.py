import numpy as np
import pytest
import torch

from dpmodule.base import BoundsError, OpError, ShapeError
from dpmodule.ops.contrib.embedding_bags import pixel_table, rectangle_elements, weighted_bags
from helpers.op_case import gradients, run, shapes

ALIGN, ROTATED, SENSITIVE = "_contrib_ROIAlign", "_contrib_RROIAlign", "_contrib_PSROIPooling"


def test_bags_sum_weighted_rows_and_differentiate():
    random = np.random.RandomState(0)
    table, weight = torch.from_numpy(random.rand(5, 3)), torch.from_numpy(random.rand(7))
    index = torch.tensor([0, 4, 4, 2, 1, 0, 3], dtype=torch.int32)
    starts = torch.tensor([0, 2, 2, 6], dtype=torch.int32)
    rows = (weight[:, None] * table[index]).numpy()
    expected = np.stack([rows[:2].sum(0), np.zeros(3), rows[2:6].sum(0), rows[6]])
    np.testing.assert_allclose(weighted_bags(table, weight, index, starts).numpy(), expected)
    together = weighted_bags(table, weight, index, starts, 2).numpy()
    np.testing.assert_allclose(together, expected.reshape(2, 2, 3).transpose(0, 2, 1))
    inputs = (table.requires_grad_(), weight.requires_grad_())
    for bins in (0, 2):
        assert torch.autograd.gradcheck(
            lambda t, w, bins=bins: weighted_bags(t, w, index, starts, bins), inputs
        )


def test_rectangles_are_enumerated_row_by_row():
    bag, row, column, starts = rectangle_elements(torch.tensor([2, 0, 1]), torch.tensor([2, 5, 3]))
    assert bag.tolist() == [0, 0, 0, 0, 2, 2, 2]
    assert row.tolist() == [0, 0, 1, 1, 0, 0, 0]
    assert column.tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert starts.tolist() == [0, 4, 4]


def test_a_plane_is_read_where_its_samples_are():
    y, x = np.meshgrid(np.arange(8.0), np.arange(10.0), indexing="ij")
    data = np.stack([y, x])[None]
    rois = np.array([[0, 2, 1, 6, 5.0]])
    found = run(ALIGN, data, rois, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2)
    np.testing.assert_allclose(found[0, 0], [[2, 2], [4, 4]])
    np.testing.assert_allclose(found[0, 1], [[3, 5], [3, 5]])
    moved = run(ALIGN, data, rois, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2, aligned=True)
    np.testing.assert_allclose(moved, found - 0.5)
    turned = np.array([[0, 4, 3, 4, 4, 90.0]])
    found = run(ROTATED, data, turned, pooled_size=(2, 2), spatial_scale=1.0, sampling_ratio=2)
    np.testing.assert_allclose(found[0, 0], [[4, 2], [4, 2]], atol=1e-12)


def test_each_bin_reads_its_own_channel():
    data = np.arange(8.0)[None, :, None, None] * np.ones((1, 8, 6, 6))
    rois = np.array([[0, 0, 0, 5, 5.0]])
    expected = np.arange(8.0).reshape(1, 2, 2, 2)
    attrs = {"pooled_size": (2, 2), "spatial_scale": 1.0, "position_sensitive": True}
    np.testing.assert_allclose(run(ALIGN, data, rois, **attrs), expected)
    attrs = {"pooled_size": 2, "spatial_scale": 1.0, "output_dim": 2}
    np.testing.assert_allclose(run(SENSITIVE, data, rois, **attrs), expected)


def test_regions_of_image_minus_one_give_zeros():
    rois = np.array([[-1, 0, 0, 3, 3], [0, 0, 0, 3, 3.0]])
    attrs = {"pooled_size": (2, 2), "spatial_scale": 1.0}
    found = run(ALIGN, np.ones((1, 1, 4, 4)), rois, **attrs)
    assert not found[0].any()
    assert (found[1] == 1).all()
    to_data, to_rois = gradients(ALIGN, np.ones((1, 1, 4, 4)), rois, **attrs)
    assert to_data.sum() == pytest.approx(4)
    assert not to_rois.any()


@pytest.mark.parametrize("name", [ALIGN, ROTATED, SENSITIVE])
def test_half_precision_and_no_regions(name):
    width = 6 if name == ROTATED else 5
    attrs = {"pooled_size": (1, 1), "spatial_scale": 1.0}
    if name == SENSITIVE:
        attrs = {"pooled_size": 1, "spatial_scale": 1.0, "output_dim": 2}
    data = np.ones((1, 2, 4, 4), "f2")
    rois = np.array([[0, 1, 1, 3, 3, 0][:width]], "f2")
    found = run(name, data, rois, **attrs)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, np.ones((1, 2, 1, 1)))
    assert run(name, data, rois[:0], **attrs).shape == (0, 2, 1, 1)


def test_errors_tell_what_is_wrong():
    attrs = {"pooled_size": (2, 2), "spatial_scale": 1.0}
    data, rois = np.ones((1, 3, 4, 4)), np.array([[0, 2, 2, 2, 3.0]])
    with pytest.raises(OpError, match="a region has no area"):
        run(ALIGN, data, rois, aligned=True, **attrs)
    with pytest.raises(BoundsError, match="has image 1"):
        run(ALIGN, data, rois + [[1, 0, 0, 0, 0]], **attrs)
    with pytest.raises(ShapeError, match="multiple of 4"):
        shapes(ALIGN, [(1, 3, 4, 4), (1, 5)], position_sensitive=True, **attrs)
    with pytest.raises(ShapeError, match=r"output_dim \* group_size \*\* 2 = 8"):
        shapes(SENSITIVE, [(1, 3, 4, 4), (1, 5)], pooled_size=2, spatial_scale=1.0, output_dim=2)


def test_the_table_of_one_image_is_whole_rows():
    # a reshaped image would keep its channels apart in memory: right, but many times slower
    assert pixel_table(torch.zeros(1, 4, 3, 5)).is_contiguous()
