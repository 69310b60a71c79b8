"""Augmenters: callable objects that change images."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..ndarray import NDArray, array
from ..ndarray.convert import jsonable
from ..ops.image.color import GREY
from .functions import (
    center_crop,
    color_normalize,
    imresize,
    interp_method,
    old_area,
    random_crop,
    random_size_crop,
    resize_short,
)


class Dumpable:
    """Base class of augmenters that saves their arguments for `dumps`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = jsonable(kwargs)

    def dumps(self) -> Any:
        """Return the name and the arguments of the class as JSON text."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])


class Augmenter(Dumpable):
    """Base class of augmenters.

    A subclass defines `__call__`, which may change the image in place.

    Args:
        **kwargs: arguments of the subclass, for `dumps`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Change an image, (H, W, C), and return it."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")


class SequentialAug(Augmenter):
    """Apply several augmenters in order."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = ts

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [each.dumps() for each in self.ts]]

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        for change in self.ts:
            src = change(src)
        return src


class RandomOrderAug(SequentialAug):
    """Apply several augmenters in a random order.

    Args:
        ts: list of augmenters, which is shuffled in place.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        random.shuffle(self.ts)  # type: ignore[arg-type]  # a list
        return super().__call__(src)


class ResizeAug(Augmenter):
    """Resize so that the shorter edge has `size` pixels.

    Args:
        size: length in pixels.
        interp: as for `imresize`.
    """

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        return resize_short(src, self.size, self.interp)


class _ToSize(Augmenter):
    """Base class of augmenters to a given width and height."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp


class ForceResizeAug(_ToSize):
    """Resize to a size, ignoring the aspect ratio.

    Args:
        size: (width, height) in pixels.
        interp: as for `imresize`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        width, height = self.size
        method = interp_method(self.interp, (*src.shape[:2], height, width))
        return imresize(src, width, height, interp=method)


class RandomCropAug(_ToSize):
    """Crop at a random position.

    Args:
        size: (width, height) in pixels.
        interp: as for `imresize`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """Crop a random area with a random aspect ratio, and resize it.

    Args:
        size: (width, height) in pixels to resize to.
        area: smallest and largest area as fractions of the image; or only the smallest.
        interp: as for `imresize`.
        **kwargs: `min_area`, an old name of `area`.

    Raises:
        ArgumentError: a keyword is unknown.
    """

    def __init__(
        self,
        size: tuple[int, int],
        area: float | tuple[float, float],
        ratio: tuple[float, float],
        interp: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size = size
        self.area = old_area("RandomSizedCropAug", area, kwargs)
        self.ratio = ratio
        self.interp = interp

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(_ToSize):
    """Crop the center.

    Args:
        size: (width, height) in pixels.
        interp: as for `imresize`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        return center_crop(src, self.size, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Mirror left to right with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        if random.random() < self.p:
            src = NDArray(src.raw.flip(1), src.context)
        return src


class CastAug(Augmenter):
    """Change the element type."""

    def __init__(self, typ: str = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        cast: NDArray = src.astype(self.typ)
        return cast


class BrightnessJitterAug(Augmenter):
    """Change the brightness at random.

    Args:
        brightness: largest difference of the factor from 1.
    """

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        src *= 1.0 + random.uniform(-self.brightness, self.brightness)
        return src


class ContrastJitterAug(Augmenter):
    """Change the contrast at random.

    Args:
        contrast: largest difference of the factor from 1.
    """

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef = array([[GREY]])

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        alpha = 1.0 + random.uniform(-self.contrast, self.contrast)
        grey = src * self.coef
        grey = (3.0 * (1.0 - alpha) / grey.size) * grey.sum()
        src *= alpha
        src += grey
        return src


class SaturationJitterAug(Augmenter):
    """Change the saturation at random.

    Args:
        saturation: largest difference of the factor from 1.
    """

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef = array([[GREY]])

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        alpha = 1.0 + random.uniform(-self.saturation, self.saturation)
        grey = (src * self.coef).sum(axis=2, keepdims=True)
        grey *= 1.0 - alpha
        src *= alpha
        src += grey
        return src


class HueJitterAug(Augmenter):
    """Change the hue at random.

    Args:
        hue: largest rotation of the color circle in either direction, in half turns.

    Source: MXNet 1.9.1 `HueJitterAug`, a rotation in the YIQ color space.
    """

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue
        self.tyiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
        self.ityiq = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        alpha = random.uniform(-self.hue, self.hue)
        u, w = np.cos(alpha * np.pi), np.sin(alpha * np.pi)
        rotation = np.array([[1.0, 0.0, 0.0], [0.0, u, -w], [0.0, w, u]])
        return _mixed(src, (self.ityiq @ rotation @ self.tyiq).T)


def _mixed(src: NDArray, matrix: Any) -> NDArray:
    """Multiply every color by a matrix on its right."""
    table = torch.as_tensor(matrix, dtype=src.raw.dtype, device=src.raw.device)
    return NDArray(src.raw @ table, src.context)


class ColorJitterAug(RandomOrderAug):
    """Change brightness, contrast and saturation at random, in a random order.

    Args:
        brightness: largest difference of its factor from 1; 0 leaves it unchanged.
        contrast: as `brightness`.
        saturation: as `brightness`.
    """

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        changes: list[Augmenter] = []
        if brightness > 0:
            changes.append(BrightnessJitterAug(brightness))
        if contrast > 0:
            changes.append(ContrastJitterAug(contrast))
        if saturation > 0:
            changes.append(SaturationJitterAug(saturation))
        super().__init__(changes)


class LightingAug(Augmenter):
    """Add noise along the principal axes of colors.

    Args:
        alphastd: standard deviation of the noise.
        eigval: deviations along the axes, (3,).
        eigvec: the axes, (3, 3).
    """

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd = alphastd
        self.eigval = eigval
        self.eigvec = eigvec

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        alpha = np.random.normal(0, self.alphastd, size=(3,))
        src += array(np.dot(self.eigvec * alpha, self.eigval))
        return src


class ColorNormalizeAug(Augmenter):
    """Subtract a mean and divide by a standard deviation.

    Args:
        mean: value to subtract; may be None.
        std: value to divide by; may be None.
    """

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean if mean is None or isinstance(mean, NDArray) else array(mean)
        self.std = std if std is None or isinstance(std, NDArray) else array(std)

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Make an image grey with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat = array([[0.21] * 3, [0.72] * 3, [0.07] * 3])

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        return _mixed(src, self.mat.raw) if random.random() < self.p else src
