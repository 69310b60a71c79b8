"""Look-up of rows in a table."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...base import Shape
from ..attrs import boolean, dtype, integer
from ..registry import op
from ..shapes import unify
from ..spec import ROWS, Attr, Env, Onnx, Shapes, Types, arg, param
from .rules import agree


def table_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer shapes where rows of a table are picked: indices and output share all axes but the last."""
    data, out = ins[0], outs[0]
    weight = agree("weight", ins[1], (a.input_dim, a.output_dim), data)
    if out:
        data = unify(data, out[:-1], "indices and output without its last axis")
    if data is not None:
        out = agree("output", out, (*data, a.output_dim), data)
    return [data, weight], [out]


def table_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer types likewise: indices may have any; the output has the table's, the attribute's unless known."""
    table = ins[1] or outs[0] or a.dtype
    return [ins[0], table], [outs[0] or table]


@op(
    "Embedding",
    [arg("data", ROWS), param("weight")],
    {
        "input_dim": Attr(integer(low=1), "number of rows of the table"),
        "output_dim": Attr(integer(low=1), "length of a row"),
        "dtype": Attr(dtype, "type of the table", "float32"),
        "sparse_grad": Attr(boolean, "make the table's gradient row-sparse", False),
    },
    aliases=["_sparse_Embedding"],
    infer=table_shapes,
    infer_type=table_types,
    onnx=Onnx("Gather", builder="embedding"),
)
def embedding(a: Any, env: Env, data: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Take a row of the table for each index.

    Fractions are cut off; indices beyond an end take the end's row.

    Shape:
        data: any, numbers of any type.
        weight: (input_dim, output_dim).
        output: (*data, output_dim).

    Source: MXNet 1.9.1 `Embedding`, which clips indices likewise.
    """
    return F.embedding(data.long().clamp(0, a.input_dim - 1), weight)
