"""Images: decoding, resizing, bordering and recoloring of (H, W, C) tensors, and the operators made of that.

Those named ``_image_*`` are what is done to images before a network sees them; those of OpenCV are behind `mx.image`.
"""

from __future__ import annotations

from . import codec as codec
from . import color as color
from . import geometry as geometry
from .codec import decode, encode
from .geometry import make_border, warp_affine
from .resize import pick_method, resize

__all__ = ["decode", "encode", "make_border", "pick_method", "resize", "warp_affine"]
