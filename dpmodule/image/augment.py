"""Changes to images as objects: `Augmenter`, and those of size and place."""

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
    """What both kinds of changes do: keep their arguments for `dumps`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = jsonable(kwargs)

    def dumps(self) -> Any:
        """Return the class's name and arguments as JSON text."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])


class Augmenter(Dumpable):
    """Base of the changes to images.

    A subclass defines `__call__`, which may change the image in place.

    Args:
        **kwargs: the subclass's arguments, for `dumps`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Change an image, (H, W, C), and return it."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")


class SequentialAug(Augmenter):
    """Make several changes one after another."""

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
    """Make several changes in a random order.

    Args:
        ts: the changes; a list, which is shuffled.
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
    """A change whose result has a given width and height."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp


class ForceResizeAug(_ToSize):
    """Resize to a size, whatever the aspect.

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
    """Cut a part at a random place.

    Args:
        size: (width, height) in pixels.
        interp: as for `imresize`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """Cut a part of random area and aspect at a random place, and resize it.

    Args:
        size: (width, height) in pixels to resize to.
        area: smallest and largest area, as parts of the image's; or the smallest.
        interp: as for `imresize`.
        **kwargs: `min_area`, an old name of `area`.

    Raises:
        ArgumentError: an unknown keyword.
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
    """Cut the middle.

    Args:
        size: (width, height) in pixels.
        interp: as for `imresize`.
    """

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image, (H, W, C)."""
        return center_crop(src, self.size, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Mirror left to right."""

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
        saturation: the factor is up to 1 +- this.
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
