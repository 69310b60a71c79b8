"""Iterators over batches of examples (`mx.io`)."""

from __future__ import annotations

from .arrays import NDArrayIter as NDArrayIter
from .convert import as_data_iter as as_data_iter
from .desc import DataBatch as DataBatch
from .desc import DataDesc as DataDesc
from .iterator import DataIter as DataIter
from .iterator import ResizeIter as ResizeIter
from .prefetch import PrefetchingIter as PrefetchingIter

__all__ = [
    "DataBatch",
    "DataDesc",
    "DataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
    "as_data_iter",
]
