"""Changes to images as objects: `Augmenter`, and those of size and place."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from ..ndarray import NDArray
from ..ndarray.convert import jsonable
from .functions import (
    center_crop,
    imresize,
    interp_method,
    old_area,
    random_crop,
    random_size_crop,
    resize_short,
)


class Augmenter:
    """Base of the changes to images.

    A subclass defines `__call__`, which may change the image in place.

    Args:
        **kwargs: the subclass's arguments, for `dumps`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = jsonable(kwargs)

    def dumps(self) -> Any:
        """Return the class's name and arguments as JSON text."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

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
