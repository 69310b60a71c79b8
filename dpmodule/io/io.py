"""MXNet's import path of the iterators (`mx.io.io`)."""

from __future__ import annotations

from .. import later
from .arrays import NDArrayIter as NDArrayIter
from .data_iter import MXDataIter as MXDataIter
from .desc import DataDesc as DataDesc
from .images import ImageDetRecordIter as ImageDetRecordIter
from .images import ImageRecordInt8Iter as ImageRecordInt8Iter
from .images import ImageRecordIter as ImageRecordIter
from .images import ImageRecordIter_v1 as ImageRecordIter_v1
from .images import ImageRecordUInt8Iter as ImageRecordUInt8Iter
from .images import ImageRecordUInt8Iter_v1 as ImageRecordUInt8Iter_v1
from .iterator import DataBatch as DataBatch
from .iterator import DataIter as DataIter
from .iterator import ResizeIter as ResizeIter
from .mnist import MNISTIter as MNISTIter
from .prefetch import PrefetchingIter as PrefetchingIter
from .text import CSVIter as CSVIter
from .text import LibSVMIter as LibSVMIter
from .utils import _init_data as _init_data

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
]

later.publish(__name__, __all__)
