"""Normalization of 8-bit pixels to the numbers of a batch: mirror, mean, standard deviation, scale."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ... import native
from ...base import FileFormatError
from ...context import cpu
from ...ndarray import NDArray, load, save
from ...recordio import unpack
from ..std_random import StdRandom

if TYPE_CHECKING:
    from ..data_iter import OptionValues
    from .pipeline import RecordSource

_logger = logging.getLogger(__name__)


class MeanImage:
    """Image that is subtracted from every other.

    Args:
        path: file of an array saved by `nd.save`; may be empty.

    Attributes:
        values: (C, H, W); None if not computed yet.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: torch.Tensor | None = None
        if path and os.path.exists(path):
            self.values = self._load()

    def _load(self) -> torch.Tensor:
        saved = load(self.path)
        arrays = list(saved.values()) if isinstance(saved, dict) else saved
        if len(arrays) != 1 or arrays[0].ndim != 3:
            raise FileFormatError(
                f"{self.path}: expected one array of three axes as the mean image, found {len(arrays)} arrays"
            )
        values: torch.Tensor = arrays[0].raw.float()
        return values

    @property
    def wanted(self) -> bool:
        """True if there is a path without a file."""
        return bool(self.path) and self.values is None

    def of_shape(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the values, which must exist, after checking their shape."""
        values: torch.Tensor = self.values  # type: ignore[assignment]
        if values.shape != shape:
            raise FileFormatError(
                f"{self.path}: the mean image has shape {tuple(values.shape)}, but images have {tuple(shape)}"
            )
        return values

    def compute(self, records: RecordSource, shape: tuple[int, ...], put: Callable[..., Any]) -> None:
        """Compute the mean of all augmented images, and save it.

        Args:
            put: function ``(header, file, number, image)`` that decodes a record into `image`.
        """
        total, count = torch.zeros(shape, dtype=torch.float64), 0
        for location in records.begin():
            image = torch.zeros(shape, dtype=torch.float32)
            put(*unpack(location.read()), count, image)
            total += image
            count += 1
        self.values = (total / max(count, 1)).float()
        save(self.path, {"mean_img": NDArray(self.values, cpu())})
        _logger.info("saved the mean of %d images as %s", count, self.path)


def per_channel(o: OptionValues, kind: str) -> torch.Tensor:
    """Return the "mean" or "std" of each channel, (C, 1, 1)."""
    values = [getattr(o, f"{kind}_{channel}") for channel in "rgba"]
    return torch.tensor(values[: o.data_shape[0]], dtype=torch.float32).view(-1, 1, 1)


class Normalizer:
    """Conversion of pixels to the numbers of a batch."""

    def __init__(self, o: OptionValues, mean: MeanImage) -> None:
        self._o, self._mean = o, mean
        self._center, self._std = per_channel(o, "mean"), per_channel(o, "std")

    def put(self, image: torch.Tensor, rng: StdRandom, out: torch.Tensor) -> None:
        """Write an image to the batch.

        Shape:
            image: (H, W, C), uint8.
            out: (C, H, W).
        """
        o = self._o
        mirrored = bool((o.rand_mirror and rng.coin()) or o.mirror)
        if out.dtype is torch.float32 and self._mean.values is None and native.core is not None:
            self._put_natively(image, mirrored, rng, out)
            return
        pixels = image.permute(2, 0, 1)
        if mirrored:
            pixels = pixels.flip(2)
        if out.dtype is torch.uint8:
            out.copy_(pixels)
            return
        contrast, light = self._drawn(rng)
        center = self._center if self._mean.values is None else self._mean.of_shape(pixels.shape)
        if out.dtype is torch.int8:
            rounded = center.sign() * (center.abs() + 0.5).floor()
            out.copy_((pixels - rounded).clamp_(-128, 127))
            return
        out.copy_(pixels).sub_(center).mul_(contrast / self._std)
        if light:
            out.add_(light / self._std)

    def _drawn(self, rng: StdRandom) -> tuple[float, float]:
        """Draw the contrast of an image and the offset of its values."""
        o = self._o
        contrast = (rng.uniform() * o.max_random_contrast * 2 - o.max_random_contrast + 1) * o.scale
        light = (rng.uniform() * o.max_random_illumination * 2 - o.max_random_illumination) * o.scale
        return contrast, light

    def _put_natively(self, image: torch.Tensor, mirrored: bool, rng: StdRandom, out: torch.Tensor) -> None:
        """Write an image to the batch with the extension: the same numbers, in one pass without the GIL."""
        contrast, light = self._drawn(rng)
        if image.stride(2) != 1:
            image = image.contiguous()
        factor = contrast / self._std
        core: Any = native.core
        core.put_pixels(
            *out.shape,
            image.data_ptr(),
            image.stride(0),
            image.stride(1),
            mirrored,
            self._center.data_ptr(),
            factor.data_ptr(),
            out.data_ptr(),
        )
        if light:
            out.add_(light / self._std)
