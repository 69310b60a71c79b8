import numpy as np
import torch

from dpmodule.ops.image import decode, pick_method, resize
from helpers import pictures
from helpers.walk import walks


@walks(sorted(key for key in pictures.goldens() if key.startswith("resize/")))
def test_every_method_gives_mxnets_pixels(case):
    _, name, width, height, interp, dtype = case.split("/")
    image = decode(pictures.file_of(name)).to(getattr(torch, dtype))
    found = resize(image, int(width), int(height), int(interp)).numpy()
    # 8-bit pixels are exact; in floats, Lanczos weights differ in the last digits
    np.testing.assert_allclose(found, pictures.goldens()[case], rtol=0, atol=0 if dtype == "uint8" else 2e-3)


def test_the_same_size_is_a_copy():
    image = torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3)
    found = resize(image, 2, 2, 2)
    assert torch.equal(found, image)
    assert found.data_ptr() != image.data_ptr()


def test_method_9_goes_by_size_and_10_by_the_draw():
    for old, new, method in (2, (3, 3), 2), (4, (3, 3), 3), (4, (3, 5), 1), (4, (4, 3), 1):
        assert pick_method(9, (old, old), new) == method
        assert pick_method(10, (old, old), new, draw=4) == 4
