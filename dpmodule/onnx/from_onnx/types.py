"""Element types that torch does not compute with: what keeps values within them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .build import GraphBuilder
from .forms import flag
from .problems import Refused
from .tensors import CODES, DTYPES, FEW_BITS, RANGES, UNSIGNED
from .value import OnnxValue

_UINT64 = 13
_BOOL = 9
_WRAPS = {
    "Add",
    "BitShift",
    "CumProd",
    "CumSum",
    "Einsum",
    "Gemm",
    "MatMul",
    "Mul",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Sub",
    "Sum",
}
"""Operators whose results may leave the range of unsigned integers."""
_ORDERS = {
    "ArgMax",
    "ArgMin",
    "Clip",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "ReduceMax",
    "ReduceMin",
    "TopK",
}
"""Operators that depend on the order of numbers alone."""
_REFUSED = {
    "Abs",
    "Div",
    "Mean",
    "Mod",
    "Pow",
    "Range",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMean",
    "Sign",
}
"""Operators whose results for integers of 64 bits do not follow from those for signed ones."""


def cast_to(b: GraphBuilder, x: OnnxValue, code: int, saturate: bool = True) -> OnnxValue:
    """Convert to an element type, as ONNX's Cast does.

    Args:
        code: ONNX's number of the type.
        saturate: whether floats beyond a type of 8 bits become its greatest value.
    """
    if code not in DTYPES or code == 8:
        raise Refused(f"a cast to element type {code}, which dpmodule does not have")
    if x.type == code:
        return x
    dtype = DTYPES[code]
    if x.type == _UINT64 and (code in FEW_BITS or "float" in dtype):
        x = x.cast(UNSIGNED[_UINT64])
    if code == _BOOL:
        return flag(x)
    if code in FEW_BITS:
        floats = x if "float" in x.dtype else x.cast(dtype)
        return floats.apply("_onnx_round", to=FEW_BITS[code], saturate=saturate).cast(dtype)
    if code in UNSIGNED:
        return x.cast(UNSIGNED[code]).cast(dtype)
    low, high = RANGES.get(code, (0, 0))
    if not 0 < high - low < 16:
        return x.cast(dtype)
    rest = (x.cast("int32") - float(low)) % float(high - low + 1)
    return (rest + float(low)).cast(dtype)


def prepared(b: GraphBuilder, kind: str, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of an operator, changed so that signed arithmetic is right for uint64."""
    large = [isinstance(value, OnnxValue) and value.code == _UINT64 for value in inputs]
    if kind in _REFUSED and any(large):
        raise Refused(
            f"{kind} of uint64; torch has no unsigned arithmetic: cast to int64 before, or to a float"
        )
    if kind not in _ORDERS:
        return list(inputs)
    return [_turned(b, value) if is_large else value for value, is_large in zip(inputs, large)]


def _turned(b: GraphBuilder, x: OnnxValue) -> OnnxValue:
    """Flip the highest bit: signed integers then have the order of the unsigned ones. Twice is the value itself."""
    lowest = b.constant(torch.tensor([-(2**63)]))
    made = b("broadcast_add", x, lowest).as_scalar(x.is_scalar)
    made.code = x.code
    return made


def typed(
    b: GraphBuilder, kind: str, schema: Any, inputs: Sequence[Any], attrs: dict[str, Any], made: Any
) -> list[Any]:
    """Return the results of an operator with their element types in the file, wrapped to their range."""
    codes: dict[str, int] = {}
    for i, value in enumerate(inputs):
        if isinstance(value, OnnxValue) and schema.inputs:
            codes.setdefault(schema.inputs[min(i, len(schema.inputs) - 1)].type_str, value.type)
    named = next((attrs[name] for name in ("to", "dtype", "output_dtype") if attrs.get(name)), 0)
    named = named or getattr(attrs.get("value"), "data_type", 0)
    body = attrs.get("then_branch", attrs.get("body"))
    values = list(made) if isinstance(made, (list, tuple)) else [made]
    for i, value in enumerate(values):
        if not isinstance(value, OnnxValue) or not schema.outputs:
            continue
        code = codes.get(schema.outputs[min(i, len(schema.outputs) - 1)].type_str, named)
        if body is not None:  # the first output of a loop's body is its condition
            code = body.output[i + (kind == "Loop")].type.tensor_type.elem_type
        values[i] = _in_range(b, kind, of_type(value, code))
    return values


def of_type(value: OnnxValue, code: int) -> OnnxValue:
    """Return a value with ONNX's number of its type in the file, where operators compute in another type."""
    is_other = DTYPES.get(code) == value.dtype and CODES[value.dtype] != code
    code = code if is_other else 0
    if value.code == code:
        return value
    made = value.again()
    made.code = code
    return made


def _in_range(b: GraphBuilder, kind: str, value: OnnxValue) -> OnnxValue:
    if value.code == _UINT64 and kind in _ORDERS:
        return _turned(b, value)
    if value.code in UNSIGNED and value.code != _UINT64 and kind in _WRAPS:
        code, value = value.code, value.cast(UNSIGNED[value.code]).cast(value.dtype)
        value.code = code
    return value
