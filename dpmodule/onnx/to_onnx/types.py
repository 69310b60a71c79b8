"""Element types of ONNX, and arrays as it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

__all__ = ["allowed_types", "code_of", "computed_in", "fill", "most_inputs", "value_info", "working_type"]

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


def fill(found: onnx.TensorProto, name: str, array: np.ndarray[Any, Any], dtype: str) -> None:
    """Put an array into an empty tensor of ONNX.

    Args:
        found: the tensor.
        name: what the graph calls it.
        array: the elements; 16-bit patterns (uint16) where `dtype` is "bfloat16".
        dtype: name of the elements' type.
    """
    found.name, found.data_type = name, _CODES[dtype]
    found.dims.extend(array.shape)
    found.raw_data = array.tobytes()


_ONLY_SINGLE = """
Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cosh Det Elu Erf Gelu GlobalAveragePool
HardSigmoid HardSwish InstanceNormalization LRN LeakyRelu Mean Mish Multinomial PRelu RNN Resize RoiAlign
Selu Sinh Softplus Softsign Tan ThresholdedRelu
"""
"""Operators that ONNX Runtime computes in single precision only."""

_ONLY_WIDE = """
CumSum Einsum Pow Range ReduceL1 ReduceL2 ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare
"""
"""Operators that take integers there, but none smaller than int32, and no unsigned ones."""

_NO_UNSIGNED = frozenset({"ArgMax", "ArgMin", "Pad", "ReduceMax", "ReduceMin", "TopK", "Where"})
"""Operators that lack int16, unsigned integers above uint8, and bool there."""

_NARROW = {"bool", "int8", "uint8", "int16", "uint16"}
_UNSIGNED = {"uint16", "uint32", "uint64"}


@cache
def allowed_types(operator: str, opset: int) -> frozenset[str]:
    """Return the dtype names that an ONNX operator takes as its first input, and that ONNX Runtime computes it in.

    Half precision counts as computed: ONNX Runtime converts by itself where it has to.
    """
    schema = onnx.defs.get_schema(operator, opset, "")
    if not schema.inputs:
        return frozenset(_CODES)
    types = schema.inputs[operator == "Where"].types  # the first input of Where is the condition
    found = {name for name in _CODES if f"tensor({_IN_SCHEMAS.get(name, name)})" in types}
    if operator in _ONLY_SINGLE.split():
        found &= {"float16", "bfloat16", "float32"}
    if operator in _ONLY_WIDE.split():
        found -= _NARROW | _UNSIGNED
    if operator in _NO_UNSIGNED:
        found -= _UNSIGNED | {"bool", "int16"}
    if operator in ("Sum", "Relu"):
        found -= _NARROW | _UNSIGNED | {"int64"}
    return frozenset(found)


def computed_in(operator: str, opset: int, dtype: str) -> str:
    """Return the dtype name in which an operator on elements of type `dtype` is computed: that, or a wider one."""
    allowed = allowed_types(operator, opset)
    if dtype in allowed:
        return dtype
    wider: tuple[str, ...] = ("float32",) if "float" in dtype else ("int32", "int64", "float64", "float32")
    if dtype in ("int32", "int64", "uint32", "uint64"):
        wider = wider[1:]
    return next((each for each in wider if each in allowed), "float32")


def working_type(dtype: str) -> str:
    """Return the dtype name in which formulas of several operators are computed: single or double precision."""
    return "float32" if dtype in ("float16", "bfloat16", "float32") else "float64"


@cache
def most_inputs(operator: str, opset: int) -> int:
    """Return how many inputs an ONNX operator takes at most."""
    return int(onnx.defs.get_schema(operator, opset, "").max_input)
