"""Augmenters of images with objects: mirror, crop, border."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from ..base import ArgumentError, DTypeError, numeric_types
from ..ndarray import NDArray
from ..ops.image.detection_labels import areas, common_areas, has_area, mirror_objects, project
from .augment import Augmenter, Dumpable
from .functions import copyMakeBorder, fixed_crop

_logger = logging.getLogger(__name__)

Labels = np.ndarray[Any, Any]
Changed = tuple[NDArray, Labels]
Box = tuple[int, int, int, int]
_ISOLATED = 16


class DetAugmenter(Dumpable):
    """Base class of augmenters of images and their objects.

    A subclass defines `__call__`, which may change image and labels in place.

    Args:
        **kwargs: arguments of the subclass, for `dumps`.
    """

    def __call__(self, src: NDArray, label: Labels) -> Changed:
        """Change an image, (H, W, C), and its objects, (N, 5 or more): class, left, top, right, bottom."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")


class DetBorrowAug(DetAugmenter):
    """Apply an augmenter that does not move objects.

    Raises:
        DTypeError: `augmenter` is not an `Augmenter`; a TypeError.
    """

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise DTypeError(f"DetBorrowAug: augmenter is {type(augmenter).__name__}, expected an Augmenter")
        super().__init__(augmenter=augmenter.dumps())
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: NDArray, label: Labels) -> Changed:
        """Return the changed image and its objects."""
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """Apply one of several augmenters, chosen at random, or none.

    Args:
        aug_list: list of augmenters, or one augmenter.
        skip_prob: probability of applying none.

    Raises:
        ArgumentError: an item of `aug_list` is not a `DetAugmenter`.
    """

    def __init__(self, aug_list: DetAugmenter | Sequence[DetAugmenter], skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        changes = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        for change in changes:
            if not isinstance(change, DetAugmenter):
                raise ArgumentError(f"DetRandomSelectAug: {change!r} in aug_list is not a DetAugmenter")
        self.aug_list: list[DetAugmenter] = changes  # type: ignore[assignment]
        self.skip_prob = skip_prob if changes else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [each.dumps() for each in self.aug_list]]

    def __call__(self, src: NDArray, label: Labels) -> Changed:
        """Return the changed image and its objects."""
        if random.random() < self.skip_prob:
            return src, label
        random.shuffle(self.aug_list)
        return self.aug_list[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Mirror left to right with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: Labels) -> Changed:
        """Return the changed image and its objects."""
        if random.random() < self.p:
            src = NDArray(src.raw.flip(1), src.context)
            mirror_objects(label)
        return src, label


def _span(owner: str, name: str, value: Any) -> tuple[Any, Any]:
    """Return a range as a pair; a single number is both its ends."""
    if isinstance(value, (tuple, list)):
        return value[0], value[1]
    if not isinstance(value, numeric_types):
        raise ArgumentError(f"{owner}: {name} is {value!r}, expected a number or a pair of numbers")
    _logger.info("%s: %s is always %s", owner, name, value)
    return value, value


def _is_possible(owner: str, aspect_ratio_range: Any, area_range: Any, above: float) -> bool:
    """Return True if the ranges allow drawing an area above `above` and an aspect ratio; warn if not."""
    if area_range[1] <= above or area_range[0] > area_range[1]:
        wrong = f"area_range is {area_range}"
    elif aspect_ratio_range[0] > aspect_ratio_range[1] or aspect_ratio_range[0] <= 0:
        wrong = f"aspect_ratio_range is {aspect_ratio_range}"
    else:
        return True
    warnings.warn(f"{owner} does nothing: {wrong}", stacklevel=3)
    return False


class DetRandomCropAug(DetAugmenter):
    """Crop at random, keeping enough of the objects.

    Args:
        min_object_covered: smallest fraction of each object that must be inside, among objects that overlap the crop.
        aspect_ratio_range: smallest and largest width / height of the crop.
        area_range: smallest and largest area as fractions of the image.
        min_eject_coverage: objects with a smaller fraction inside the crop are dropped.
        max_attempts: number of attempts.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        aspect_ratio_range = _span("DetRandomCropAug", "aspect_ratio_range", aspect_ratio_range)
        area_range = _span("DetRandomCropAug", "area_range", area_range)
        super().__init__(
            min_object_covered=min_object_covered,
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            min_eject_coverage=min_eject_coverage,
            max_attempts=max_attempts,
        )
        self.min_object_covered = min_object_covered
        self.min_eject_coverage = min_eject_coverage
        self.max_attempts = max_attempts
        self.aspect_ratio_range = aspect_ratio_range
        self.area_range = area_range
        self.enabled = _is_possible("DetRandomCropAug", aspect_ratio_range, area_range, 0.0)

    def __call__(self, src: NDArray, label: Labels) -> Changed:
        """Return the changed image and its objects."""
        proposal = self._proposal(label, src.shape[0], src.shape[1])
        if proposal is None:
            return src, label
        (x, y, w, h), label = proposal
        return fixed_crop(src, x, y, w, h, None), label

    def _proposal(self, label: Labels, height: int, width: int) -> tuple[Box, Labels] | None:
        """Return a crop and its objects; None if all attempts fail."""
        if not self.enabled or height <= 0 or width <= 0:
            return None
        for _ in range(self.max_attempts):
            size = self._size(height, width)
            if size is None:
                continue
            w, h = size
            y = random.randint(0, max(0, height - h))
            x = random.randint(0, max(0, width - w))
            box = (x, y, w, h)
            if self._satisfies(label, box, height, width):
                kept = self._cropped(label, box, height, width)
                if kept is not None:
                    return box, kept
        return None

    def _size(self, height: int, width: int) -> tuple[int, int] | None:
        """Draw width and height of a crop; None if they do not fit."""
        least, most = (fraction * height * width for fraction in self.area_range)
        ratio = random.uniform(*self.aspect_ratio_range)
        if ratio <= 0:
            return None
        h, max_h = round(sqrt(least / ratio)), round(sqrt(most / ratio))
        if round(max_h * ratio) > width:
            max_h = int((width + 0.4999999) / ratio)
        max_h = min(max_h, height)
        h = min(h, max_h)
        if h < max_h:
            h = random.randint(h, max_h)
        w = round(h * ratio)
        if w * h < least:
            h += 1
            w = round(h * ratio)
        if w * h > most:
            h -= 1
            w = round(h * ratio)
        fits = least <= w * h <= most and 0 <= w <= width and 0 <= h <= height
        return (w, h) if fits else None

    def _satisfies(self, label: Labels, box: Box, height: int, width: int) -> bool:
        x, y, w, h = box
        if w * h < 2:
            return False
        large = label[areas(label) * width * height > 2]
        inside = common_areas(large, (x / width, y / height), ((x + w) / width, (y + h) / height))
        covered = inside / areas(large)
        covered = covered[covered > 0]
        return bool(covered.size and covered.min() > self.min_object_covered)

    def _cropped(self, label: Labels, box: Box, height: int, width: int) -> Labels | None:
        """Return the objects of a crop; None if none remains."""
        x, y, w, h = box[0] / width, box[1] / height, box[2] / width, box[3] / height
        out = project(label, (x, y, w, h))
        with np.errstate(divide="ignore", invalid="ignore"):
            coverage = areas(out) * w * h / areas(label)
        kept = has_area(out) & (coverage > self.min_eject_coverage)
        return out[kept] if kept.any() else None


class DetRandomPadAug(DetAugmenter):
    """Place the image at a random position in a larger one.

    Args:
        aspect_ratio_range: smallest and largest width / height of the larger image.
        area_range: smallest and largest area, in areas of the image.
        max_attempts: number of attempts.
        pad_val: color of the border, a number or one per channel.
    """

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        aspect_ratio_range = _span("DetRandomPadAug", "aspect_ratio_range", aspect_ratio_range)
        area_range = _span("DetRandomPadAug", "area_range", area_range)
        if not isinstance(pad_val, (list, tuple)):
            pad_val = (pad_val,) * 3
        super().__init__(
            aspect_ratio_range=aspect_ratio_range,
            area_range=area_range,
            max_attempts=max_attempts,
            pad_val=pad_val,
        )
        self.pad_val = pad_val
        self.aspect_ratio_range = aspect_ratio_range
        self.area_range = area_range
        self.max_attempts = max_attempts
        self.enabled = _is_possible("DetRandomPadAug", aspect_ratio_range, area_range, 1.0)

    def __call__(self, src: NDArray, label: Labels) -> Changed:
        """Return the changed image and its objects."""
        height, width, _ = src.shape
        box = self._proposal(height, width)
        if box is None:
            return src, label
        x, y, w, h = box
        margins = y, h - y - height, x, w - x - width
        out = label.copy()
        out[:, (1, 3)] = (out[:, (1, 3)] * width + x) / w
        out[:, (2, 4)] = (out[:, (2, 4)] * height + y) / h
        return copyMakeBorder(src, *margins, _ISOLATED, values=tuple(self.pad_val)), out

    def _proposal(self, height: int, width: int) -> Box | None:
        """Return the position of the image in a larger one, and the larger size; None if all attempts fail."""
        if not self.enabled or height <= 0 or width <= 0:
            return None
        least, most = (fraction * height * width for fraction in self.area_range)
        for _ in range(self.max_attempts):
            ratio = random.uniform(*self.aspect_ratio_range)
            if ratio <= 0:
                continue
            h, max_h = round(sqrt(least / ratio)), round(sqrt(most / ratio))
            if round(h * ratio) < width:
                h = int((width + 0.499999) / ratio)
            h = min(max(h, height), max_h)
            if h < max_h:
                h = random.randint(h, max_h)
            w = round(h * ratio)
            if h - height >= 2 and w - width >= 2:
                y = random.randint(0, max(0, h - height))
                x = random.randint(0, max(0, w - width))
                return x, y, w, h
        return None
