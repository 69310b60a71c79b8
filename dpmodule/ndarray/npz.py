"""Reader of the files of arrays that MXNet 2.0 writes: zip archives of ``.npy`` files, as NumPy's ``savez`` makes them.

A sparse array is a folder of the files ``data``, ``indices``, ``indptr`` (CSR only), ``shape`` and ``format``. Nothing
in an archive is executed, and every size is compared with the file's before it is used.

Source: MXNet 2.0 ``src/serialization/cnpy.cc``.
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy

from ..base import FileFormatError, MXNetError
from ..ops.write_tracking import mark_owned
from .binary_reader import Make

_ENDING = ".npy"
_SPARSE = {
    "csr": {"data", "indices", "indptr", "shape", "format"},
    "row_sparse": {"data", "indices", "shape", "format"},
}
_MOST_COMPRESSED = 200
"""Largest size of the unpacked arrays, in sizes of the archive, of archives that are worth reading: MXNet compresses
numbers, of which few are alike."""
_SMALL = 2**26
"""Unpacked bytes that are always read."""


_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
"""Errors of Python's reader, and of what it calls, for archives with changed bytes."""


def open_archive(file: IO[bytes]) -> zipfile.ZipFile | None:
    """Return the archive in a file that begins like an archive, or None if it has no arrays, such as one of torch."""
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGED:
        return None
    return archive if any(name.endswith(_ENDING) for name in archive.namelist()) else None


def read(archive: zipfile.ZipFile, size: int, name: str, make: Make) -> dict[str, Any]:
    """Read all arrays.

    Args:
        size: number of bytes of the archive.
        name: name of the file in messages.
        make: creates an array from its elements, index arrays and shape.

    Raises:
        FileFormatError: the archive is damaged, too large when unpacked, or has types that no array can have.
    """
    members = {
        each.filename[: -len(_ENDING)]: each for each in archive.infolist() if each.filename.endswith(_ENDING)
    }
    total = sum(each.file_size for each in members.values())
    if total > max(_SMALL, size * _MOST_COMPRESSED):
        raise FileFormatError(
            f"{name}: {size} bytes claim to unpack to {total} bytes; the archive is not read"
        )
    arrays = {}
    for entry, group in _grouped(members).items():
        where = f"{name}: array {entry!r}"
        try:
            arrays[entry] = _array(archive, group, where, make)
        except MXNetError:
            raise
        except _DAMAGED as error:
            raise FileFormatError(f"{where}: {error}; the file is truncated or damaged") from None
    return arrays


def _grouped(members: Mapping[str, zipfile.ZipInfo]) -> dict[str, dict[str, zipfile.ZipInfo]]:
    """Return the files of each array: one, named "", or those of a sparse array."""
    folders: dict[str, set[str]] = {}
    for name in members:
        folder, _, last = name.rpartition("/")
        folders.setdefault(folder, set()).add(last)
    groups: dict[str, dict[str, zipfile.ZipInfo]] = {}
    for name, member in members.items():
        folder, _, last = name.rpartition("/")
        if folder and folders[folder] in _SPARSE.values():
            groups.setdefault(folder, {})[last] = member
        else:
            groups[name] = {"": member}
    return groups


def _array(archive: zipfile.ZipFile, group: Mapping[str, zipfile.ZipInfo], where: str, make: Make) -> Any:
    parts = {key: _values(archive, member, f"{where} {key}".rstrip()) for key, member in group.items()}
    if "" in parts:
        tensor = _tensor(parts[""], where)
        return make(tensor, [], tuple(tensor.shape))
    kind = parts["format"].reshape(-1)[0] if parts["format"].size else b""
    expected = "csr" if "indptr" in parts else "row_sparse"
    if kind not in (expected, expected.encode()):
        raise FileFormatError(f"{where} is sparse of the format {kind!r}, expected {expected!r}")
    indices = [_tensor(parts[key], where) for key in ("indptr", "indices") if key in parts]
    try:
        return make(_tensor(parts["data"], where), indices, tuple(map(int, parts["shape"].reshape(-1))))
    except (MXNetError, ValueError, TypeError) as error:
        raise FileFormatError(f"{where}: {error}") from error


def _values(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> np.ndarray[Any, Any]:
    """Return the array of a ``.npy`` file, whose header must fit its size."""
    with archive.open(member) as file:
        try:
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, is_fortran, dtype = header(file)
        except (ValueError, SyntaxError, TypeError, tokenize.TokenError) as error:
            raise FileFormatError(f"{where}: not an .npy file: {error}") from None
        count = 1
        for dim in shape:
            count *= dim
        left = member.file_size - file.tell()
        if dtype.hasobject or count < 0 or count * dtype.itemsize != left:
            raise FileFormatError(f"{where}: {left} bytes for an array of shape {shape} and type {dtype}")
        data = np.frombuffer(bytearray(file.read(left)), dtype)
    return data.reshape(shape, order="F" if is_fortran else "C")


def _tensor(values: np.ndarray[Any, Any], where: str) -> torch.Tensor:
    try:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(values.shape)
        return mark_owned(torch.from_numpy(native))
    except TypeError:
        raise FileFormatError(f"{where} has the type {values.dtype}, which no array has") from None
