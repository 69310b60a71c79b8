"""Objects of an image as rows: class, left, top, right, bottom as parts of the image's edges, and whatever follows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import FileFormatError

Labels = np.ndarray[Any, Any]

Box = tuple[float, float, float, float]
"""Left edge, upper edge, width and height, as parts of the image's."""


def parse_objects(labels: Labels) -> tuple[Labels, Labels]:
    """Return the header of flat labels, and the objects that have an area.

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
    """Say of each object whether it has an area."""
    found: Labels = (rows[:, 3] > rows[:, 1]) & (rows[:, 4] > rows[:, 2])
    return found


def mirror_objects(rows: Labels) -> None:
    """Mirror objects left to right, in place."""
    left = rows[:, 1].copy()
    rows[:, 1] = 1.0 - rows[:, 3]
    rows[:, 3] = 1.0 - left


def areas(rows: Labels) -> Labels:
    """Return the areas of objects, 0 where right or bottom come first."""
    return _product_of_sides(rows[:, 1:3], rows[:, 3:5])


def common_areas(rows: Labels, low: Any, high: Any) -> Labels:
    """Return the area that each object shares with the box from `low`, (left, top), to `high`, (right, bottom)."""
    return _product_of_sides(np.maximum(rows[:, 1:3], low), np.minimum(rows[:, 3:5], high))


def _product_of_sides(low: Labels, high: Labels) -> Labels:
    sides = np.maximum(0, high - low)
    found: Labels = sides[:, 0] * sides[:, 1]
    return found


def project(rows: Labels, box: Box) -> Labels:
    """Return objects with their places within a box, cut at its edges."""
    x, y, width, height = box
    out = rows.copy()
    out[:, 1] = np.maximum(0, (rows[:, 1] - x) / width)
    out[:, 2] = np.maximum(0, (rows[:, 2] - y) / height)
    out[:, 3] = np.minimum(1, (rows[:, 3] - x) / width)
    out[:, 4] = np.minimum(1, (rows[:, 4] - y) / height)
    return out
