"""Record files (`mx.recordio`): many payloads in one file, such as images with their labels."""

from __future__ import annotations

from ..compat import lazy
from .dataset import RecordDataset
from .files import MXIndexedRecordIO, MXRecordIO
from .header import IRHeader, pack, pack_img, unpack, unpack_img

__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "RecordDataset",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]

lazy.publish(__name__, __all__)
