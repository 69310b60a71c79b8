"""Operators about how arrays are stored."""

from __future__ import annotations

from typing import Any

import torch

from ...base import ArgumentError, BoundsError, Shape
from ..attrs import choice
from ..registry import op
from ..shapes import same, unify
from ..spec import NEVER, ROWS, Attr, Env, Onnx, Shapes, Types, arg
from .records import Rows, stored_rows
from .rule import SparseRule, Stypes, add_rule, only, passed_on, stored_as


@op(
    "cast_storage",
    [arg("data", ROWS)],
    {"stype": Attr(choice("csr", "default", "row_sparse"), "wanted storage type")},
    aliases=("_sparse_cast_storage",),
    infer=same,
    view=True,
    onnx=Onnx("Identity", drop=("stype",)),
)
def cast_storage(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Change the storage type; one sparse type does not become the other.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `cast_storage`.
    """
    return data


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    return [data, ins[1]], [data]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    data = ins[0] or outs[0]
    return [data, ins[1]], [data]


@op(
    "_sparse_retain",
    [arg("data"), arg("indices")],
    infer=_infer,
    infer_type=_infer_type,
    batch=NEVER,
    onnx=Onnx(builder="retain"),
)
def sparse_retain(a: Any, env: Env, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Keep some rows and set the others to zero; a row-sparse array then stores those rows only.

    Shape:
        data: (rows, ...).
        indices: row numbers in any order and shape.
        returns: the shape of `data`.

    Raises:
        BoundsError: there is no such row.

    Source: MXNet 1.9.1 `sparse.retain`, which takes row-sparse arrays only.
    """
    kept = torch.zeros(data.shape[0], dtype=torch.bool, device=data.device)
    kept[_kept(data, indices)] = True
    return data.mul(kept.view(-1, *[1] * (data.dim() - 1)))


def _cast_storage(a: Any, stypes: Stypes) -> Stypes | None:
    if a.stype != stypes[0] and "default" not in (a.stype, stypes[0]):
        raise ArgumentError(f"cast_storage from {stypes[0]} to {a.stype} is not supported; go by 'default'")
    return (a.stype,)


def _cast(a: Any, env: Env, data: Any) -> Any:
    found = stored_as(data, a.stype)
    shared = found is data or found is getattr(data, "values", None)
    return found.clone() if shared else found


add_rule(
    "cast_storage",
    SparseRule(_cast_storage, _cast, passed_on, lambda a, stypes: (a.stype,)),
)


def _kept(data: Any, indices: torch.Tensor) -> torch.Tensor:
    """Return the rows to keep, each once, in ascending order."""
    found: torch.Tensor = torch.unique(indices.long())
    if found.numel() and not 0 <= int(found[0]) <= int(found[-1]) < data.shape[0]:
        wrong = int(found[0]) if int(found[0]) < 0 else int(found[-1])
        raise BoundsError(f"sparse.retain: row {wrong} is outside of an array with {data.shape[0]} rows")
    return found


def _retain(a: Any, env: Env, data: Rows, indices: torch.Tensor) -> Any:
    wanted = _kept(data, indices)
    if not data.rows.numel():
        wanted = wanted[:0]
    return Rows(wanted, data.pick(wanted), data.shape)


def _retain_grad(a: Any, env: Env, wanted: Any, grads: Any, data: Rows, indices: torch.Tensor) -> Any:
    grad, rows = grads[0], _kept(data, indices)
    known = Rows(*stored_rows(grad), grad.shape) if grad.is_sparse else None
    values = grad.index_select(0, rows) if known is None else known.pick(rows)
    return [Rows(rows, values, data.shape), torch.zeros_like(indices) if wanted[1] else None]


add_rule(
    "_sparse_retain",
    SparseRule(
        only("row_sparse", "default", to="row_sparse"),
        _retain,
        _retain_grad,
        lambda a, stypes: ("row_sparse", "default"),
    ),
)
