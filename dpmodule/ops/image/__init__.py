"""Operators named ``_image_*``: what is done to images, (height, width, channels), before a network sees them."""

from . import geometry as geometry
from . import light as light
