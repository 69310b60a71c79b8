"""Counting and finding the stored elements of CSR matrices; these may be zeros, as the numbers of edges are."""

from __future__ import annotations

from typing import Any

import torch

from ..shapes import normal_axis
from ..spec import Env
from .records import Csr
from .rule import SparseRule, Stypes, add_rule

Tensor = torch.Tensor


def _dense(a: Any, stypes: Stypes) -> Stypes | None:
    return ("default",) if stypes[0] == "csr" and set(stypes[1:]) <= {"default"} else None


def _getnnz(a: Any, env: Env, data: Csr) -> Tensor:
    if a.axis is None:
        return data.starts[-1:].clone()
    if normal_axis(a.axis, 2) == 1:
        return data.starts.diff()
    return torch.bincount(data.columns, minlength=data.shape[1])


def _edge_id(a: Any, env: Env, data: Csr, u: Tensor, v: Tensor) -> Tensor:
    width = data.shape[1]
    rows = torch.repeat_interleave(data.starts.diff())
    places, order = (rows * width + data.columns).sort()
    wanted = u.long() * width + v.long()
    missing = data.values.new_full(wanted.shape, -1)
    if not places.numel():
        return missing
    near = torch.searchsorted(places, wanted).clamp_(max=places.numel() - 1)
    return torch.where(places[near] == wanted, data.values[order[near]], missing)


add_rule("_contrib_getnnz", SparseRule(_dense, _getnnz))
add_rule("_contrib_edge_id", SparseRule(_dense, _edge_id))
