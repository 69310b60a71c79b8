import numpy as np
import pytest

from helpers.arrays import f8
from helpers.op_case import gradients, run, values_test

ALIGN, ROTATED, SENSITIVE = "_contrib_ROIAlign", "_contrib_RROIAlign", "_contrib_PSROIPooling"
PLANES = np.stack(np.meshgrid(np.arange(8.0), np.arange(10.0), indexing="ij"))[None]  # rows, columns
ROIS, POOL = f8([[0, 2, 1, 6, 5]]), {"pooled_size": (2, 2), "spatial_scale": 1.0}
CHANNELS, WHOLE = np.arange(8.0)[None, :, None, None] * np.ones((1, 8, 6, 6)), f8([[0, 0, 0, 5, 5]])
READ = f8([[[[2, 2], [4, 4]], [[3, 5], [3, 5]]]])
test_values = values_test(
    (ALIGN, (PLANES, ROIS), {**POOL, "sample_ratio": 2}, READ),
    (ALIGN, (PLANES, ROIS), {**POOL, "sample_ratio": 2, "aligned": True}, READ - 0.5),
    (ROTATED, (PLANES[:, :1], f8([[0, 4, 3, 4, 4, 90]])), {**POOL, "sampling_ratio": 2}, f8([[[[4, 2], [4, 2]]]])),
    # each bin reads its own channel
    (ALIGN, (CHANNELS, WHOLE), {**POOL, "position_sensitive": True}, np.arange(8.0).reshape(1, 2, 2, 2)),
    (SENSITIVE, (CHANNELS, WHOLE), {"pooled_size": 2, "spatial_scale": 1.0, "output_dim": 2},
     np.arange(8.0).reshape(1, 2, 2, 2)),
)  # fmt: skip


def test_regions_of_image_minus_one_give_zeros():
    rois, ones = f8([[-1, 0, 0, 3, 3], [0, 0, 0, 3, 3]]), np.ones((1, 1, 4, 4))
    found = run(ALIGN, ones, rois, **POOL)
    assert not found[0].any()
    assert (found[1] == 1).all()
    to_data, to_rois = gradients(ALIGN, ones, rois, **POOL)
    assert to_data.sum() == pytest.approx(4)
    assert not to_rois.any()
