"""Object labels as rows: class, then left, top, right, bottom relative to the image size, then other values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import FileFormatError

Labels = np.ndarray[Any, Any]

Box = tuple[float, float, float, float]
"""Left, top, width and height, relative to the image size."""


def parse_objects(labels: Labels) -> tuple[Labels, Labels]:
    """Return the header of flat labels, and the objects with positive area.

    Args:
        labels: ``header width, object width, more header ..., objects ...``.
    """
    count = labels.size
    if count < 7:
        raise FileFormatError(f"{count} labels, expected a header of 2 and objects of 5")
    head, width = int(labels[0]), int(labels[1])
    if head < 2 or width < 5 or head > count or (count - head) % width:
        raise FileFormatError(
            f"{count} labels with a header of {head} and objects of {width}; expected at least 2 and 5, "
            "and whole objects"
        )
    rows = labels[head:].reshape(-1, width).astype(np.float32)
    return labels[:head], rows[has_area(rows)]


def has_area(rows: Labels) -> Labels:
    """Return a mask of the objects with positive area."""
    mask: Labels = (rows[:, 3] > rows[:, 1]) & (rows[:, 4] > rows[:, 2])
    return mask


def mirror_objects(rows: Labels) -> None:
    """Mirror objects horizontally, in place."""
    left = rows[:, 1].copy()
    rows[:, 1] = 1.0 - rows[:, 3]
    rows[:, 3] = 1.0 - left


def areas(rows: Labels) -> Labels:
    """Return the areas of objects; 0 if right < left or bottom < top."""
    return _product_of_sides(rows[:, 1:3], rows[:, 3:5])


def common_areas(rows: Labels, low: Any, high: Any) -> Labels:
    """Return each object's intersection area with the box from `low`, (left, top), to `high`, (right, bottom)."""
    return _product_of_sides(np.maximum(rows[:, 1:3], low), np.minimum(rows[:, 3:5], high))


def _product_of_sides(low: Labels, high: Labels) -> Labels:
    sides = np.maximum(0, high - low)
    products: Labels = sides[:, 0] * sides[:, 1]
    return products


def project(rows: Labels, box: Box) -> Labels:
    """Return objects with coordinates relative to a box, clipped to it."""
    x, y, width, height = box
    out = rows.copy()
    out[:, 1] = np.maximum(0, (rows[:, 1] - x) / width)
    out[:, 2] = np.maximum(0, (rows[:, 2] - y) / height)
    out[:, 3] = np.minimum(1, (rows[:, 3] - x) / width)
    out[:, 4] = np.minimum(1, (rows[:, 4] - y) / height)
    return out
