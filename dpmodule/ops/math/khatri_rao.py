"""The product of matrices column by column."""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import integer
from ..bound import bound
from ..shapes import output_shape
from ..spec import Attr, Onnx, Shapes, Variadic


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    columns = outs[0][1] if outs[0] is not None and len(outs[0]) == 2 else 0
    for shape in ins:
        if shape is None:
            continue
        if len(shape) != 2 or (columns and shape[1] and shape[1] != columns):
            raise ShapeError(
                f"khatri_rao: inputs have shapes {ins}, expected matrices of equally many columns"
            )
        columns = columns or shape[1]
    filled: list[Shape] = [None if s is None else (s[0], columns) for s in ins]
    rows = 1
    for shape in filled:
        rows *= shape[0] if shape is not None else 0
    return filled, [output_shape(outs[0], (rows, columns))]


@bound(
    "khatri_rao",
    attrs={"num_args": Attr(integer(low=0), "number of inputs; counted by the call", 0)},
    variadic=Variadic(),
    infer=_infer,
    onnx=Onnx(builder="khatri_rao"),
)
def khatri_rao(a: Any) -> Any:
    """Return, column by column, the Kronecker product of the inputs' columns.

    Shape:
        arg0, arg1, ...: (R0, C), (R1, C), ...
        returns: (R0 * R1 * ..., C).

    Example:
        >>> mx.nd.khatri_rao(mx.nd.array([[1, 2]]), mx.nd.array([[3, 4], [5, 6]])).asnumpy()
        array([[ 3.,  8.],
               [ 5., 12.]], dtype=float32)

    Source: MXNet 1.9.1 `khatri_rao`; Khatri and Rao (1968).
    """

    def khatri_rao(*matrices: torch.Tensor) -> torch.Tensor:
        if not matrices:
            raise OpError("khatri_rao: no inputs are given, expected at least one matrix")
        width = matrices[0].shape[-1]
        if any(m.dim() != 2 or m.shape[1] != width for m in matrices):
            shapes = [tuple(m.shape) for m in matrices]
            raise ShapeError(
                f"khatri_rao: inputs have shapes {shapes}, expected matrices of equally many columns"
            )
        found = matrices[0]
        for other in matrices[1:]:
            found = (found.unsqueeze(1) * other).reshape(-1, width)
        return found

    return khatri_rao
