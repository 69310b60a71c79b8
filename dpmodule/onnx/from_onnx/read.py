"""Reading ONNX files and their arrays, with errors for damaged or foreign files."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import torch

from ..._files import likely_kind, path_text, regular_file
from ...base import FileError, FileFormatError, MissingPackageError
from ...ops.write_tracking import mark_owned

_LIMIT = 2**31 - 1
"""Maximal size of a message in bytes; larger arrays are stored in external files."""


def read_model(file: str | os.PathLike[str]) -> Any:
    """Read a file as a ModelProto, without its external arrays."""
    path = path_text(file, "model_file")
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingPackageError("ONNX files need the package onnx: pip install onnx") from error
    try:
        with open(path, "rb", opener=regular_file) as opened:
            if (size := os.fstat(opened.fileno()).st_size) > _LIMIT:
                raise FileFormatError(f"{path}: {size} bytes, an ONNX file has at most {_LIMIT}")
            data = opened.read()
    except OSError as error:
        raise FileError(error.errno, error.strerror, path) from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"{path}: not an ONNX file, or a truncated or damaged one: {error}") from None
    if not model.HasField("graph") or not model.ir_version:
        is_cut = data[:1] == b"\x08"  # the beginning of an ONNX file
        meaning = ("" if is_cut else likely_kind(data)) or f"{len(data)} bytes without a graph and a version"
        raise FileFormatError(f"{path}: not an ONNX file, or a truncated one: {meaning}")
    return model


# arrays of an ONNX file as torch tensors, external ones included

DTYPES = {
    code: dtype
    for dtype, codes in {
        "float32": (1, 17, 18, 19, 20, 23),
        "uint8": (2, 21, 25),
        "int8": (3, 22, 26),
        "int32": (4, 6),
        "int16": (5,),
        "int64": (7, 8, 12, 13),
        "bool": (9,),
        "float16": (10,),
        "float64": (11,),
        "bfloat16": (16,),
    }.items()
    for code in codes
}
"""ONNX's code of an element type, and the type in which operators compute. Unsigned integers above 8 bits become signed
ones of twice the size (64 bits keep their bits), since torch cannot compute with them; floats of 8 bits or fewer become
float32, and integers of 4 or 2 bits get 8. A text becomes its position in the list."""

CODES = {"float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10}
CODES |= {"float64": 11, "bfloat16": 16}
"""Codes of the types that need no conversion."""

UNSIGNED = {4: "uint16", 12: "uint32", 13: "uint64"}
"""Unsigned types of inputs and outputs, for which operators compute in another type."""

FEW_BITS = {
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    23: "float4_e2m1",
}
"""Floating types of few bits, stored as float32."""

RANGES = {2: (0, 255), 3: (-128, 127), 4: (0, 65535), 5: (-32768, 32767), 6: (-(2**31), 2**31 - 1)}
RANGES |= {12: (0, 2**32 - 1), 21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}
"""Minimum and maximum of the integer types of quantized values."""

_STRING, _BFLOAT16, _PLAIN = 8, 16, (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)


def _external(proto: Any, folder: str) -> bytes:
    """Read the bytes of an external array."""
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if not isinstance(location, str):
        raise ValueError("external data at a path that is not valid UTF-8")
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or os.path.isabs(location) or ".." in parts or ":" in parts[0]:
        raise ValueError(f"external data at {location!r}, expected a file in the model's own folder")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root:
        raise ValueError(f"external data at {location!r} leads out of the model's own folder")
    if not os.path.isfile(path):
        raise ValueError(f"external data at {location!r}: there is no such file")
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", os.path.getsize(path) - offset))
    except ValueError:
        raise ValueError(f"external data at {location!r}: offset or length is not a number") from None
    if offset < 0 or length < 0 or offset + length > os.path.getsize(path):
        raise ValueError(
            f"external data at {location!r}: expected bytes {offset} to {offset + length}, "
            f"but the file has {os.path.getsize(path)}"
        )
    if length != _size(proto):
        raise ValueError(f"external data at {location!r}: {length} bytes for {tuple(proto.dims)}")
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise ValueError(f"external data at {location!r}: {error}") from error


def _size(proto: Any) -> int:
    """Return the size of an array's values in bytes."""
    import onnx

    number: int = math.prod(proto.dims)
    if proto.data_type in (21, 22, 23):
        return (number + 1) // 2
    if proto.data_type in (25, 26):
        return (number + 3) // 4
    size: int = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type).itemsize
    return number * size


def tensor_of(proto: Any, folder: str) -> torch.Tensor:
    """Return a TensorProto's values."""
    from onnx import TensorProto, numpy_helper

    if proto.data_type not in DTYPES:
        raise ValueError(f"elements of type {proto.data_type}, which is not supported")
    if any(d < 0 for d in proto.dims):
        raise ValueError(f"shape {tuple(proto.dims)} has a negative dimension")
    if proto.data_type == _STRING:
        return _positions(proto)
    if proto.data_location == TensorProto.EXTERNAL:
        raw = _external(proto, folder)
        proto = TensorProto(dims=proto.dims, data_type=proto.data_type, raw_data=raw)
    if proto.HasField("raw_data") and len(proto.raw_data) != _size(proto):
        raise ValueError(f"{len(proto.raw_data)} bytes for {tuple(proto.dims)}, expected {_size(proto)}")
    try:
        values = numpy_helper.to_array(proto)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise ValueError(f"values that do not fit {tuple(proto.dims)}: {error}") from None
    return _as_tensor(np.asarray(values), proto.data_type)


def _positions(proto: Any) -> torch.Tensor:
    number = math.prod(proto.dims)
    if len(proto.string_data) != number:
        raise ValueError(f"{len(proto.string_data)} texts for {tuple(proto.dims)}")
    return torch.arange(number).reshape(tuple(proto.dims))


def _as_tensor(values: np.ndarray[Any, Any], code: int) -> torch.Tensor:
    if code == _BFLOAT16:
        return torch.from_numpy(values.view(np.int16).copy()).view(torch.bfloat16)
    name = DTYPES[code]
    if code not in _PLAIN:
        values = values.astype(np.float32 if name == "float32" else name)
    wanted = np.dtype(name)
    return mark_owned(torch.from_numpy(np.array(values, dtype=wanted, order="C")))
