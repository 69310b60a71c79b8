"""Seeds and random arrays (`mx.random`)."""

from __future__ import annotations

from .generators import seed as seed

__all__ = ["seed"]
