"""Which operators run in which precision, by registry name.

Source: the lists of MXNet 1.9.1's automatic mixed precision. What is on none of them works in whatever type arrives.
"""

from __future__ import annotations

from ...compat import lazy
from ...symbol.half_lists import CONDITIONAL_FP32, FP32, LOSSES, LP16, WIDEST

__all__ = ["CONDITIONAL_FP32", "FP32", "LOSSES", "LP16", "WIDEST"]

lazy.publish(__name__, __all__)
