"""Changes to the colors of images, (H, W, 3) arrays of float32."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from ..ndarray import NDArray, array
from .augment import Augmenter, RandomOrderAug
from .functions import color_normalize

_GREY = (0.299, 0.587, 0.114)


class BrightnessJitterAug(Augmenter):
    """Change the brightness at random.

    Args:
        brightness: the factor is up to 1 +- this.
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
        contrast: the factor is up to 1 +- this.
    """

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef = array([[_GREY]])

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
        saturation: the factor is up to 1 +- this.
    """

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef = array([[_GREY]])

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
        hue: the turn of the color circle is up to this, either way, in half turns.
    Source: MXNet 1.9.1 `HueJitterAug`, a turn in the YIQ color space.
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
        turn = np.array([[1.0, 0.0, 0.0], [0.0, u, -w], [0.0, w, u]])
        return _mixed(src, (self.ityiq @ turn @ self.tyiq).T)


def _mixed(src: NDArray, matrix: Any) -> NDArray:
    """Multiply every color by a matrix from the right."""
    table = torch.as_tensor(matrix, dtype=src.raw.dtype, device=src.raw.device)
    return NDArray(src.raw @ table, src.context)


class ColorJitterAug(RandomOrderAug):
    """Change brightness, contrast and saturation at random, in a random order.

    Args:
        brightness: the factor is up to 1 +- this; 0 for none.
        contrast: the same.
        saturation: the same.
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
    """Subtract a mean and divide by a deviation.

    Args:
        mean: what to subtract, or None.
        std: what to divide by, or None.
    """

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean if mean is None or isinstance(mean, NDArray) else array(mean)
        self.std = std if std is None or isinstance(std, NDArray) else array(std)

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Make an image grey."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat = array([[0.21] * 3, [0.72] * 3, [0.07] * 3])

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, 3)."""
        return _mixed(src, self.mat.raw) if random.random() < self.p else src
