import numpy as np
import pytest
import torch

from dpmodule.ops.contrib.embedding_bags import pixel_table, rectangle_elements, weighted_bags
from helpers.arrays import f8
from helpers.op_case import gradients, run, values_test

ALIGN, ROTATED, SENSITIVE = "_contrib_ROIAlign", "_contrib_RROIAlign", "_contrib_PSROIPooling"
PLANES = np.stack(np.meshgrid(np.arange(8.0), np.arange(10.0), indexing="ij"))[None]  # rows, columns
ROIS, POOL = f8([[0, 2, 1, 6, 5]]), {"pooled_size": (2, 2), "spatial_scale": 1.0}
CHANNELS, WHOLE = np.arange(8.0)[None, :, None, None] * np.ones((1, 8, 6, 6)), f8([[0, 0, 0, 5, 5]])
READ = f8([[[[2, 2], [4, 4]], [[3, 5], [3, 5]]]])
test_values = values_test(
    [
        (ALIGN, (PLANES, ROIS), {**POOL, "sample_ratio": 2}, READ),
        (ALIGN, (PLANES, ROIS), {**POOL, "sample_ratio": 2, "aligned": True}, READ - 0.5),
        (ROTATED, (PLANES[:, :1], f8([[0, 4, 3, 4, 4, 90]])), {**POOL, "sampling_ratio": 2}, f8([[[[4, 2], [4, 2]]]])),
        # each bin reads its own channel
        (ALIGN, (CHANNELS, WHOLE), {**POOL, "position_sensitive": True}, np.arange(8.0).reshape(1, 2, 2, 2)),
        (SENSITIVE, (CHANNELS, WHOLE), {"pooled_size": 2, "spatial_scale": 1.0, "output_dim": 2},
         np.arange(8.0).reshape(1, 2, 2, 2)),
    ]
)  # fmt: skip


def test_bags_sum_weighted_rows_and_differentiate():
    random = np.random.RandomState(0)
    table, weight = torch.from_numpy(random.rand(5, 3)), torch.from_numpy(random.rand(7))
    index, starts = torch.tensor([0, 4, 4, 2, 1, 0, 3]).int(), torch.tensor([0, 2, 2, 6]).int()
    rows = (weight[:, None] * table[index]).numpy()
    expected = np.stack([rows[:2].sum(0), np.zeros(3), rows[2:6].sum(0), rows[6]])
    np.testing.assert_allclose(weighted_bags(table, weight, index, starts).numpy(), expected)
    together = weighted_bags(table, weight, index, starts, 2).numpy()
    np.testing.assert_allclose(together, expected.reshape(2, 2, 3).transpose(0, 2, 1))
    inputs = (table.requires_grad_(), weight.requires_grad_())
    for bins in (0, 2):
        assert torch.autograd.gradcheck(lambda t, w, n=bins: weighted_bags(t, w, index, starts, n), inputs)


def test_rectangles_are_enumerated_row_by_row():
    found = rectangle_elements(torch.tensor([2, 0, 1]), torch.tensor([2, 5, 3]))
    wanted = [[0, 0, 0, 0, 2, 2, 2], [0, 0, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 1, 2], [0, 4, 4]]
    assert [each.tolist() for each in found] == wanted


def test_regions_of_image_minus_one_give_zeros():
    rois, ones = f8([[-1, 0, 0, 3, 3], [0, 0, 0, 3, 3]]), np.ones((1, 1, 4, 4))
    found = run(ALIGN, ones, rois, **POOL)
    assert not found[0].any()
    assert (found[1] == 1).all()
    to_data, to_rois = gradients(ALIGN, ones, rois, **POOL)
    assert to_data.sum() == pytest.approx(4)
    assert not to_rois.any()


def test_the_table_of_one_image_is_whole_rows():
    # a reshaped image would keep its channels apart in memory: right, but many times slower
    assert pixel_table(torch.zeros(1, 4, 3, 5)).is_contiguous()
