"""`CreateAugmenter`: a usual list of changes from a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import ArgumentError
from ..ndarray import NDArray, array
from .augment import (
    Augmenter,
    CastAug,
    CenterCropAug,
    HorizontalFlipAug,
    RandomCropAug,
    RandomSizedCropAug,
    ResizeAug,
)
from .color import ColorJitterAug, ColorNormalizeAug, HueJitterAug, LightingAug, RandomGrayAug

_MEAN = (123.68, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)
_EIGVAL = (55.46, 4.794, 1.148)
_EIGVEC = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))


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
    """Make the usual list of changes for classification.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: length in pixels that the shorter edge gets first; 0 for none.
        rand_crop: whether images are cut at a random place, not in the middle.
        rand_resize: whether a random area of random aspect is cut; needs `rand_crop`.
        rand_mirror: whether every other image, at random, is mirrored.
        mean: what to subtract, (3,) or (1,); True for the mean of ImageNet.
        std: what to divide by, (3,) or (1,); True for the deviation of ImageNet.
        brightness: change brightness by a factor of up to 1 +- this.
        contrast: the same for contrast.
        saturation: the same for saturation.
        hue: change hue by up to this, in half turns of the color circle.
        pca_noise: standard deviation of noise along the colors' principal axes.
        rand_gray: probability of making an image grey.
        inter_method: as for `imresize`.

    Raises:
        ArgumentError: `rand_resize` without `rand_crop`, or a mean or deviation of another form.

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
    """Return those changes of color that are not zero."""
    changes: list[Augmenter] = []
    if brightness or contrast or saturation:
        changes.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        changes.append(HueJitterAug(hue))
    if pca_noise > 0:
        changes.append(LightingAug(pca_noise, np.array(_EIGVAL), np.array(_EIGVEC)))
    if rand_gray > 0:
        changes.append(RandomGrayAug(rand_gray))
    return changes


def normalization(
    owner: str, mean: Any, std: Any, make: Callable[[tuple[float, ...]], Any] = array
) -> list[Augmenter]:
    """Return the change that subtracts `mean` and divides by `std`, if there are any; `make` makes ImageNet's."""
    mean, std = make(_MEAN) if mean is True else mean, make(_STD) if std is True else std
    for name, value in (("mean", mean), ("std", std)):
        if value is None:
            continue
        if not isinstance(value, (NDArray, np.ndarray)) or value.shape[:1] not in ((1,), (3,)):
            raise ArgumentError(f"{owner}: {name} is {value!r}, expected True or an array of 1 or 3 numbers")
    return [] if mean is None and std is None else [ColorNormalizeAug(mean, std)]
