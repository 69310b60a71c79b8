"""Safetensors files: arrays and texts by name, in a format that other libraries also read.

The package `safetensors` reads and checks them. This module writes them: it keeps the order of the arrays, aligns them
all, and needs no second copy in memory. A file is the header's length (u64, little-endian), the header (JSON, padded
with blanks), and the bytes of all arrays. The header has an entry for each array, such as ``{"name": {"dtype": "F32",
"shape": [2, 3], "data_offsets": [0, 24]}}``, with offsets from the header's end, and can have texts by name under
``__metadata__``. Source: the format's description, https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import torch

from .._files import finish_commit, likely_kind, regular_file
from ..base import ArgumentError, FileError, FileFormatError
from ..context import cpu
from ..ops.shapes import prod
from .convert import bytes_of
from .handle import Handle
from .ndarray import NDArray

_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.float64: "F64",
}
"""The format's names of element types; it has some that MXNet lacks."""

_MOST_BYTES = 100_000_000
"""Maximum length of the header."""
_MOST_AXES = 64
_MOST_ELEMENTS = 2**59  # beyond this, strides would not fit into 64 bits
_MAPPED_BYTES = 16 * 2**20
"""Files of at least this size are memory-mapped, if the system allows replacing a file in use."""
_ALIGNMENT = 64
"""Alignment of the data in bytes, for the longest vector instructions."""


def looks_like(head: bytes) -> bool:
    """Return True if a file with this beginning is a safetensors file, complete or not.

    Args:
        head: the first 9 bytes or more.
    """
    length = int.from_bytes(head[:_LENGTH_BYTES], "little")
    return head[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{" and 2 <= length <= _MOST_BYTES


def write(file: IO[bytes], arrays: Mapping[str, Handle], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays to an open file.

    Larger elements come first, so that all are aligned; the header keeps the order of `arrays`.

    Args:
        arrays: dense arrays by name.
        metadata: texts by name.
    """
    for name, array in arrays.items():
        _check(name, array)
    tensors = {name: array.raw for name, array in arrays.items()}
    ordered = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    offsets, end = {}, 0
    for name in ordered:
        begin, end = end, end + tensors[name].numel() * tensors[name].dtype.itemsize
        offsets[name] = [begin, end]
    header: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": offsets[name],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    for name in ordered:
        file.write(bytes_of(tensors[name]))


def _check(name: str, array: Handle) -> None:
    """Raise if the format cannot hold an array or its name."""
    if name == _METADATA:
        raise ArgumentError(
            f"an array cannot be named {_METADATA!r}, which holds the texts of a safetensors file; rename it"
        )
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
    """Return the arrays of a file, on cpu(0), and its texts.

    A file of 16 MB or more is memory-mapped: its values are read from the disk at their first use, and writing to an
    array does not change the file. Replacing the file, as this package and others do, has no effect on the arrays;
    writing to it in place does.
    """
    with _opened(path) as file:
        return read_file(file, path)


def read_file(file: IO[bytes], path: str) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Return what `read` does, of a file that is open at its start."""
    from safetensors import safe_open

    with _named_errors(path, file):
        size = os.fstat(file.fileno()).st_size
        if size < _MAPPED_BYTES or os.name != "posix":
            return _of_bytes(file.read(), path)
        with safe_open(path, "pt") as mapped:
            tensors = mapped.get_tensors()
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        names, texts = _header(file.read(min(length, size)), path)
    return _arrays(tensors, names, path), texts


def read_metadata(path: str) -> dict[str, str]:
    """Return the texts of a file; errors as in `read`."""
    from safetensors import safe_open

    with _opened(path) as opened, _named_errors(path, opened), safe_open(path, "pt") as file:
        return file.metadata() or {}


def read_shape(path: str, name: str) -> list[int]:
    """Return the shape of an array of a file; errors as in `read_rows`."""
    from safetensors import safe_open

    with _opened(path) as opened, _named_errors(path, opened), safe_open(path, "pt") as file:
        if name not in file.keys():  # noqa: SIM118
            raise FileFormatError(f"{path}: the array {name!r} is missing; this file belongs to another save")
        shape: list[int] = list(file.get_slice(name).get_shape())
    return shape


def read_rows(path: str, name: str, like: torch.Tensor, begin: int, end: int) -> torch.Tensor:
    """Return rows `begin` to `end` - 1 of an array, without reading the others; errors as in `read`.

    Args:
        name: of the array.
        like: a tensor of its shape and dtype.
    """
    from safetensors import safe_open

    with _opened(path) as opened, _named_errors(path, opened), safe_open(path, "pt") as file:
        found = None if name not in file.keys() else file.get_slice(name)  # noqa: SIM118
        wanted = _NAMES[like.dtype], list(like.shape)
        if found is None or (found.get_dtype(), list(found.get_shape())) != wanted:
            held = "none" if found is None else f"{found.get_dtype()} of shape {found.get_shape()}"
            raise FileFormatError(
                f"{path}: array {name!r} is {held}, expected {wanted[0]} of shape {wanted[1]}; this file belongs to "
                "another save"
            )
        return _usable(found[begin:end], name, path)


def read_bytes(data: bytes | bytearray | memoryview, name: str) -> dict[str, NDArray]:
    """Return the arrays from the bytes of a file.

    Args:
        data: the bytes, which are copied.
    """
    with _named_errors(name):
        return _of_bytes(bytes(data), name)[0]


def _of_bytes(content: bytes, name: str) -> tuple[dict[str, NDArray], dict[str, str]]:
    from safetensors.torch import load

    tensors = load(content)
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    names, texts = _header(content[_LENGTH_BYTES:end], name)
    return _arrays(tensors, names, name), texts


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading after finishing a killed save; errors name it."""
    finish_commit(path)
    try:
        with open(path, "rb", buffering=0, opener=regular_file) as file:
            yield file
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(error.errno or 0, f"cannot load: {error.strerror or error}", path) from error


@contextmanager
def _named_errors(name: str, file: IO[bytes] | None = None) -> Iterator[None]:
    """Turn the library's errors about a damaged file into errors that name it; raise for an empty file."""
    from safetensors import SafetensorError

    if file is not None and not os.fstat(file.fileno()).st_size:
        raise FileFormatError(f"{name}: byte 0: not a safetensors file; {likely_kind(b'')}")
    try:
        yield
    except SafetensorError as error:
        reason = str(error).rpartition("deserializing")[2].removeprefix(" header").lstrip(": ")
        raise FileFormatError(
            f"{name}: byte 0 (the header): {reason}; the file is truncated or damaged"
        ) from None


def _header(text: bytes, name: str) -> tuple[list[str], dict[str, str]]:
    """Return the order of the arrays, which the library does not report, and the texts of a checked header."""
    content = json.loads(text)
    texts = content.pop(_METADATA, None)
    if b"\\" in text or text.count(b'"data_offsets"') != len(content):  # an entry may be repeated
        names = [key for key, _ in json.loads(text, object_pairs_hook=list) if key != _METADATA]
        if repeated := sorted({key for key in names if names.count(key) > 1}):
            raise FileFormatError(
                f"{name}: more than one entry for {', '.join(repeated)}; the file is damaged"
            )
    return list(content), dict(texts or ())


def _arrays(tensors: Mapping[str, torch.Tensor], names: list[str], file: str) -> dict[str, NDArray]:
    context = cpu(0)
    return {name: NDArray(_usable(tensors[name], name, file), context) for name in names}


def _usable(tensor: torch.Tensor, name: str, file: str) -> torch.Tensor:
    """Return a tensor that is aligned, and whose bools only have the bytes 0 and 1."""
    if tensor.dtype not in _NAMES:
        known = ", ".join(_NAMES.values())
        raise FileFormatError(f"{file}: array {name!r} is of {tensor.dtype}, expected one of {known}")
    is_endless = not tensor.numel() and prod([n for n in tensor.shape if n]) >= _MOST_ELEMENTS
    if tensor.dim() > _MOST_AXES or is_endless:
        raise FileFormatError(
            f"{file}: array {name!r}: its shape is {tuple(tensor.shape)}, which is impossible"
        )
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8).ne(0)
    return tensor.clone() if tensor.data_ptr() % tensor.itemsize else tensor
