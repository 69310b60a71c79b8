"""Iterators over batches of examples (`mx.io`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compat import lazy
from .arrays import NDArrayIter
from .convert import as_data_iter
from .desc import DataDesc
from .iterator import DataBatch, DataIter, ResizeIter

if TYPE_CHECKING:
    from .data_iter import MXDataIter
    from .data_loader import DataLoaderIter
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
    from .process_prefetch import ProcessPrefetchingIter
    from .text import CSVIter, LibSVMIter

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "DataLoaderIter",
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
    "ProcessPrefetchingIter",
    "ResizeIter",
    "as_data_iter",
    "io",
    "utils",
]

__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    {
        "data_iter": "MXDataIter",
        "data_loader": "DataLoaderIter",
        "images": """
        ImageDetRecordIter ImageRecordInt8Iter ImageRecordIter ImageRecordIter_v1 ImageRecordUInt8Iter
        ImageRecordUInt8Iter_v1
        """,
        "io": "",
        "mnist": "MNISTIter",
        "prefetch": "PrefetchingIter",
        "process_prefetch": "ProcessPrefetchingIter",
        "text": "CSVIter LibSVMIter",
        "utils": "",
    },
)
