"""Detection under MXNet's module path, `mx.image.detection`."""

from __future__ import annotations

from ..compat import lazy
from .det_augment import (
    DetAugmenter,
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)
from .det_create import CreateDetAugmenter, CreateMultiRandCropAugmenter
from .det_iterator import ImageDetIter

__all__ = [
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "ImageDetIter",
]

lazy.publish(__name__, __all__)
