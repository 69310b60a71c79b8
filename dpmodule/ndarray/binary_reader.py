"""Reader of MXNet's binary files of arrays, in every layout.

The module `serial` describes the layouts. Every count is compared with the remaining bytes before it is used, so a
damaged or hostile file costs no memory; errors report the byte offset.

Source: the layouts of MXNet 0.8 to 1.9.1, see `serial`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import torch

from .._files import likely_kind
from ..base import DTypeError, FileFormatError, MXNetError, OutOfMemoryError, dtype_from_code
from ..ops.dtypes import torch_dtype
from ..ops.shapes import prod
from ..ops.write_tracking import mark_owned

Make = Callable[[torch.Tensor, list[torch.Tensor], tuple[int, ...]], Any]
"""Creates an array from the elements of a record, its index arrays (one or two if it is sparse) and the shape; raises
MXNetError if these are inconsistent."""

LIST_MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_ROW_SPARSE, _CSR = 1, 2
_MAX_AXES = 64


class _FileReader:
    """A file that is read sequentially; counts are checked against the remaining bytes."""

    def __init__(self, file: IO[bytes], size: int, name: str, make: Make) -> None:
        self.file, self.size, self.name, self.make = file, size, name, make
        self.at = 0
        self.where = ""

    def error(self, problem: str, at: int | None = None) -> FileFormatError:
        place = f" ({self.where})" if self.where else ""
        return FileFormatError(f"{self.name}: byte {self.at if at is None else at}{place}: {problem}")

    def need(self, count: int, what: str) -> None:
        """Raise if fewer than `count` bytes are left."""
        left = self.size - self.at
        if count > left:
            raise self.error(
                f"{what} needs {count} bytes, but {left} are left; the file is truncated or damaged"
            )

    def take(self, count: int, what: str) -> bytes:
        """Read some bytes."""
        self.need(count, what)
        data = self.file.read(count)
        if len(data) != count:
            raise self.error(f"{what} ends early; the file shrank while it was read")
        self.at += count
        return data

    def fill(self, target: np.ndarray[Any, Any], what: str) -> None:
        """Read straight into an array's memory."""
        view = target.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            got = self.file.readinto(view[done:])  # type: ignore[attr-defined]
            if not got:
                raise self.error(f"{what} ends early; the file shrank while it was read")
            done += got
        self.at += done

    def numbers(self, form: str, what: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), what))

    def number(self, form: str, what: str) -> int:
        return self.numbers(form, what)[0]


def read(file: IO[bytes], size: int, name: str, make: Make) -> Any:
    """Read arrays from an open file, as a list, or as a dict if they have names.

    Args:
        size: number of bytes from the position to the end.
    """
    reader = _FileReader(file, size, name, make)
    _check_start(reader)
    count = reader.number("Q", "the number of arrays")
    if count > (reader.size - reader.at) // 4:
        raise reader.error(
            f"{count} arrays do not fit into the {reader.size - reader.at} bytes that are left"
        )
    arrays = []
    for i in range(count):
        reader.where = f"array {i} of {count}"
        arrays.append(_read_array(reader))
    reader.where = "names"
    names = _read_names(reader, count)
    if reader.at != size:
        raise reader.error(f"{size - reader.at} bytes follow the end of the data")
    return _collect(reader, names, arrays)


Parts = tuple[torch.Tensor, list[torch.Tensor], tuple[int, ...]]
"""Elements, index arrays and shape of a record."""


def read_one(data: bytes) -> Parts:
    """Read the record of one array without a file header.

    Args:
        data: bytes as in MXNet's pickles of an array.
    """
    reader = _FileReader(io.BytesIO(data), len(data), "<array>", lambda *parts: parts)
    found: Parts = _read_array(reader)
    if reader.at != len(data):
        raise reader.error(f"{len(data) - reader.at} bytes follow the end of the array")
    return found


def _check_start(reader: _FileReader) -> None:
    """Check the first bytes; the error describes the file if its type is known."""
    start = reader.take(min(reader.size, 16), "the header")
    if len(start) == 16 and int.from_bytes(start[:8], "little") == LIST_MAGIC:
        return
    hint = likely_kind(start) or "this is not an MXNet array file"
    if start[:8] == LIST_MAGIC.to_bytes(8, "little")[: len(start)] and start:
        hint = "the file is truncated"
    raise reader.error(hint, 0)


def _collect(reader: _FileReader, names: list[str], arrays: list[Any]) -> list[Any] | dict[str, Any]:
    """Return the arrays as a list or dict."""
    if not names:
        return arrays
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise FileFormatError(f"{reader.name}: two arrays have the name {twice!r}; the file is damaged")
    return dict(zip(names, arrays, strict=True))


def _read_names(reader: _FileReader, count: int) -> list[str]:
    """Read the names of the arrays; a list has none."""
    name_count = reader.number("Q", "the number of names")
    if name_count not in (0, count):
        raise reader.error(f"{name_count} names for {count} arrays; the file is damaged", reader.at - 8)
    names = []
    for i in range(name_count):
        reader.where = f"name {i} of {name_count}"
        length = reader.number("Q", "the length of a name")
        text = reader.take(length, "a name")
        try:
            names.append(text.decode())
        except UnicodeDecodeError:
            raise reader.error("a name is not UTF-8 text; the file is damaged", reader.at - length) from None
    return names


def _read_array(reader: _FileReader) -> Any:
    """Read one record of any layout."""
    magic = reader.number("I", "an array's first number")
    if magic in (V2, V3):
        return _read_current(reader, magic)
    if magic == V1:
        shape = _read_shape(reader)
    else:
        if magic > _MAX_AXES:
            raise reader.error(f"{magic:#x} does not start an array; the file is damaged", reader.at - 4)
        shape = _checked(reader, reader.numbers(f"{magic}I", "a shape"))
    return _read_dense(reader, shape) if shape else _nothing(reader)


def _read_current(reader: _FileReader, magic: int) -> Any:
    """Read the rest of a V2 or V3 record."""
    storage = reader.number("i", "the storage type")
    if storage in (_ROW_SPARSE, _CSR) and magic == V2:
        return _read_sparse(reader, storage)
    if storage not in (0, -1):
        raise reader.error(f"there is no storage type {storage}; the file is damaged", reader.at - 4)
    shape = _read_shape(reader)
    if shape is None or (magic == V2 and not shape):
        return _nothing(reader)
    return _read_dense(reader, shape)


def _nothing(reader: _FileReader) -> Any:
    """Return the result for an array without a shape."""
    return reader.make(torch.empty(0), [], (0,))


def _read_shape(reader: _FileReader) -> tuple[int, ...] | None:
    """Read a shape; None if even the number of axes is unknown (-1)."""
    axes = reader.number("i", "the number of axes")
    if axes == -1:
        return None
    if not 0 <= axes <= _MAX_AXES:
        raise reader.error(f"{axes} axes; expected 0 to {_MAX_AXES}; the file is damaged", reader.at - 4)
    return _checked(reader, reader.numbers(f"{axes}q", "a shape"))


def _checked(reader: _FileReader, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape; raise if its strides do not fit into 64 bits, even if it is empty."""
    if any(d < 0 for d in shape) or prod([d for d in shape if d]) >= 2**59:
        raise reader.error(f"shape {shape}, which ends here, is impossible; the file is damaged")
    return shape


def _read_type(reader: _FileReader) -> str:
    """Read an element type."""
    code = reader.number("i", "the type number")
    try:
        return dtype_from_code(code)
    except DTypeError as error:
        raise reader.error(f"{error}; the file is damaged", reader.at - 4) from None


def _read_dense(reader: _FileReader, shape: tuple[int, ...]) -> Any:
    """Read device, type and data of a dense array."""
    reader.numbers("ii", "the device")
    return reader.make(_read_data(reader, _read_type(reader), shape), [], shape)


def _read_data(reader: _FileReader, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Read the elements of a tensor."""
    dtype = torch_dtype(name)
    size = prod(shape)
    reader.need(size * dtype.itemsize, f"{name} data of shape {shape}")
    try:
        tensor = torch.empty(shape, dtype=torch.uint8 if name == "bool" else dtype)
    except RuntimeError as error:
        raise OutOfMemoryError.of(f"{name} data of shape {shape}", error) from error
    if size:
        bits = tensor.view(torch.int16) if name == "bfloat16" else tensor
        reader.fill(bits.numpy(), "the data")
    # a bool tensor must not contain bytes other than 0 and 1
    return tensor.ne(0) if name == "bool" else mark_owned(tensor)


def _read_sparse(reader: _FileReader, storage: int) -> Any:
    """Read the rest of a sparse record; it is missing for an array without a shape."""
    stored, shape = _read_shape(reader), _read_shape(reader)
    if not shape:
        return _nothing(reader)
    reader.numbers("ii", "the device")
    name = _read_type(reader)
    index_types = [(_read_type(reader), _read_shape(reader) or (0,)) for _ in range(storage)]
    start = reader.at
    values = _read_data(reader, name, stored or (0,))
    indices = [_read_data(reader, kind, dims).long() for kind, dims in index_types]
    try:
        return reader.make(values, indices, shape)
    except MXNetError as error:
        raise reader.error(f"{error}; the file is damaged", start) from None
