"""`CreateAugmenter`, `CreateDetAugmenter`: the usual lists of augmenters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import ArgumentError
from ..ndarray import NDArray, array
from ..ops.image.color import EIGENVALUES, EIGENVECTORS
from .augment import (
    Augmenter,
    CastAug,
    CenterCropAug,
    ColorJitterAug,
    ColorNormalizeAug,
    ForceResizeAug,
    HorizontalFlipAug,
    HueJitterAug,
    LightingAug,
    RandomCropAug,
    RandomGrayAug,
    RandomSizedCropAug,
    ResizeAug,
)
from .det_augment import (
    DetAugmenter,
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)

MEAN = (123.68, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)


def CreateAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """Return the usual list of augmenters for classification.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: new length of the shorter edge in pixels, before other changes; 0 does not resize.
        rand_crop: if True, images are cropped at a random position, otherwise at the center.
        rand_resize: if True, a random area with a random aspect ratio is cropped; needs `rand_crop`.
        rand_mirror: if True, images are mirrored with probability 0.5.
        mean: value to subtract, (3,) or (1,); True for the mean of ImageNet.
        std: value to divide by, (3,) or (1,); True for the standard deviation of ImageNet.
        brightness: largest relative change of brightness.
        contrast: the same for contrast.
        saturation: the same for saturation.
        hue: largest change of hue, in half turns of the color circle.
        pca_noise: standard deviation of noise along the principal axes of colors.
        rand_gray: probability of making an image grey.
        inter_method: as for `imresize`.

    Raises:
        ArgumentError: `rand_resize` is set without `rand_crop`, or `mean` or `std` has another shape.

    Example:
        >>> augs = mx.image.CreateAugmenter((3, 224, 224), resize=256, rand_mirror=True, mean=True, std=True)
    """
    changes: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    size = data_shape[2], data_shape[1]
    if rand_resize:
        if not rand_crop:
            raise ArgumentError("CreateAugmenter: rand_resize is True, but rand_crop is not; set both")
        changes.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    elif rand_crop:
        changes.append(RandomCropAug(size, inter_method))
    else:
        changes.append(CenterCropAug(size, inter_method))
    if rand_mirror:
        changes.append(HorizontalFlipAug(0.5))
    changes.append(CastAug())
    changes += color_changes(brightness, contrast, saturation, hue, pca_noise, rand_gray)
    return changes + normalization("CreateAugmenter", mean, std)


def color_changes(
    brightness: float, contrast: float, saturation: float, hue: float, pca_noise: float, rand_gray: float
) -> list[Augmenter]:
    """Return augmenters for the nonzero changes of color."""
    changes: list[Augmenter] = []
    if brightness or contrast or saturation:
        changes.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        changes.append(HueJitterAug(hue))
    if pca_noise > 0:
        changes.append(LightingAug(pca_noise, np.array(EIGENVALUES), np.array(EIGENVECTORS)))
    if rand_gray > 0:
        changes.append(RandomGrayAug(rand_gray))
    return changes


def normalization(
    owner: str, mean: Any, std: Any, make: Callable[[tuple[float, ...]], Any] = array
) -> list[Augmenter]:
    """Return an augmenter for `mean` and `std`, unless both are None; `make` converts the constants of ImageNet."""
    mean, std = make(MEAN) if mean is True else mean, make(STD) if std is True else std
    for name, value in (("mean", mean), ("std", std)):
        if value is None:
            continue
        if not isinstance(value, (NDArray, np.ndarray)) or value.shape[:1] not in ((1,), (3,)):
            raise ArgumentError(f"{owner}: {name} is {value!r}, expected True or an array of 1 or 3 numbers")
    return [] if mean is None and std is None else [ColorNormalizeAug(mean, std)]


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """Return an augmenter that crops with one of several rules, chosen at random.

    Each argument is one value for all rules, or a list with one value per rule.

    Args:
        min_object_covered: as for `DetRandomCropAug`.
        aspect_ratio_range: as for `DetRandomCropAug`.
        area_range: as for `DetRandomCropAug`.
        min_eject_coverage: as for `DetRandomCropAug`.
        max_attempts: as for `DetRandomCropAug`.
        skip_prob: probability of not cropping.

    Raises:
        ArgumentError: the lists have different lengths.
    """
    arguments = {
        "min_object_covered": min_object_covered,
        "aspect_ratio_range": aspect_ratio_range,
        "area_range": area_range,
        "min_eject_coverage": min_eject_coverage,
        "max_attempts": max_attempts,
    }
    lists = {name: value if isinstance(value, list) else [value] for name, value in arguments.items()}
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
    """Return the usual list of augmenters for detection.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: new length of the shorter edge in pixels, before other changes; 0 does not resize.
        rand_crop: probability of cropping.
        rand_pad: probability of a border.
        rand_gray: probability of making an image grey.
        rand_mirror: if True, images are mirrored with probability 0.5.
        mean: value to subtract, (3,) or (1,); True for the mean of ImageNet.
        std: value to divide by, (3,) or (1,); True for the standard deviation of ImageNet.
        brightness: largest relative change of brightness.
        contrast: the same for contrast.
        saturation: the same for saturation.
        pca_noise: standard deviation of noise along the principal axes of colors.
        hue: largest change of hue, in half turns of the color circle.
        inter_method: as for `imresize`.
        min_object_covered: as for `CreateMultiRandCropAugmenter`.
        aspect_ratio_range: the same; also the range for the larger image with `rand_pad`.
        area_range: the same; also the largest area with `rand_pad`.
        min_eject_coverage: as for `CreateMultiRandCropAugmenter`.
        max_attempts: the same; also the attempts with `rand_pad`.
        pad_val: color of the border.

    Raises:
        ArgumentError: `mean` or `std` has another shape, or the lists have different lengths.
    """
    changes: list[DetAugmenter] = []
    if resize > 0:
        changes.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        rules = min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts
        changes.append(CreateMultiRandCropAugmenter(*rules, skip_prob=1 - rand_crop))
    if rand_mirror:
        changes.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:  # after the crop, since a large border makes objects small
        border = DetRandomPadAug(aspect_ratio_range, (1.0, area_range[1]), max_attempts, pad_val)
        changes.append(DetRandomSelectAug([border], 1 - rand_pad))
    simple = [ForceResizeAug((data_shape[2], data_shape[1]), inter_method), CastAug()]
    simple += color_changes(brightness, contrast, saturation, hue, pca_noise, rand_gray)
    simple += normalization("CreateDetAugmenter", mean, std, np.array)
    return changes + [DetBorrowAug(each) for each in simple]
