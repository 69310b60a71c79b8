"""Files of arrays, in MXNet's binary format (``.params``, ``.nd``), in all its layouts, and in safetensors.

MXNet's format is little-endian without padding::

    file    u64 0x112, u64 0, u64 n, n arrays, u64 k, k x (u64 length, UTF-8 name)    k = n, or 0 for a list
    shape   i32 axes, axes x i64
    V2      u32 0xF993FAC9, i32 storage type, shape, i32 device type, i32 device, i32 type number, data
            (without axes the array is empty and the record ends after the shape)
    V3      u32 0xF993FACA, as V2; without axes it is a scalar, with -1 axes the record ends after the shape
    V1      u32 0xF993FAC8, as V2 without storage type
    V0      u32 axes, axes x u32, i32 device type, i32 device, i32 type number, data
    sparse  V2 with storage type 1 or 2: the shape of the stored part before the shape, and after the type
            number the type number and shape of each index array (1 or 2); the index arrays follow the data

MXNet 2.0 writes archives, see `npz`.

Source: the layouts of MXNet 0.8 to 1.9.1, checked against files it wrote.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Mapping, Sequence
from typing import IO, Any, cast

import torch

from .._core import mode
from .._files import finish_commit, likely_kind, regular_file, write_atomically
from ..base import ArgumentError, DTypeError, FileError, dtype_code
from ..context import cpu
from ..ops.dtypes import name_of
from . import binary_reader, safetensors
from .binary_reader import LIST_MAGIC, V2, V3
from .convert import bytes_of
from .csr import CSRNDArray
from .handle import Handle
from .ndarray import NDArray
from .row_sparse import RowSparseNDArray
from .sparse_base import BaseSparseNDArray

Arrays = list[NDArray] | dict[str, NDArray]

SAFETENSORS = ".safetensors"

_FOREIGN = {
    **dict.fromkeys((".npz", ".npy"), "numpy.savez and numpy.save write it"),
    **dict.fromkeys((".pt", ".pth", ".pt2"), "torch.save writes it, of tensors such as NDArray.tensor"),
    ".onnx": "onnx.export_model writes it",
    **dict.fromkeys((".h5", ".hdf5", ".keras"), "h5py writes it, of arrays such as NDArray.asnumpy()"),
    **dict.fromkeys((".pkl", ".pickle"), "pickle.dump writes it"),
    ".mat": "scipy.io.savemat writes it",
    **dict.fromkeys((".pb", ".tflite"), "TensorFlow writes it"),
    ".gguf": "llama.cpp writes it",
}
"""Extensions of other systems' formats, and how to write them."""

_HEAD_BYTES = 64
_ZIP = b"PK\x03\x04"
_CPU = struct.pack("<ii", 1, 0)
"""Device in every record: files do not depend on the machine that wrote them."""


def save(fname: str | os.PathLike[str], data: Handle | Sequence[Any] | Mapping[str, Any]) -> None:
    """Save arrays, replacing the file atomically.

    A file named ``*.safetensors`` gets that format, which holds dense arrays by name. Others get MXNet's format, unless
    the extension belongs to the format of another system.

    Args:
        data: an NDArray, dense or sparse, a list of them, or a dict of them by name.

    Raises:
        ArgumentError: `data` is not one of these, an entry is ragged, the format cannot hold it, or the file name has
            the extension of another format.
        DTypeError: an entry is not an NDArray, or a name is not a string.
        FileError: the file cannot be written; an old file is unchanged.

    Example:
        >>> mx.nd.save("net.params", {"arg:weight": mx.nd.ones((2, 3))})
        >>> mx.nd.save("net.safetensors", {"weight": mx.nd.ones((2, 3))})
    """
    ending = os.path.splitext(os.fspath(fname))[1].lower()
    if ending in _FOREIGN:
        raise ArgumentError(
            f"save: {os.fspath(fname)!r} has the extension of another format; {_FOREIGN[ending]}, and "
            "nd.save writes MXNet's format (such as .params) and .safetensors"
        )
    names, arrays = _entries(data)
    if ending != SAFETENSORS:
        write_atomically(fname, lambda file: _write(file, names, arrays))
    elif not isinstance(data, Mapping):
        raise ArgumentError(f"save: {os.fspath(fname)!r} holds arrays by name; pass a dict of arrays")
    else:
        named = dict(zip(names, arrays, strict=True))
        write_atomically(fname, lambda file: safetensors.write(file, named))


def write(file: IO[bytes], data: Handle | Sequence[Any] | Mapping[str, Any]) -> None:
    """Write arrays in MXNet's format to an open file; arguments as in `save`."""
    names, arrays = _entries(data)
    _write(file, names, arrays)


def _entries(data: Handle | Sequence[Any] | Mapping[str, Any]) -> tuple[list[str], list[Handle]]:
    """Return names (empty for a list) and arrays."""
    if isinstance(data, Handle):
        data = [data]
    if isinstance(data, Mapping):
        names, arrays = list(data), list(data.values())
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        names, arrays = [], list(data)
    else:
        raise ArgumentError(f"save takes an NDArray, a list or a dict of NDArrays, got {type(data).__name__}")
    for name in names:
        if not isinstance(name, str):
            raise DTypeError(f"save: the name {name!r} is {type(name).__name__}, expected str")
    for key, array in zip(names or range(len(arrays)), arrays, strict=True):
        if not isinstance(array, Handle):
            raise DTypeError(f"save: entry {key!r} is {type(array).__name__}, expected NDArray")
        if array.stype == "ragged":
            raise ArgumentError(
                f"save: entry {key!r} is ragged, which the file formats do not support; save its .values and .offsets"
            )
    return names, arrays


def _write(file: IO[bytes], names: list[str], arrays: list[Handle]) -> None:
    file.write(struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays)))
    for array in arrays:
        if isinstance(array, BaseSparseNDArray):
            _write_sparse(file, array)
        else:
            _write_array(file, array.raw)
    file.write(struct.pack("<Q", len(names)))
    for name in names:
        text = name.encode()
        file.write(struct.pack("<Q", len(text)) + text)


def _write_array(file: IO[bytes], tensor: torch.Tensor) -> None:
    """Write one record: V2, or V3 if the shape or `np_shape` requires it."""
    shape = tuple(tensor.shape)
    magic = V3 if mode.is_np_shape() or not shape else V2
    head = struct.pack("<Ii", magic, 0) + _shape(shape)
    file.write(head + _CPU + struct.pack("<i", dtype_code(name_of(tensor.dtype))))
    file.write(bytes_of(tensor))


def _write_sparse(file: IO[bytes], array: BaseSparseNDArray) -> None:
    """Write one V2 record of a sparse array, whose index arrays follow the data."""
    if isinstance(array, RowSparseNDArray):
        storage, indices = 1, [array.indices.raw]
    else:
        csr = cast("CSRNDArray", array)
        storage, indices = 2, [csr.indptr.raw, csr.indices.raw]
    head = struct.pack("<Ii", V2, storage) + _shape(array.values.shape) + _shape(array.shape)
    file.write(head + _CPU + struct.pack("<i", dtype_code(name_of(array.values.dtype))))
    for index in indices:
        file.write(struct.pack("<i", dtype_code("int64")) + _shape(index.shape))
    for tensor in (array.values, *indices):
        file.write(bytes_of(tensor))


def _shape(shape: Sequence[int]) -> bytes:
    return struct.pack(f"<i{len(shape)}q", len(shape), *shape)


def read(file: IO[bytes], size: int, name: str) -> Arrays:
    """Read arrays from an open file.

    Args:
        size: bytes from there to the end.
    """
    found: Arrays = binary_reader.read(file, size, name, _array)
    return found


def _read_file(file: IO[bytes], size: int, name: str, head: bytes) -> Arrays:
    """Read a whole file of MXNet, from its beginning."""
    if head.startswith(_ZIP):
        from . import npz  # few files are archives

        if (archive := npz.open_archive(file)) is not None:
            with archive:
                return npz.read(archive, size, name, _array)
        file.seek(0)
    return read(file, size, name)


def _array(values: torch.Tensor, indices: list[torch.Tensor], shape: tuple[int, ...]) -> NDArray:
    """Return the array of a record after a bounds check of its indices."""
    if not indices:
        return NDArray(values, cpu(0))
    array: BaseSparseNDArray
    if len(indices) == 1:
        array = RowSparseNDArray(values, indices[0], shape, cpu(0))
    else:
        array = CSRNDArray(values, indices[1], indices[0], shape, cpu(0))
    array.check_bounds()
    return array


def load(fname: str | os.PathLike[str]) -> Any:
    """Load the arrays of a file written by any version of MXNet or by `save`, or of any safetensors or .npz file.

    The content determines the format. The arrays are on cpu(0), wherever they were saved. Nothing in the file is
    executed. A safetensors file of 16 MB or more is memory-mapped, see `safetensors.read`.

    Args:
        fname: path of the file.

    Returns:
        A dict if the file holds names, else a list.

    Raises:
        FileError: the file cannot be opened or read.
        FileFormatError: it is damaged, truncated or in another format; the message names file and byte.
        DTypeError: `fname` is not a path.
    """
    if not isinstance(fname, (str, os.PathLike)):
        raise DTypeError(f"load takes a file name, got {type(fname).__name__}")
    path = os.fspath(fname)
    finish_commit(path)
    try:
        with open(path, "rb", opener=regular_file) as file:
            head = file.read(_HEAD_BYTES)
            file.seek(0)
            if _is_safetensors(head, path):
                return safetensors.read_file(file, path)[0]
            return _read_file(file, os.fstat(file.fileno()).st_size, path, head)
    except FileError:
        raise
    except OSError as error:
        raise FileError(error.errno or 0, f"cannot load: {error.strerror or error}", path) from error


def _is_safetensors(head: bytes, path: str) -> bool:
    """Return True if a file is read as safetensors: it begins like one, or has the extension and is not MXNet's."""
    if safetensors.looks_like(head):
        return True
    is_ours = int.from_bytes(head[:8], "little") == LIST_MAGIC
    return path.lower().endswith(SAFETENSORS) and not is_ours and not likely_kind(head)


def load_frombuffer(buf: bytes | bytearray | memoryview) -> Arrays:
    """Load arrays from the bytes of a file; otherwise like `load`.

    Raises:
        DTypeError: `buf` is not bytes.
        FileFormatError: as in `load`.
    """
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise DTypeError(f"load_frombuffer takes bytes, got {type(buf).__name__}")
    view = memoryview(buf).cast("B")
    head = bytes(view[:_HEAD_BYTES])
    if safetensors.looks_like(head):
        return safetensors.read_bytes(view, "<buffer>")
    return _read_file(io.BytesIO(buf), view.nbytes, "<buffer>", head)
