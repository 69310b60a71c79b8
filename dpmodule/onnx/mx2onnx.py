"""MXNet's namespace ``mx.onnx.mx2onnx``."""

from __future__ import annotations

from .. import ops
from .._core import lazy
from ..base import ArgumentError
from .export import OPSETS, export_model

__all__ = ["export_model", "get_operator_support"]

lazy.publish(__name__, __all__)


def get_operator_support(opset_version: int | None = None) -> list[str]:
    """Return the names of the operators that `export_model` supports.

    Args:
        opset_version: version of ONNX's operators, 13 to 21; each supports the same operators.

    Raises:
        ArgumentError: the version is not supported.

    Example:
        >>> "Convolution" in mx.onnx.get_operator_support()
        True

    Source: MXNet 1.9.1 `mx.onnx.get_operator_support`.
    """
    if opset_version is not None and opset_version not in OPSETS:
        raise ArgumentError(
            f"opset_version is {opset_version}, expected one from {OPSETS[0]} to {OPSETS[-1]}"
        )
    records = {name: ops.get(name).onnx for name in ops.names()}
    return sorted(name for name, record in records.items() if record is not None and not record.missing)
