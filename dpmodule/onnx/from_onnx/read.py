"""An ONNX file as a message, read so that a damaged or foreign one is told from a good one."""

from __future__ import annotations

import os
from typing import Any

from ...base import ArgumentError, FileError, FileFormatError, MissingPackageError
from ...files import likely_kind, regular_file

_LIMIT = 2**31 - 1
"""Bytes that a message may have; arrays beyond that lie in files beside it."""


def read_model(file: str | os.PathLike[str]) -> Any:
    """Read a file as a ModelProto; arrays that lie in other files are left there."""
    if not isinstance(file, (str, os.PathLike)):
        raise ArgumentError(f"model_file is a {type(file).__name__}, expected the path of an ONNX file")
    path = os.fspath(file)
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
        raise FileFormatError(f"{path}: no ONNX file, or a truncated or damaged one: {error}") from None
    if not model.HasField("graph") or not model.ir_version:
        meaning = likely_kind(data) or f"{len(data)} bytes without a graph and a version"
        raise FileFormatError(f"{path}: not an ONNX file, or a truncated one: {meaning}")
    return model
