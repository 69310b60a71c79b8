"""Decoding, resizing, bordering and recoloring of single images, as (H, W, C) tensors."""

from __future__ import annotations

from . import declare as declare
from .border import make_border
from .codec import decode, encode
from .resize import pick_method, resize
from .warp import warp_affine

__all__ = ["decode", "encode", "make_border", "pick_method", "resize", "warp_affine"]
