import colorsys

import numpy as np
import torch

from dpmodule.ops.image.color import shift_hls, to_grey


def test_shifts_of_hue_lightness_and_saturation():
    image = torch.randint(0, 256, (8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    # 180 steps of hue do not tell all 8-bit colors apart
    assert (shift_hls(image, 0, 0, 0).int() - image.int()).abs().max() <= 6
    h, light, s = colorsys.rgb_to_hls(120 / 255, 60 / 255, 90 / 255)
    bright = [c * 255 for c in colorsys.hls_to_rgb(h, light + 20 / 255, s + 30 / 255)]
    for color, shift, want in (
        ([255, 0, 0], (60, 0, 0), [0, 255, 0]),
        ([255, 0, 0], (120, 0, 0), [0, 0, 255]),
        ([120, 60, 90], (0, 20, 30), bright),
    ):
        found = shift_hls(torch.tensor([[color]], dtype=torch.uint8), *shift)[0, 0]
        np.testing.assert_allclose(found.numpy(), want, atol=1 if shift[0] else 2)


def test_grey_weighs_the_channels():
    image = torch.tensor([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], dtype=torch.uint8)
    assert to_grey(image)[0, :, 0].tolist() == [76, 150, 29, 255]
