import numpy as np
import pytest
import torch

from dpmodule.ops.image import decode, make_border
from helpers import pictures


@pytest.mark.parametrize("kind", range(5))
def test_every_kind_gives_mxnets_pixels(kind):
    image = decode(pictures.file_of("noise"))
    found = make_border(image, 2, 3, 4, 1, kind, (7, 8, 9)).numpy()
    np.testing.assert_array_equal(found, pictures.goldens()[f"border/{kind}"])
    pixel = torch.full((1, 1, 1), 5, dtype=torch.uint8)
    assert (make_border(pixel, 2, 2, 2, 2, kind, (5,)) == 5).all()


def test_channels_beyond_the_values_get_zero():
    found = make_border(torch.ones(1, 1, 3), 1, 0, 0, 0, values=(4.0,))
    assert found[0, 0].tolist() == [4.0, 0.0, 0.0]
