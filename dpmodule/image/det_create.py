"""`CreateDetAugmenter`: a usual list of changes to images with objects from a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import ArgumentError
from .augment import CastAug, ForceResizeAug, ResizeAug
from .create import color_changes, normalization
from .det_augment import (
    DetAugmenter,
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """Make a change that crops by one of several rules, chosen at random.

    Each argument of a rule is one value for all rules, or a list with one per rule.

    Args:
        min_object_covered: as for `DetRandomCropAug`.
        aspect_ratio_range: as for `DetRandomCropAug`.
        area_range: as for `DetRandomCropAug`.
        min_eject_coverage: as for `DetRandomCropAug`.
        max_attempts: as for `DetRandomCropAug`.
        skip_prob: probability of not cropping.

    Raises:
        ArgumentError: lists of different lengths.
    """
    given = {
        "min_object_covered": min_object_covered,
        "aspect_ratio_range": aspect_ratio_range,
        "area_range": area_range,
        "min_eject_coverage": min_eject_coverage,
        "max_attempts": max_attempts,
    }
    lists = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    count = max(map(len, lists.values()))
    for name, values in lists.items():
        if len(values) not in (1, count):
            raise ArgumentError(
                f"CreateMultiRandCropAugmenter: {name} has {len(values)} values, expected 1 or {count}"
            )
    rules = [
        DetRandomCropAug(**{name: values[i % len(values)] for name, values in lists.items()})
        for i in range(count)
    ]
    return DetRandomSelectAug(rules, skip_prob=skip_prob)


def CreateDetAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """Make the usual list of changes for detection.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: length in pixels that the shorter edge gets first; 0 for none.
        rand_pad: probability of a border.
        rand_gray: probability of making an image grey.
        rand_mirror: whether every other image, at random, is mirrored.
        mean: what to subtract, (3,) or (1,); True for the mean of ImageNet.
        std: what to divide by, (3,) or (1,); True for the deviation of ImageNet.
        brightness: change brightness by a factor of up to 1 +- this.
        contrast: the same for contrast.
        saturation: the same for saturation.
        pca_noise: standard deviation of noise along the colors' principal axes.
        hue: change hue by up to this, in half turns of the color circle.
        inter_method: as for `imresize`.
        min_object_covered: as for `CreateMultiRandCropAugmenter`.
        aspect_ratio_range: the same, and of the larger image under `rand_pad`.
        area_range: the same, and the largest area under `rand_pad`.
        min_eject_coverage: as for `CreateMultiRandCropAugmenter`.
        max_attempts: the same, and of sizes under `rand_pad`.
        pad_val: color of the border.

    Raises:
        ArgumentError: a mean or deviation of another form, or lists of different lengths.
    """
    changes: list[DetAugmenter] = []
    if resize > 0:
        changes.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        rules = min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts
        changes.append(CreateMultiRandCropAugmenter(*rules, skip_prob=1 - rand_crop))
    if rand_mirror:
        changes.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:  # after the crop: a large border makes objects small
        border = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        changes.append(DetRandomSelectAug([border], 1 - rand_pad))
    simple = [ForceResizeAug((data_shape[2], data_shape[1]), inter_method), CastAug()]
    simple += color_changes(brightness, contrast, saturation, hue, pca_noise, rand_gray)
    simple += normalization("CreateDetAugmenter", mean, std, np.array)
    return changes + [DetBorrowAug(each) for each in simple]
