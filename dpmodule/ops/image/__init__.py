"""Images: decoding, resizing, bordering and recoloring of (H, W, C) tensors, and the operators made of that.

Those named ``_image_*`` are what is done to images before a network sees them; those of OpenCV are behind `mx.image`.
"""

from __future__ import annotations

from . import geometry as geometry
from . import light as light
from . import opencv_operators as opencv_operators
from .border import make_border
from .codec import decode, encode
from .resize import pick_method, resize
from .warp import warp_affine

__all__ = ["decode", "encode", "make_border", "pick_method", "resize", "warp_affine"]
