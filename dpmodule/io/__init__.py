"""Iterators over batches of examples (`mx.io`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import later
from .arrays import NDArrayIter
from .convert import as_data_iter
from .desc import DataBatch, DataDesc
from .iterator import DataIter, ResizeIter

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
    from .prefetch import PrefetchingIter
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

__getattr__, __dir__ = later.attributes(
    __name__,
    {
        "data_iter": "MXDataIter",
        "images": """
        ImageDetRecordIter ImageRecordInt8Iter ImageRecordIter ImageRecordIter_v1 ImageRecordUInt8Iter
        ImageRecordUInt8Iter_v1
        """,
        "io": "",
        "mnist": "MNISTIter",
        "prefetch": "PrefetchingIter",
        "text": "CSVIter LibSVMIter",
        "utils": "",
    },
)
