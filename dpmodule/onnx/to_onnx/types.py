"""Element types of ONNX, and arrays as it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

__all__ = ["allowed_types", "code_of", "most_inputs", "tensor", "value_info"]

_CODES = {
    "float32": onnx.TensorProto.FLOAT,
    "float64": onnx.TensorProto.DOUBLE,
    "float16": onnx.TensorProto.FLOAT16,
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "uint8": onnx.TensorProto.UINT8,
    "int8": onnx.TensorProto.INT8,
    "uint16": onnx.TensorProto.UINT16,
    "int16": onnx.TensorProto.INT16,
    "uint32": onnx.TensorProto.UINT32,
    "int32": onnx.TensorProto.INT32,
    "uint64": onnx.TensorProto.UINT64,
    "int64": onnx.TensorProto.INT64,
    "bool": onnx.TensorProto.BOOL,
}
_IN_SCHEMAS = {"float32": "float", "float64": "double"}


def code_of(dtype: str) -> int:
    """Return ONNX's number of a dtype name."""
    return _CODES[dtype]


def value_info(name: str, dtype: str, dims: Sequence[int | str]) -> onnx.ValueInfoProto:
    """Return the declaration of an input or output."""
    return onnx.helper.make_tensor_value_info(name, _CODES[dtype], dims)


def tensor(name: str, array: np.ndarray[Any, Any], dtype: str) -> onnx.TensorProto:
    """Return an array as ONNX stores it.

    Args:
        name: what the graph calls it.
        array: the elements; 16-bit patterns (uint16) where `dtype` is "bfloat16".
        dtype: name of the elements' type.
    """
    found = onnx.TensorProto(name=name, data_type=_CODES[dtype], dims=array.shape)
    found.raw_data = np.ascontiguousarray(array).tobytes()
    return found


@cache
def allowed_types(operator: str, opset: int) -> frozenset[str]:
    """Return the dtype names that an ONNX operator takes as its first input."""
    schema = onnx.defs.get_schema(operator, opset, "")
    if not schema.inputs:
        return frozenset(_CODES)
    return frozenset(
        name for name in _CODES if f"tensor({_IN_SCHEMAS.get(name, name)})" in schema.inputs[0].types
    )


@cache
def most_inputs(operator: str, opset: int) -> int:
    """Return how many inputs an ONNX operator takes at most."""
    return int(onnx.defs.get_schema(operator, opset, "").max_input)
