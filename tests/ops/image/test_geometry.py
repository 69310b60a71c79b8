import numpy as np
import pytest
import torch

from dpmodule.base import ArgumentError
from dpmodule.ops.image import decode, make_border
from helpers import pictures


@pytest.mark.parametrize("kind", range(5))
def test_every_kind_gives_mxnets_pixels(kind):
    image = decode(pictures.file_of("noise"))
    found = make_border(image, 2, 3, 4, 1, kind, (7, 8, 9)).numpy()
    np.testing.assert_array_equal(found, pictures.goldens()[f"border/{kind}"])


def test_one_pixel_is_repeated_by_every_kind():
    image = torch.full((1, 1, 1), 5, dtype=torch.uint8)
    for kind in (1, 2, 3, 4):
        assert (make_border(image, 2, 2, 2, 2, kind) == 5).all()


def test_channels_beyond_the_values_get_zero():
    found = make_border(torch.ones(1, 1, 3), 1, 0, 0, 0, values=(4.0,))
    assert found[0, 0].tolist() == [4.0, 0.0, 0.0]


def test_negative_margins_and_unknown_kinds_are_refused():
    image = torch.zeros(2, 2, 1)
    with pytest.raises(ArgumentError, match="margins are -1"):
        make_border(image, -1, 0, 0, 0)
    with pytest.raises(ArgumentError, match="border type is 7"):
        make_border(image, 1, 0, 0, 0, 7)
