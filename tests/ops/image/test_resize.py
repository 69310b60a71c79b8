import numpy as np
import pytest
import torch

from dpmodule.base import ArgumentError, DTypeError
from dpmodule.ops.image import decode, pick_method, resize
from helpers import pictures
from helpers.pictures import goldens

CASES = sorted(key for key in goldens() if key.startswith("resize/"))


@pytest.mark.parametrize("name", pictures.NAMES)
def test_every_method_gives_mxnets_pixels(name):
    image = decode(pictures.file_of(name))
    for case in CASES:
        _, picture, width, height, interp, dtype = case.split("/")
        if picture != name:
            continue
        found = resize(image.to(getattr(torch, dtype)), int(width), int(height), int(interp)).numpy()
        # 8-bit pixels are exact; in floats, Lanczos weights differ in the last digits
        np.testing.assert_allclose(
            found, goldens()[case], rtol=0, atol=0 if dtype == "uint8" else 2e-3, err_msg=case
        )


def test_the_same_size_is_a_copy():
    image = torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3)
    found = resize(image, 2, 2, 2)
    assert torch.equal(found, image)
    assert found.data_ptr() != image.data_ptr()


@pytest.mark.parametrize(
    ("old", "new", "method"),
    [((2, 2), (3, 3), 2), ((4, 4), (3, 3), 3), ((4, 4), (3, 5), 1), ((4, 4), (4, 3), 1)],
)
def test_method_9_goes_by_size(old, new, method):
    assert pick_method(9, old, new) == method


def test_method_10_is_the_draw():
    assert pick_method(10, (2, 2), (3, 3), draw=4) == 4


@pytest.mark.parametrize(
    ("image", "size", "interp", "error", "text"),
    [
        (torch.zeros(3, 4, dtype=torch.uint8), (2, 2), 1, ArgumentError, r"shape \(3, 4\)"),
        (torch.zeros(0, 4, 3, dtype=torch.uint8), (2, 2), 1, ArgumentError, r"shape \(0, 4, 3\)"),
        (torch.zeros(2, 2, 3), (0, 2), 1, ArgumentError, "0 x 2"),
        (torch.zeros(2, 2, 3), (3, 2), 5, ArgumentError, "method 5"),
        (torch.zeros(2, 2, 3, dtype=torch.int32), (3, 2), 1, DTypeError, "cast it first"),
    ],
)
def test_what_cannot_be_resized_is_refused(image, size, interp, error, text):
    with pytest.raises(error, match=text):
        resize(image, *size, interp)
