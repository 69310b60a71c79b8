"""Safetensors files: arrays by name, and texts beside them, in a format that other libraries read, too.

The package `safetensors` is not needed. The layout is described in `safetensors_header`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import torch

from ..base import ArgumentError, FileError, FileFormatError
from ..context import cpu
from ..files import regular_file, settle
from ..ops.dtypes import name_of, torch_dtype
from .convert import bytes_of
from .handle import Handle
from .ndarray import NDArray
from .safetensors_header import (
    DTYPES,
    LENGTH_BYTES,
    METADATA,
    SafetensorsHeader,
    TensorEntry,
    header_length,
    header_text,
    read_header,
)

_NAMES = {ours: theirs for theirs, ours in DTYPES.items()}
_MAPPED_BYTES = 16 * 2**20
"""From this size on a file is mapped instead of read, where the system lets a file be replaced that is in use."""
_ALIGNMENT = 64
"""The data begin at a multiple of so many bytes, which the longest vector instructions like."""


def write(file: IO[bytes], arrays: Mapping[str, Handle], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays to an open file.

    Larger elements come first, so that all of them are aligned; the header has the order of `arrays`.

    Args:
        arrays: dense arrays by name.
        metadata: texts by name.
    """
    for name, array in arrays.items():
        _check(name, array)
    tensors = {name: array.raw for name, array in arrays.items()}
    ordered = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    places, place = {}, 0
    for name in ordered:
        tensor = tensors[name]
        places[name] = [place, place + tensor.numel() * tensor.dtype.itemsize]
        place = places[name][1]
    entries = {
        name: {
            "dtype": _NAMES[name_of(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": places[name],
        }
        for name, tensor in tensors.items()
    }
    file.write(header_text(entries, metadata or {}, _ALIGNMENT))
    for name in ordered:
        file.write(bytes_of(tensors[name]))


def _check(name: str, array: Handle) -> None:
    """Check that the format has room for an array and its name."""
    if name == METADATA:
        raise ArgumentError(f"safetensors has no array {METADATA!r}: that is where texts stand; rename it")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"the name {name!r} cannot be written as UTF-8; rename it") from None
    if array.stype != "default":
        raise ArgumentError(
            f"{name!r} is of storage type {array.stype!r}, and safetensors has dense arrays only; save it to a .params "
            "file, or its dense copy, tostype('default')"
        )


def read(path: str) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Return the arrays of a file, on cpu(0), and the texts beside them.

    A file of 16 MB or more is not read but mapped into memory, where writing changes the array alone, not the file:
    its values come from the disk when they are first used. A file that is replaced meanwhile, as this package and
    others do, does not matter; one that a program writes to in place shows through.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = _header(file, size, path)
        content = _content(file, size, path)
    return _arrays(header, content), header.metadata


def read_metadata(path: str) -> dict[str, str]:
    """Return the texts beside the arrays of a file; errors as in `read`."""
    with _opened(path) as file:
        return _header(file, os.fstat(file.fileno()).st_size, path).metadata


def read_bytes(data: bytes | bytearray | memoryview, name: str) -> dict[str, NDArray]:
    """Return the arrays of a file whose bytes are given.

    Args:
        data: the bytes; the arrays have copies.
    """
    content = bytearray(data)
    length = header_length(bytes(content[:LENGTH_BYTES]), len(content), name)
    text = bytes(content[LENGTH_BYTES : LENGTH_BYTES + length])
    return _arrays(read_header(text, len(content), name), content)


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading, as the last valid save left it; errors name it."""
    settle(path)
    try:
        with open(path, "rb", buffering=0, opener=regular_file) as file:
            yield file
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(error.errno or 0, f"cannot load: {error.strerror or error}", path) from error


def _header(file: IO[bytes], size: int, path: str) -> SafetensorsHeader:
    length = header_length(file.read(LENGTH_BYTES), size, path)
    text = bytearray(length)
    _fill(file, text, path)
    return read_header(bytes(text), size, path)


def _content(file: IO[bytes], size: int, path: str) -> Any:
    """Return the whole file, in memory that may be written to."""
    if size >= _MAPPED_BYTES and os.name == "posix":
        try:
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
        except ValueError:
            raise _shrank(path) from None
    content = bytearray(size)
    file.seek(0)
    _fill(file, content, path)
    return content


def _fill(file: IO[bytes], target: bytearray, path: str) -> None:
    """Read from a file until some memory is full."""
    view, done = memoryview(target), 0
    while done < len(view):
        got = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise _shrank(path)
        done += got


def _shrank(path: str) -> FileFormatError:
    return FileFormatError(f"{path}: ends early; the file shrank while it was read")


def _arrays(
    header: SafetensorsHeader, content: bytes | bytearray | memoryview | mmap.mmap
) -> dict[str, NDArray]:
    return {entry.name: NDArray(_tensor(entry, header.end, content), cpu(0)) for entry in header.entries}


def _tensor(
    entry: TensorEntry, data: int, content: bytes | bytearray | memoryview | mmap.mmap
) -> torch.Tensor:
    """Return a tensor over its part of the file's bytes.

    Args:
        content: the file's bytes, which stay as long as the tensor.
    """
    dtype = torch_dtype(entry.dtype)
    count = (entry.stop - entry.start) // dtype.itemsize
    if not count:
        return torch.empty(entry.shape, dtype=dtype)
    at = data + entry.start
    if at % dtype.itemsize:  # some programs do not align; kernels rely on it
        content, at = bytearray(memoryview(content)[at : data + entry.stop]), 0
    if entry.dtype == "bool":  # bytes other than 0 and 1 must not get into a bool tensor
        return torch.frombuffer(content, dtype=torch.uint8, count=count, offset=at).ne(0).reshape(entry.shape)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=at).reshape(entry.shape)
