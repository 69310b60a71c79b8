"""Format of record files: magic number, length, payload, padding; and the header of image records.

::

    part : u32 0xCED7230A, u32 (kind << 29 | length), payload, zeros up to a multiple of 4
    kind : 0 a whole record, 1 the first part of a record, 2 a middle part, 3 the last part

A payload with the magic number at a multiple of 4 is cut there without the number; the reader inserts it between
the parts. A search for the number at multiples of 4 therefore finds only starts of parts.
"""

from __future__ import annotations

import numbers
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._files import likely_kind, regular_file
from ..base import ArgumentError, FileError, FileFormatError
from ..ndarray import NDArray
from ..ops.image import decode, encode

MAGIC = struct.pack("<I", 0xCED7230A)
_HEAD = struct.Struct("<4sI")
_MAX_LENGTH = (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


class _File(Protocol):
    def read(self, count: int, /) -> bytes: ...

    def seek(self, at: int, /) -> Any: ...


def frame(payload: bytes) -> bytes:
    """Return the bytes of a record file for a payload."""
    if len(payload) > _MAX_LENGTH:
        raise ArgumentError(f"a record of {len(payload)} bytes is too long; the format allows {_MAX_LENGTH}")
    if MAGIC not in payload:
        return b"".join([_HEAD.pack(MAGIC, len(payload)), payload, bytes(-len(payload) % 4)])
    words = np.frombuffer(payload, "<u4", len(payload) // 4)
    cuts = (np.flatnonzero(words == 0xCED7230A) * 4).tolist()
    begins, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(payload)]
    pieces = []
    for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        kind = _WHOLE if not cuts else _FIRST if i == 0 else _LAST if i == len(cuts) else _MIDDLE
        part = payload[begin:end]
        pieces += [_HEAD.pack(MAGIC, kind << 29 | len(part)), part, bytes(-len(part) % 4)]
    return b"".join(pieces)


def read_record(file: _File, at: int, size: int, name: str) -> tuple[bytes, int] | None:
    """Read the record at the current position of `file`.

    Args:
        at: that position in bytes.
        size: length of the file in bytes.

    Returns:
        The payload and the size of the record in the file; None at the end of the file.
    """
    kind, step = 0, at
    parts: list[bytes] = []
    while kind != _LAST:
        head = file.read(8)
        if not head and not parts:
            return None
        kind, length = _check_head(head, step, size, name, bool(parts))
        left = max(0, size - step - 8)
        part = file.read(min(left, length + -length % 4))  # no more, since reading allocates the memory first
        if len(part) < length:
            raise _cut_short(name, step, f"{length} bytes of payload", left)
        parts.append(part if len(part) == length else part[:length])
        step += 8 + length + -length % 4
        if kind == _WHOLE:
            return parts[0], step - at
    return MAGIC.join(parts), step - at


def skip_record(file: _File, at: int, size: int, name: str) -> int | None:
    """Return the start of the record after the record at `at`; None if `at` is the end of the file."""
    begun = False
    while True:
        file.seek(at)
        head = file.read(8)
        if not head and not begun:
            return None
        kind, length = _check_head(head, at, size, name, begun)
        begun = True
        if at + 8 + length > size:
            raise _cut_short(name, at, f"{length} bytes of payload", size - at - 8)
        at += 8 + length + -length % 4
        if kind in (_WHOLE, _LAST):
            return at


def _check_head(head: bytes, at: int, size: int, name: str, begun: bool) -> tuple[int, int]:
    """Return kind and length of a part, after checking that it may occur here."""
    if len(head) < 8:
        if head[:4] != MAGIC[: len(head[:4])]:
            raise FileFormatError(f"{name}: byte {at}: {_cause(head, at)}")
        raise _cut_short(name, at, "the head of a record, 8 bytes", max(0, size - at))
    magic, word = _HEAD.unpack(head)
    if magic != MAGIC:
        raise FileFormatError(f"{name}: byte {at}: {_cause(head, at)}")
    kind = word >> 29
    if kind > _LAST or (kind in (_MIDDLE, _LAST)) != begun:
        raise FileFormatError(
            f"{name}: byte {at}: a part of kind {kind} is not allowed here; the file is damaged, or the offset "
            "is not the start of a record"
        )
    return kind, word & _MAX_LENGTH


def _cut_short(name: str, at: int, what: str, left: int) -> FileFormatError:
    return FileFormatError(
        f"{name}: byte {at}: {what} expected, but {left} are left; the file is cut short or damaged"
    )


def _cause(head: bytes, at: int) -> str:
    """Return the likely reason for a missing magic number."""
    kind = likely_kind(head) if at == 0 else ""
    if kind:
        return kind
    advice = "the file is not a record file" if at == 0 else "the file is damaged, or the offset is wrong"
    return f"no record begins here: {head[:4]!r} in place of {MAGIC!r}; {advice}"


class RecordFile:
    """A record file open for concurrent reading from several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = open(path, "rb", buffering=0, opener=regular_file)  # noqa: SIM115 - closed by close
        except OSError as error:
            raise FileError(error.errno, f"record file: {error.strerror}", path) from error
        self.size = os.fstat(self._file.fileno()).st_size

    def read_at(self, offset: int) -> bytes:
        """Return the payload of the record that begins at a byte offset."""
        record = read_record(_FileWindow(self._file.fileno(), offset), offset, self.size, self.path)
        if record is None:
            raise FileFormatError(f"{self.path}: byte {offset}: the file ends before this record")
        return record[0]

    def head(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes from a byte offset."""
        return os.pread(self._file.fileno(), count, offset)

    def starts_at(self, offset: int) -> bool:
        """Return True if a whole record begins at a byte offset."""
        return skip_record(_FileWindow(self._file.fileno(), offset), offset, self.size, self.path) is not None

    def offsets(self) -> Iterator[int]:
        """Yield the byte offsets of all records without reading payloads."""
        at = 0
        window = _FileWindow(self._file.fileno(), 0)
        while True:
            following = skip_record(window, at, self.size, self.path)
            if following is None:
                return
            yield at
            at = following

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        self._file.close()

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()


class _FileWindow:
    """Independent position in an open file."""

    def __init__(self, descriptor: int, at: int) -> None:
        self._descriptor, self._at = descriptor, at

    def seek(self, at: int) -> None:
        self._at = at

    def read(self, count: int) -> bytes:
        data = os.pread(self._descriptor, count, self._at)
        self._at += len(data)
        return data


_FORMAT = struct.Struct("<IfQQ")


class IRHeader(NamedTuple):
    """Header of an image record.

    Args:
        flag: number of labels after the header; `pack` sets it.
        label: a number, or an array of numbers.
        id: number of the image.
        id2: upper half of a longer number, usually 0.

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
        header: an `IRHeader`, or its four values.
        s: the payload, usually the bytes of an image file.

    Raises:
        ArgumentError: the values of the header are out of range.

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
    """Split a record into its header and its payload.

    Args:
        s: a record, such as a result of `MXRecordIO.read`.

    Raises:
        FileFormatError: the record is shorter than its header declares.
    """
    if len(s) < _FORMAT.size:
        raise FileFormatError(
            f"unpack: the record has {len(s)} bytes, but an image record begins with a header of {_FORMAT.size} bytes"
        )
    header = IRHeader(*_FORMAT.unpack_from(s))
    start = _FORMAT.size
    if header.flag == 0:
        return header, s[start:]
    end = start + 4 * header.flag
    if end > len(s):
        raise FileFormatError(
            f"unpack: the header declares {header.flag} labels, {4 * header.flag} bytes, but {len(s) - start} "
            "are left; the record is damaged, or was not written by pack"
        )
    return header._replace(label=np.frombuffer(s, "<f4", header.flag, start)), s[end:]


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray[Any, Any]]:
    """Split a record into its header and its decoded image.

    Shape:
        returns: header, and pixels (H, W, 3) in the order blue, green, red, or (H, W) for grey, uint8.

    Args:
        s: a record, such as a result of `MXRecordIO.read`.
        iscolor: 1 for color, 0 for grey, -1 for the stored format.

    Raises:
        FileFormatError: the record is not an image record.
    """
    header, payload = unpack(s)
    pixels = decode(payload, iscolor, to_rgb=False, name=f"image {header.id}").numpy()
    return header, pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def pack_img(header: Any, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encode an image and put a header in front of it.

    Args:
        header: an `IRHeader`, or its four values.
        img: pixels (H, W, 3) in the order blue, green, red, or (H, W), uint8.
        quality: 1 to 100 for JPEG, compression 0 to 9 for PNG.
        img_fmt: file extension of the format, ".jpg" or ".png".

    Raises:
        ArgumentError: `img` is not an image, or the format is unknown.
    """
    pixels = img.asnumpy() if isinstance(img, NDArray) else img
    return pack(header, encode(pixels, img_fmt, quality))
