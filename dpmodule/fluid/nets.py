"""Several layers at once."""

from __future__ import annotations

from ..compat import lazy
from .layers.sequence import sequence_conv_pool

__all__ = ["sequence_conv_pool"]

lazy.publish(__name__, __all__)
