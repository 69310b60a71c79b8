"""Operators that are one operator of ONNX, too."""

from __future__ import annotations

from typing import Any

from ...ops.spec import Onnx
from .call import OperatorCall
from .common import in_type
from .types import allowed_types, code_of, computed_in, most_inputs

__all__ = ["translate_plainly"]


def translate_plainly(c: OperatorCall, record: Onnx) -> list[str]:
    """Write the operator that a record names, in a type that it takes."""
    dtype = _computed_in(c, record.type)
    taken = list(zip(c.inputs, c.dtypes))[: most_inputs(record.type, c.opset)]
    inputs = [x if found == dtype else c.cast(x, dtype) for x, found in taken]
    if record.scalar:
        number = c.const(c.a.scalar, dtype)
        inputs = [number, *inputs] if record.scalar == "first" else [*inputs, number]
    found = c.emit(record.type, *inputs, outputs=len(c.out_dtypes), **_attributes(c, record))
    outputs = [found] if isinstance(found, str) else list(found)
    made_in = None if record.type in _OWN_TYPE else dtype
    return [in_type(c, x, made_in or wanted, wanted) for x, wanted in zip(outputs, c.out_dtypes)]


_OWN_TYPE = frozenset({"Cast", "Shape", "Size"})
"""ONNX operators whose result is not of their input's type."""


def _computed_in(c: OperatorCall, operator: str) -> str:
    """Return the type in which an operator of ours is computed there."""
    found = c.dtypes[0]
    wanted = c.out_dtypes[0] if operator not in _OWN_TYPE else found
    if wanted != found and wanted in allowed_types(operator, c.opset):
        return wanted
    return computed_in(operator, c.opset, found)


def _attributes(c: OperatorCall, record: Onnx) -> dict[str, Any]:
    found = {theirs: getattr(c.a, ours) for ours, theirs in record.rename.items()}
    if "to" in found:
        found["to"] = code_of(found["to"])
    return {**found, **record.const}
