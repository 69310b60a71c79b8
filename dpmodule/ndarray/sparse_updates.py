"""What update operators do with a row-sparse gradient: update the rows that it stores, and leave the others.

Source: MXNet 1.9.1, whose optimizers do so under ``lazy_update``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .execution import lazy_rules
from .handle import Handle
from .row_sparse import RowSparseNDArray, rows_of, sum_rows

Tensor = torch.Tensor


def _write_rows(array: Handle, rows: Tensor, values: Tensor) -> None:
    """Give rows of a dense or row-sparse array new values in place; the latter stores them from now on."""
    if not isinstance(array, RowSparseNDArray):
        array.raw.index_copy_(0, rows, values)
        return
    stored, kept = array.parts()
    if stored.numel() == array.shape[0]:
        kept.index_copy_(0, rows, values)
        return
    old = kept[~torch.isin(stored, rows)], stored[~torch.isin(stored, rows)]
    parts = [RowSparseNDArray(v, r, array.shape, array.context) for v, r in (old, (values, rows))]
    array.assign(sum_rows(parts))


def _update_rows(a: Any, arrays: Sequence[Any], run: Callable[..., Tensor], out: Handle | None) -> Any:
    """Run an update on the rows that a row-sparse gradient stores; None where all rows take part.

    All do for other gradients, under ``lazy_update=False``, and where states are stored otherwise than the weight.

    Args:
        out: where the new weight goes, often the weight itself; None makes a new array.
    """
    weight, grad, *states = arrays
    is_lazy = getattr(a, "lazy_update", True) and all(each.stype == weight.stype for each in states)
    if not isinstance(grad, RowSparseNDArray) or not is_lazy:
        return None
    rows, values = grad.parts()
    picked, *kept = [rows_of(each, rows) for each in (weight, *states)]
    new = run(picked, values, *kept)
    for state, changed in zip(states, kept, strict=True):
        _write_rows(state, rows, changed)
    target = weight.copy() if out is None else out
    if target is not weight and out is not None:
        weight.copyto(target)
    _write_rows(target, rows, new)
    return target


def _update_sparse(a: Any, arrays: Sequence[Any], run: Callable[..., Tensor], out: Handle | None) -> Any:
    """Run an update whose dense weights are updated in all rows."""
    return _update_rows(a, arrays, run, out) if arrays[0].stype == "row_sparse" else None


lazy_rules["ftrl_update"] = _update_sparse
lazy_rules.update(
    dict.fromkeys(
        (
            "sgd_update",
            "sgd_mom_update",
            "adam_update",
            "_sparse_adagrad_update",
            "_contrib_group_adagrad_update",
        ),
        _update_rows,
    )
)
