"""Iterators that MXNet keeps under `mx.contrib.io`."""

from __future__ import annotations

from ..io.data_loader import DataLoaderIter as DataLoaderIter

__all__ = ["DataLoaderIter"]
