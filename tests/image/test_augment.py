import numpy as np
import pytest

import dpmodule as mx
from helpers import image_cases, pictures

I = mx.image  # noqa: E741
OBJECTS = np.array(image_cases.OBJECTS, "f4")


def test_changes_are_mxnets_under_the_same_seeds():
    pictures.compare(image_cases.changed(mx), 2e-3)


def test_ranges_that_cannot_be_drawn_from_warn_and_do_nothing():
    image = mx.nd.zeros((8, 8, 3))
    for kind, given in (
        (I.DetRandomCropAug, {"area_range": (0.9, 0.1)}),
        (I.DetRandomCropAug, {"aspect_ratio_range": 0}),
        (I.DetRandomPadAug, {"area_range": (0.1, 1.0)}),
        (I.DetRandomPadAug, {"aspect_ratio_range": (2, 1)}),
    ):
        with pytest.warns(UserWarning, match="does nothing"):
            change = kind(**given)
        assert change(image, OBJECTS)[0] is image
    found, objects = I.DetRandomSelectAug([])(image, OBJECTS)
    assert found is image
    assert objects is OBJECTS


def test_crops_have_the_area_and_the_aspect_that_were_asked_for():
    image, label = mx.nd.zeros((61, 97, 3)), np.array([[0, 0.0, 0.0, 1.0, 1.0]])
    least, most = 0.01, 0.053  # the greatest height is rounded up, and too much
    crop = I.DetRandomCropAug(0.0, (1.7, 1.7), (least, most), 0.0, 20)
    sizes = {crop(image, label)[0].shape[:2] for _ in range(300)} - {image.shape[:2]}
    assert len(sizes) > 1
    for height, width in sizes:
        assert width == round(height * 1.7)
        assert least <= height * width / (61 * 97) <= most
