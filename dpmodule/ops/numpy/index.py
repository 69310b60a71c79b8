"""Selecting elements."""

from __future__ import annotations

from typing import Any

import torch

from ..registry import pure
from ..shapes import broadcasting
from ..spec import Onnx, Types, arg
from .rules import common, to_common


def _where_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the common type of both values; the condition may have any."""
    known = next((t for t in (*ins[1:], *outs) if t is not None), None)
    if known is None:
        return ins, outs
    values = [t or known for t in ins[1:]]
    return [ins[0], *values], [common(*values) if values else outs[0]]


@pure(
    "_npi_where",
    [arg("condition"), arg("x"), arg("y")],
    infer=broadcasting,
    infer_type=_where_types,
    onnx=Onnx("Where", builder="np_where"),
)
def where(a: Any, condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Choose elements of `x` where the condition is not 0, else of `y`, with broadcasting.

    Shape:
        condition, x, y: shapes whose dimensions are equal or 1, aligned at the end.
        returns: the largest of each three dimensions; the common dtype of `x` and `y`.

    Source: MXNet 1.9.1 `_npi_where`.
    """
    return torch.where(condition if condition.dtype == torch.bool else condition != 0, *to_common(x, y))
