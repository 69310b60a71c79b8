"""Iterators that MXNet keeps under `mx.contrib.io`."""

from __future__ import annotations

from .. import later
from ..io.data_loader import DataLoaderIter as DataLoaderIter

__all__ = ["DataLoaderIter"]

later.publish(__name__, __all__)
