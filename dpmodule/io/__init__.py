"""Iterators over batches of examples (`mx.io`)."""

import typing

from .._core import lazy
from .arrays import NDArrayIter as NDArrayIter
from .convert import as_data_iter as as_data_iter
from .desc import DataDesc as DataDesc
from .iterator import DataBatch as DataBatch
from .iterator import DataIter as DataIter
from .iterator import ResizeIter as ResizeIter

if typing.TYPE_CHECKING:
    from .data_iter import MXDataIter as MXDataIter
    from .data_loader import DataLoaderIter as DataLoaderIter
    from .images import ImageDetRecordIter as ImageDetRecordIter
    from .images import ImageRecordInt8Iter as ImageRecordInt8Iter
    from .images import ImageRecordIter as ImageRecordIter
    from .images import ImageRecordIter_v1 as ImageRecordIter_v1
    from .images import ImageRecordUInt8Iter as ImageRecordUInt8Iter
    from .images import ImageRecordUInt8Iter_v1 as ImageRecordUInt8Iter_v1
    from .mnist import MNISTIter as MNISTIter
    from .prefetch import PrefetchingIter as PrefetchingIter
    from .process_prefetch import ProcessPrefetchingIter as ProcessPrefetchingIter
    from .text import CSVIter as CSVIter
    from .text import LibSVMIter as LibSVMIter

_LATER = {
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
}

__all__ = [*lazy.public_names(vars()), *lazy.modules_of(_LATER), "io", "utils"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
