"""Picking rows of tables, cutting and joining matrices."""

from __future__ import annotations

from typing import Any

import torch

from ...base import BoundsError
from ..attrs import boolean, dtype, integer
from ..nn.dense import table_shapes, table_types
from ..registry import op
from ..spec import ROWS, Attr, Env, Onnx, arg, param
from .records import Csr, Rows, row_gradient, summed
from .rule import SparseRule, Stypes, add_rule

Tensor = torch.Tensor


@op(
    "_contrib_SparseEmbedding",
    [arg("data", ROWS), param("weight")],
    {
        "input_dim": Attr(integer(low=1), "number of rows of the table"),
        "output_dim": Attr(integer(low=1), "length of a row"),
        "dtype": Attr(dtype, "type of the table", "float32"),
        "deterministic": Attr(boolean, "accepted; rows are always added up in one order", False),
    },
    infer=table_shapes,
    infer_type=table_types,
    onnx=Onnx("Gather", builder="embedding"),
)
def sparse_embedding(a: Any, env: Env, data: Tensor, weight: Tensor) -> Tensor:
    """Take a row of the table for each index; the table's gradient is row-sparse.

    Fractions are cut off. Unlike `Embedding`, an index outside of the table is an error.

    Shape:
        data: any, numbers of any type.
        weight: (input_dim, output_dim).
        output: (*data, output_dim).

    Raises:
        BoundsError: an index is outside of the table.

    Source: MXNet 1.9.1 `_contrib_SparseEmbedding`.
    """
    return weight.index_select(0, _checked(a, data).flatten()).view(*data.shape, a.output_dim)


def _checked(a: Any, data: Tensor) -> Tensor:
    """Return whole indices within the table."""
    numbers = data.long()
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < a.input_dim:
        raise BoundsError(
            f"SparseEmbedding: indices run from {int(numbers.min())} to {int(numbers.max())}, "
            f"expected 0 to {a.input_dim - 1}"
        )
    return numbers


def _table_rule(by_rows: Any, numbers_of: Any) -> SparseRule:
    """Return the rule of an operator that looks up rows.

    Args:
        by_rows: ``(a) -> bool``: whether the table's gradient is row-sparse.
        numbers_of: ``(a, data) -> indices`` within the table.
    """

    def storage(a: Any, stypes: Stypes) -> Stypes | None:
        known = stypes[0] == "default" and stypes[1] in ("default", "row_sparse")
        return ("default",) if known and (by_rows(a) or stypes[1] == "row_sparse") else None

    def run(a: Any, env: Env, data: Tensor, weight: Any) -> Tensor:
        numbers = numbers_of(a, data)
        if isinstance(weight, Rows):
            return weight.pick(numbers)
        found: Tensor = weight.index_select(0, numbers.flatten())
        return found.view(*data.shape, a.output_dim)

    def grad(a: Any, env: Env, wanted: Any, grads: Any, data: Tensor, weight: Any) -> Any:
        values = grads[0].reshape(-1, a.output_dim)
        rows, total = summed(numbers_of(a, data).flatten(), values)
        return [torch.zeros_like(data), row_gradient(rows, total, weight.shape) if wanted[1] else None]

    def grad_storage(a: Any, stypes: Stypes) -> Stypes:
        return ("default", "row_sparse" if by_rows(a) else "default")

    return SparseRule(storage, run, grad, grad_storage)


add_rule(
    "Embedding",
    _table_rule(lambda a: a.sparse_grad, lambda a, data: data.long().clamp(0, a.input_dim - 1)),
)
add_rule("_contrib_SparseEmbedding", _table_rule(lambda a: True, _checked))


# rows of matrices


def _csr_only(a: Any, stypes: Stypes) -> Stypes | None:
    return ("csr",) if set(stypes) == {"csr"} else None


def rows_of_csr(matrix: Csr, rows: Tensor) -> Csr:
    """Return rows of a matrix by number, in the order given."""
    counts = matrix.starts.diff().index_select(0, rows)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    shift = (matrix.starts[:-1].index_select(0, rows) - starts[:-1]).repeat_interleave(counts)
    places = torch.arange(shift.numel(), device=shift.device) + shift
    return Csr(
        starts,
        matrix.columns.index_select(0, places),
        matrix.values.index_select(0, places),
        (rows.numel(), matrix.shape[1]),
    )


def _take_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return ("csr",) if stypes == ("csr", "default") and a.axis == 0 and a.mode in ("clip", "wrap") else None


def _take(a: Any, env: Env, data: Csr, indices: Tensor) -> Any:
    rows, height = indices.long().flatten(), data.shape[0]
    rows = rows.remainder(height) if a.mode == "wrap" else rows.clamp(0, height - 1)
    return rows_of_csr(data, rows)


add_rule("take", SparseRule(_take_storage, _take))


def _slice_storage(a: Any, stypes: Stypes) -> Stypes | None:
    steps = [step for step in a.step if step not in (None, 1)]
    return ("csr",) if stypes == ("csr",) and not steps and len(a.begin) <= 2 else None


def _slice(a: Any, env: Env, data: Csr) -> Any:
    ends = [slice(*pair).indices(length)[:2] for *pair, length in zip(a.begin, a.end, data.shape)]
    first, last = ends[0]
    found = rows_of_csr(data, torch.arange(first, max(first, last), device=data.starts.device))
    if len(ends) == 1:
        return found
    left, right = ends[1]
    kept = (found.columns >= left) & (found.columns < right)
    return Csr.from_places(
        found.row_numbers()[kept],
        found.columns[kept] - left,
        found.values[kept],
        (found.shape[0], max(right - left, 0)),
    )


add_rule("slice", SparseRule(_slice_storage, _slice))


def _concat_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return _csr_only(a, stypes) if a.dim == 0 else None


def _concat(a: Any, env: Env, *inputs: Csr) -> Any:
    starts, total = [inputs[0].starts[:1]], 0
    for one in inputs:
        starts.append(one.starts[1:] + total)
        total += one.values.numel()
    return Csr(
        torch.cat(starts),
        torch.cat([one.columns for one in inputs]),
        torch.cat([one.values for one in inputs]),
        (sum(one.shape[0] for one in inputs), inputs[0].shape[1]),
    )


add_rule("Concat", SparseRule(_concat_storage, _concat))
