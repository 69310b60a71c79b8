"""Record files (`mx.recordio`): many payloads in one file, such as images with their labels."""

from .._core import lazy
from .dataset import RecordDataset as RecordDataset
from .files import MXIndexedRecordIO as MXIndexedRecordIO
from .files import MXRecordIO as MXRecordIO
from .framing import IRHeader as IRHeader
from .framing import pack as pack
from .framing import pack_img as pack_img
from .framing import unpack as unpack
from .framing import unpack_img as unpack_img

__all__ = lazy.public_names(vars())

lazy.publish(__name__, __all__)
