"""Operators about how arrays are stored; on dense values, which is what graphs have, they do little."""

from __future__ import annotations

from typing import Any

import torch

from ..base import Shape
from .attrs import choice
from .registry import op
from .shapes import same, unify
from .spec import ROWS, Attr, Env, Onnx, arg

__all__ = ["cast_storage", "sparse_retain"]


@op(
    "cast_storage",
    [arg("data", ROWS)],
    {"stype": Attr(choice("csr", "default", "row_sparse"), "wanted storage type")},
    aliases=("_sparse_cast_storage",),
    infer=same,
    view=True,
    onnx=Onnx("Identity"),
)
def cast_storage(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Change the storage type.

    A graph keeps all values dense, where this changes nothing; `nd.cast_storage` returns an array of the type.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `cast_storage`.
    """
    return data


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> tuple[list[Shape], list[Shape]]:
    data = unify(ins[0], outs[0], "data and output")
    return [data, ins[1]], [data]


def _infer_type(
    a: Any, ins: list[str | None], outs: list[str | None]
) -> tuple[list[str | None], list[str | None]]:
    data = ins[0] or outs[0]
    return [data, ins[1]], [data]


@op(
    "_sparse_retain",
    [arg("data"), arg("indices")],
    infer=_infer,
    infer_type=_infer_type,
)
def sparse_retain(a: Any, env: Env, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Keep some rows and set the others to zero; a row-sparse array then stores those rows only.

    Shape:
        data: (rows, ...).
        indices: row numbers in any order and shape.
        returns: the shape of `data`.

    Source: MXNet 1.9.1 `sparse.retain`, which takes row-sparse arrays only.
    """
    kept = torch.zeros(data.shape[0], dtype=torch.bool, device=data.device)
    kept[indices.long().flatten()] = True
    return data.mul(kept.view(-1, *[1] * (data.dim() - 1)))
