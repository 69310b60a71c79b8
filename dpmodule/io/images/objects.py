"""The labels of a detection image: a header and one row per object."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import FileFormatError

Array = np.ndarray[Any, Any]

Box = tuple[float, float, float, float]
"""Left edge, upper edge, width and height, as parts of the image's."""


class Objects:
    """Objects of an image: class, left, top, right, bottom, and whatever follows.

    Args:
        labels: ``header width, object width, more header ..., objects ...``, flat.
    """

    def __init__(self, labels: Array) -> None:
        if len(labels) < 7:
            raise FileFormatError(
                f"{len(labels)} labels, a detection label has a header of 2 and objects of 5"
            )
        head, width = int(labels[0]), int(labels[1])
        if head < 2 or width < 5 or head > len(labels) or (len(labels) - head) % width:
            raise FileFormatError(
                f"{len(labels)} labels with a header of {head} and objects of {width}; expected at least 2 and 5, "
                "and whole objects"
            )
        self._head = labels[:head]
        rows = labels[head:].reshape(-1, width).astype(np.float32)
        self.rows = rows[(rows[:, 3] > rows[:, 1]) & (rows[:, 4] > rows[:, 2])]

    def flat(self) -> Array:
        """Return the labels in the form they came in."""
        return np.concatenate([self._head, self.rows.reshape(-1)]).astype(np.float32)

    def mirror(self) -> None:
        """Mirror the objects left to right."""
        left = self.rows[:, 1].copy()
        self.rows[:, 1] = 1 - self.rows[:, 3]
        self.rows[:, 3] = 1 - left

    def project(self, box: Box) -> None:
        """Give the objects' places within a box, cut at its edges."""
        self.rows = _projected(self.rows, box)

    def try_crop(self, box: Box, limits: Array, by_center: bool, threshold: float) -> bool:
        """Crop to a box if it meets the limits and keeps an object; say whether it did.

        Args:
            limits: smallest and largest overlap, part of the crop, part of the object, (3, 2).
            by_center: whether objects stay whose center is inside, rather than those that overlap enough.
            threshold: the part of an object that has to be inside otherwise.
        """
        if not len(self.rows):
            return True
        common = _common(self.rows, box)
        areas = (self.rows[:, 3] - self.rows[:, 1]) * (self.rows[:, 4] - self.rows[:, 2])
        crop = box[2] * box[3]
        if (limits[:, 0] > 0).all() and (limits[:, 1] < 1).all():  # MXNet looks only if all are set
            found = np.stack([common / (crop + areas - common), common / crop, common / areas])
            if not ((found >= limits[:, :1]) & (found <= limits[:, 1:])).all(0).any():
                return False
        if by_center:
            x, y = (self.rows[:, 1] + self.rows[:, 3]) / 2, (self.rows[:, 2] + self.rows[:, 4]) / 2
            kept = (x >= box[0]) & (x < box[0] + box[2]) & (y >= box[1]) & (y < box[1] + box[3])
        else:
            kept = common / areas > threshold
        if not kept.any():
            return False
        self.rows = _projected(self.rows[kept], box)
        return True


def _common(rows: Array, box: Box) -> Array:
    """Return the area that each object shares with a box."""
    x, y, width, height = box
    across = np.minimum(rows[:, 3], x + width) - np.maximum(rows[:, 1], x)
    down = np.minimum(rows[:, 4], y + height) - np.maximum(rows[:, 2], y)
    area: Array = np.maximum(across, 0) * np.maximum(down, 0)
    return area


def _projected(rows: Array, box: Box) -> Array:
    x, y, width, height = box
    out = rows.copy()
    out[:, 1] = np.maximum(0, (rows[:, 1] - x) / width)
    out[:, 2] = np.maximum(0, (rows[:, 2] - y) / height)
    out[:, 3] = np.minimum(1, (rows[:, 3] - x) / width)
    out[:, 4] = np.minimum(1, (rows[:, 4] - y) / height)
    return out
