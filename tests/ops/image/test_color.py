import colorsys

import numpy as np
import torch

from dpmodule.ops.image.color import shift_hls, to_grey


def test_no_shift_keeps_colors_up_to_rounding():
    image = torch.randint(0, 256, (8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    # 180 steps of hue do not tell all 8-bit colors apart
    assert (shift_hls(image, 0, 0, 0).int() - image.int()).abs().max() <= 6


def test_a_shift_of_hue_turns_the_color_circle():
    red = torch.tensor([[[255, 0, 0]]], dtype=torch.uint8)
    for steps, want in ((60, [0, 255, 0]), (120, [0, 0, 255])):
        found = shift_hls(red, steps, 0, 0)[0, 0].int()
        assert (found - torch.tensor(want)).abs().max() <= 1  # a lightness of 127.5 is rounded


def test_lightness_and_saturation_follow_the_hls_formula():
    color = (120, 60, 90)
    h, light, s = colorsys.rgb_to_hls(*(c / 255 for c in color))
    want = [c * 255 for c in colorsys.hls_to_rgb(h, light + 20 / 255, s + 30 / 255)]
    found = shift_hls(torch.tensor([[color]], dtype=torch.uint8), 0, 20, 30)[0, 0]
    np.testing.assert_allclose(found.numpy(), want, atol=2)


def test_grey_weighs_the_channels():
    image = torch.tensor([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]], dtype=torch.uint8)
    assert to_grey(image)[0, :, 0].tolist() == [76, 150, 29, 255]
