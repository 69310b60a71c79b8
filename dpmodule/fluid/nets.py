"""Several layers at once."""

from __future__ import annotations

from .. import later
from .layers.sequence import sequence_conv_pool

__all__ = ["sequence_conv_pool"]

later.publish(__name__, __all__)
