"""Decoding, resizing, padding and color changes of (H, W, C) images, and the operators based on them.

Operators named ``_image_*`` preprocess images; those named ``_cv*`` implement `mx.image`.
"""

from __future__ import annotations

from . import codec as codec
from . import color as color
from . import geometry as geometry
from .codec import decode, encode
from .geometry import make_border, warp_affine
from .resize import pick_method, resize

__all__ = ["decode", "encode", "make_border", "pick_method", "resize", "warp_affine"]
