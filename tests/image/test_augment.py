import json
import random

import numpy as np
import pytest

import dpmodule as mx
from helpers.pictures import FOLDER, goldens, options

I = mx.image  # noqa: E741
OBJECTS = np.array([[0, 0.1, 0.2, 0.5, 0.8], [3, 0.4, 0.3, 0.9, 0.95]], "f4")


def seeded(seed):
    random.seed(seed)
    np.random.seed(seed)


@pytest.mark.parametrize("which", range(2))
@pytest.mark.parametrize("seed", range(3))
def test_changes_are_mxnets_under_the_same_seeds(which, seed):
    changes = I.CreateAugmenter((3, 12, 14), **options()["change"][which])
    dumped = json.dumps([change.dumps() for change in changes])
    assert dumped == str(goldens()[f"change/{which}/dumps"])
    seeded(seed)
    found = I.imread(FOLDER / "wide.png")
    for change in changes:
        found = change(found)
    np.testing.assert_allclose(found.asnumpy(), goldens()[f"change/{which}/{seed}"], atol=2e-3)


@pytest.mark.parametrize("which", range(2))
@pytest.mark.parametrize("seed", range(4))
def test_changes_of_objects_are_mxnets_under_the_same_seeds(which, seed):
    given = dict(options()["detchange"][which])
    for name in {"aspect_ratio_range", "area_range"} & set(given):
        given[name] = tuple(given[name])  # a list would be one per rule
    changes = I.CreateDetAugmenter((3, 12, 14), **given)
    dumped = json.dumps([change.dumps() for change in changes])
    assert dumped == str(goldens()[f"detchange/{which}/dumps"])
    seeded(seed)
    found, objects = I.imread(FOLDER / "wide.png"), OBJECTS.copy()
    for change in changes:
        found, objects = change(found, objects)
    np.testing.assert_allclose(found.asnumpy(), goldens()[f"detchange/{which}/{seed}"], atol=2e-3)
    np.testing.assert_allclose(objects, goldens()[f"detchange/{which}/{seed}/label"], atol=1e-5)


def test_random_sizes_take_the_old_name():
    with pytest.warns(DeprecationWarning, match="min_area"):
        assert I.RandomSizedCropAug((4, 4), 1.0, (1, 1), min_area=0.5).area == 0.5


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
