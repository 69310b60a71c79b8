"""The header of image records: label and identity in front of a payload."""

from __future__ import annotations

import numbers
import struct
from typing import Any, NamedTuple

import numpy as np

from ..base import ArgumentError, FileFormatError
from ..ndarray import NDArray
from ..ops.image import decode, encode

_FORMAT = struct.Struct("<IfQQ")


class IRHeader(NamedTuple):
    """What an image record says about its image.

    Args:
        flag: how many labels follow the header; `pack` fills it in.
        label: a number, or an array of numbers.
        id2: upper half of a longer number, mostly 0.

    Example:
        >>> mx.recordio.IRHeader(0, 4.0, 2574, 0)
        IRHeader(flag=0, label=4.0, id=2574, id2=0)
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: Any, s: bytes) -> bytes:
    """Put a header in front of a payload.

    Args:
        header: an `IRHeader`, or four values for one.
        s: the payload, mostly an image file's bytes.

    Raises:
        ArgumentError: a header that does not fit its fields.

    Example:
        >>> header, payload = mx.recordio.unpack(mx.recordio.pack((0, [1, 2], 7, 0), b"abc"))
        >>> header.label, payload
        (array([1., 2.], dtype=float32), b'abc')
    """
    try:
        header = IRHeader(*header)
        label = header.label.asnumpy() if isinstance(header.label, NDArray) else header.label
        if isinstance(label, numbers.Number):
            return _FORMAT.pack(0, label, int(header.id), int(header.id2)) + s
        labels = np.asarray(label, dtype="<f4").reshape(-1)
        return b"".join([_FORMAT.pack(labels.size, 0, int(header.id), int(header.id2)), labels.tobytes(), s])
    except (struct.error, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"pack: header is {header!r}, payload {type(s).__name__}; expected label numbers, ids from 0 to "
            f"2^64 - 1 and bytes ({error})"
        ) from error


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Take a record apart into its header and its payload.

    Args:
        s: a record, as `MXRecordIO.read` returns it.

    Raises:
        FileFormatError: the record is shorter than its header says.
    """
    if len(s) < _FORMAT.size:
        raise FileFormatError(
            f"unpack: the record has {len(s)} bytes, an image record begins with a header of {_FORMAT.size}"
        )
    header = IRHeader(*_FORMAT.unpack_from(s))
    start = _FORMAT.size
    if header.flag == 0:
        return header, s[start:]
    end = start + 4 * header.flag
    if end > len(s):
        raise FileFormatError(
            f"unpack: the header announces {header.flag} labels, {4 * header.flag} bytes, but {len(s) - start} "
            "are left; the record is damaged, or was not written by pack"
        )
    return header._replace(label=np.frombuffer(s, "<f4", header.flag, start)), s[end:]


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray[Any, Any]]:
    """Take a record apart into its header and its decoded image.

    Shape:
        returns: header, and pixels (H, W, 3) in the order blue, green, red, or (H, W) for grey, uint8.

    Args:
        s: a record, as `MXRecordIO.read` returns it.
        iscolor: 1 for color, 0 for grey, -1 for what is stored.

    Raises:
        FileFormatError: the record is no image record.
    """
    header, payload = unpack(s)
    pixels = decode(payload, iscolor, to_rgb=False, name=f"image {header.id}").numpy()
    return header, pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def pack_img(header: Any, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encode an image and put a header in front of it.

    Args:
        header: an `IRHeader`, or four values for one.
        img: pixels (H, W, 3) in the order blue, green, red, or (H, W), uint8.
        quality: 1 to 100 for JPEG, compression 0 to 9 for PNG.
        img_fmt: file extension that tells the format, ".jpg" or ".png".

    Raises:
        ArgumentError: `img` holds no image, or the format is unknown.
    """
    pixels = img.asnumpy() if isinstance(img, NDArray) else img
    return pack(header, encode(pixels, img_fmt, quality))
