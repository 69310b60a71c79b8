"""Drawing objects into images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import MXNetError
from ..ndarray import NDArray

_MEAN = (123.68, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)

Pixels = np.ndarray[Any, Any]


def to_pixels(image: Pixels, mean: Any, std: Any, clip: bool) -> Pixels:
    """Undo a normalization and return pixels, uint8."""
    image = image.astype(np.float32)
    for value, imagenet, combine in ((std, _STD, np.multiply), (mean, _MEAN, np.add)):
        if value is not None:
            factor = value.asnumpy() if isinstance(value, NDArray) else value
            image = combine(image, np.asarray(imagenet if value is True else factor, np.float32))
    if clip:
        image = image.clip(0, 255)
    return image.astype(np.int64).astype(np.uint8)


def draw_objects(
    image: Pixels, objects: Pixels, color: Any, thickness: int, names: dict[int, str] | None
) -> Pixels:
    """Draw boxes, and the names of their classes, into a copy of an image.

    Shape:
        image: (H, W, 3), uint8.
        objects: (N, 5 or more): class, left, top, right, bottom as parts of the image's edges.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MXNetError(
            "boxes are drawn by Pillow, which is not installed; install it with: pip install 'dpmodule[image]'"
        ) from error
    picture = Image.fromarray(image)
    brush = ImageDraw.Draw(picture)
    height, width = image.shape[:2]
    for row in objects:
        if row[1] < 0:
            continue
        left, top, right, bottom = (int(v * s) for v, s in zip(row[1:5], (width, height) * 2, strict=True))
        ink = tuple(int(c) for c in (np.random.rand(3) * 255 if color is None else color))
        brush.rectangle((left, top, right, bottom), outline=ink, width=thickness)
        if names is not None and int(row[0]) in names:
            brush.text((left + 5, top + 5), names[int(row[0])], fill=(255, 255, 255))
    return np.array(picture)
