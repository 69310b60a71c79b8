"""Iterators over batches of examples (`mx.io`)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .arrays import NDArrayIter
from .convert import as_data_iter
from .desc import DataBatch, DataDesc
from .iterator import DataIter, ResizeIter
from .prefetch import PrefetchingIter

if TYPE_CHECKING:
    from .data_iter import MXDataIter
    from .images import (
        ImageDetRecordIter,
        ImageRecordInt8Iter,
        ImageRecordIter,
        ImageRecordIter_v1,
        ImageRecordUInt8Iter,
        ImageRecordUInt8Iter_v1,
    )
    from .mnist import MNISTIter
    from .text import CSVIter, LibSVMIter

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "ImageDetRecordIter",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
    "as_data_iter",
]

_LATER = {
    "CSVIter": "text",
    "ImageDetRecordIter": "images",
    "ImageRecordInt8Iter": "images",
    "ImageRecordIter": "images",
    "ImageRecordIter_v1": "images",
    "ImageRecordUInt8Iter": "images",
    "ImageRecordUInt8Iter_v1": "images",
    "LibSVMIter": "text",
    "MNISTIter": "mnist",
    "MXDataIter": "data_iter",
}
"""Iterators over files, and the modules they are imported from when first asked for."""


def __getattr__(name: str) -> Any:
    if name in ("io", "utils"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
