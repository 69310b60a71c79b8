"""Hogwild training straight from files."""

from __future__ import annotations

from .. import later

_LATER = {"async_executor": "AsyncExecutor", "data_feed": "DataFeedDesc"}

__all__ = list(later.modules_of(_LATER))

__getattr__, __dir__ = later.attributes(__name__, __all__, _LATER)
