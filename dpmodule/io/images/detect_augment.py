"""Random augmentation of images with objects: color, mirror, border, crop, size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...base import ArgumentError
from ...ops.image.color import scale_pixels, shift_hls
from ...ops.image.detection_labels import (
    Box,
    Labels,
    areas,
    common_areas,
    mirror_objects,
    parse_objects,
    project,
)
from ...ops.image.geometry import make_border
from ...ops.image.resize import pick_method
from ..std_random import StdRandom
from .augment import resized, shorter_edge, with_alpha

if TYPE_CHECKING:
    from ..data_iter import OptionValues


class Objects:
    """Objects of an image.

    Args:
        labels: as for `parse_objects`.
    """

    def __init__(self, labels: Labels) -> None:
        self._head, self.rows = parse_objects(labels)

    def flat(self) -> Labels:
        """Return the labels in their original format."""
        return np.concatenate([self._head, self.rows.reshape(-1)]).astype(np.float32)

    def try_crop(self, box: Box, limits: Labels, by_center: bool, threshold: float) -> bool:
        """Crop to a box if it meets the limits and keeps an object; return True if cropped.

        Args:
            limits: smallest and largest overlap, fraction of the crop and fraction of the object, (3, 2).
            by_center: if True, objects with their center inside stay, otherwise objects that overlap enough.
            threshold: smallest fraction of an object inside, if not `by_center`.
        """
        if not len(self.rows):
            return True
        x, y, width, height = box
        common = common_areas(
            self.rows, np.array((x, y), np.float32), np.array((x + width, y + height), np.float32)
        )
        own, crop = areas(self.rows), width * height
        if (limits[:, 0] > 0).all() and (limits[:, 1] < 1).all():  # MXNet checks only if all are set
            ratios = np.stack([common / (crop + own - common), common / crop, common / own])
            if not ((ratios >= limits[:, :1]) & (ratios <= limits[:, 1:])).all(0).any():
                return False
        if by_center:
            across, down = (self.rows[:, 1] + self.rows[:, 3]) / 2, (self.rows[:, 2] + self.rows[:, 4]) / 2
            kept = (across >= x) & (across < x + width) & (down >= y) & (down < y + height)
        else:
            kept = common / own > threshold
        if not kept.any():
            return False
        self.rows = project(self.rows[kept], box)
        return True


_SAMPLED = ("scales", "aspect_ratios", "overlaps", "sample_coverages", "object_coverages")


def check_samplers(owner: str, o: OptionValues) -> None:
    """Expand the options to one number per crop sampler, and check them."""
    names = [f"{end}_crop_{name}" for name in _SAMPLED for end in ("min", "max")] + ["max_crop_trials"]
    for name in names:
        values = getattr(o, name)
        if len(values) == 1:
            values = values * o.num_crop_sampler
        if len(values) != o.num_crop_sampler:
            raise ArgumentError(f"{owner}: {name} is {values}, expected 1 or {o.num_crop_sampler} numbers")
        setattr(o, name, values)
    for name in _SAMPLED:
        lows, highs = getattr(o, f"min_crop_{name}"), getattr(o, f"max_crop_{name}")
        if any(low > high for low, high in zip(lows, highs, strict=True)):
            raise ArgumentError(f"{owner}: min_crop_{name} {lows} is above max_crop_{name} {highs}")
    if any(low < 0 for low in o.min_crop_scales) or any(high > 1 for high in o.max_crop_scales):
        raise ArgumentError(
            f"{owner}: crop scales are {o.min_crop_scales} to {o.max_crop_scales}, expected 0 to 1"
        )
    pick_method(o.inter_method, (1, 1), (1, 1))


def augment_objects(image: torch.Tensor, objects: Objects, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Augment an image and its objects by the options.

    Shape:
        image: (H, W, C), uint8.
        returns: `o.data_shape` as (height, width, C), or smaller unless `resize_mode` is "force".

    Source: the default augmenter for detection of MXNet 1.9.1, with the same random numbers in the same order.
    """
    if o.resize != -1:
        image = shorter_edge(image, o.resize, o.inter_method, rng)
    if image.shape[2] >= 3:
        image = _recolored(image, o, rng)
    if o.rand_mirror_prob > 0 and rng.uniform() < o.rand_mirror_prob:
        mirror_objects(objects.rows)
        image = image.flip(1)
    if o.rand_pad_prob > 0 and o.max_pad_scale > 1 and rng.uniform() < o.rand_pad_prob:
        image = _padded(image, objects, o, rng)
    if o.rand_crop_prob > 0 and o.num_crop_sampler > 0 and rng.uniform() < o.rand_crop_prob:
        image = _cropped(image, objects, o, rng)
    return _fitted(image, o, rng)


def _recolored(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    chances = (
        o.random_hue_prob,
        o.random_saturation_prob,
        o.random_illumination_prob,
        o.random_contrast_prob,
    )
    if not any(chance > 0 for chance in chances):
        return image
    most = o.max_random_hue, o.max_random_saturation, o.max_random_illumination, o.max_random_contrast
    amounts = [rng.uniform(-1, 1) * limit for limit in most]
    h, s, light, contrast = (
        amount if rng.uniform() < chance else 0 for amount, chance in zip(amounts, chances, strict=True)
    )
    color = image[:, :, :3]
    if int(h) or int(s) or int(light):
        color = shift_hls(color, int(h), int(light), int(s))
    if abs(contrast) > 1e-3:
        color = scale_pixels(color, contrast + 1)
    return with_alpha(image, color)


def _padded(image: torch.Tensor, objects: Objects, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Place an image at a random position in a larger one."""
    scale = rng.uniform(1, o.max_pad_scale)
    if scale < 1.05:
        return image
    x, y = rng.uniform(0, scale - 1), rng.uniform(0, scale - 1)
    objects.rows = project(objects.rows, (-x, -y, scale, scale))
    height, width = image.shape[:2]
    across = int(x * width), int((scale - x - 1) * width)
    down = int(y * height), int((scale - y - 1) * height)
    return make_border(image, *down, *across, values=(o.fill_value,) * 4)


def _cropped(image: torch.Tensor, objects: Objects, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Crop an image with the first sampler, in random order, that finds a valid crop."""
    height, width = image.shape[:2]
    for i in rng.shuffled(o.num_crop_sampler):
        limits = np.array(
            [
                (o.min_crop_overlaps[i], o.max_crop_overlaps[i]),
                (o.min_crop_sample_coverages[i], o.max_crop_sample_coverages[i]),
                (o.min_crop_object_coverages[i], o.max_crop_object_coverages[i]),
            ]
        )
        for _ in range(o.max_crop_trials[i]):
            box = _crop_box(o, i, rng, width / height)
            left, top, w, h = (
                int(fraction * edge) for fraction, edge in zip(box, (width, height) * 2, strict=True)
            )
            if w < 1 or h < 1:
                continue
            if objects.try_crop(box, limits, o.crop_emit_mode == "center", o.emit_overlap_thresh):
                return image[top : top + h, left : left + w]
    return image


def _crop_box(o: OptionValues, i: int, rng: StdRandom, aspect: float) -> Box:
    scale = rng.uniform(o.min_crop_scales[i], o.max_crop_scales[i]) + 1e-12
    low = max(o.min_crop_aspect_ratios[i] / aspect, scale * scale)
    high = min(o.max_crop_aspect_ratios[i] / aspect, 1 / scale * scale)
    ratio = math.sqrt(rng.uniform(low, high))
    width, height = min(1.0, scale * ratio), min(1.0, scale / ratio)
    return rng.uniform(0, 1 - width), rng.uniform(0, 1 - height), width, height


def _fitted(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    height, width = o.data_shape[1:]
    if o.resize_mode != "force":
        scale = min(height / image.shape[0], width / image.shape[1])
        if o.resize_mode == "shrink" and scale >= 1:
            return image
        height, width = max(1, int(scale * image.shape[0])), max(1, int(scale * image.shape[1]))
    return resized(image, width, height, o.inter_method, rng)
