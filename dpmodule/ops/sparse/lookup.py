"""Table lookups, also pooled over ragged indices, and slicing and joining of sparse matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn.functional import embedding_bag

from ...base import ArgumentError, BoundsError, Shape
from ..attrs import boolean, dtype, integer
from ..nn.dense import table_shapes, table_types
from ..registry import op
from ..shapes import unify
from ..spec import NEVER, ROWS, Attr, Env, Onnx, Shapes, Types, arg, param
from .dispatch import SparseCall, SparseRule, Stypes, add_rule, only
from .gradients import row_gradient, stored_rows, sum_rows_by_index
from .storage import Csr, Ragged, RowSparse, Sparse

Tensor = torch.Tensor


@op(
    "_contrib_SparseEmbedding",
    [arg("data", ROWS), param("weight")],
    {
        "input_dim": Attr(integer(low=1), "number of rows of the table"),
        "output_dim": Attr(integer(low=1), "length of a row"),
        "dtype": Attr(dtype, "type of the table", "float32"),
        "deterministic": Attr(boolean, "accepted; rows are always summed in the same order", False),
    },
    infer=table_shapes,
    infer_type=table_types,
    onnx=Onnx("Gather", builder="embedding"),
)
def sparse_embedding(a: Any, env: Env, data: Tensor, weight: Tensor) -> Tensor:
    """Look up a row of the table for each index; the table's gradient is row-sparse.

    Fractions are truncated. Unlike `Embedding`, an out-of-range index is an error.

    Shape:
        data: any, numbers of any type.
        weight: (input_dim, output_dim).
        output: (*data, output_dim).

    Raises:
        BoundsError: an index is out of range.

    Source: MXNet 1.9.1 `_contrib_SparseEmbedding`.
    """
    return weight.index_select(0, _checked_indices(a, data).flatten()).view(*data.shape, a.output_dim)


def _checked_indices(a: Any, data: Tensor) -> Tensor:
    """Return the indices as integers; raises BoundsError if one is out of range."""
    numbers = data.long()
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < a.input_dim:
        raise BoundsError(
            f"SparseEmbedding: indices range from {int(numbers.min())} to {int(numbers.max())}, "
            f"expected 0 to {a.input_dim - 1}"
        )
    return numbers


def _rows_of_embedding(a: Any, data: Tensor) -> Tensor:
    """Return the row numbers of `Embedding`."""
    if not a.hash_rows:
        return data.long().clamp(0, a.input_dim - 1)
    if data.is_floating_point():
        exact = int(2 / torch.finfo(data.dtype).eps)
        if data.numel() and not float(data.abs().max()) <= exact:
            raise ArgumentError(
                f"Embedding(hash_rows=True): an id is {float(data.abs().max()):.0f} in {data.dtype}, in which numbers "
                f"above {exact} lose digits; pass ids as int64, such as mx.nd.array(ids, dtype='int64')"
            )
    return data.long()


def _table_rule(by_rows: Any, numbers_of: Any, checks: bool = False) -> SparseRule:
    """Return the sparse rule of a table lookup.

    Args:
        by_rows: ``(a) -> bool``: True if the table's gradient is row-sparse.
        numbers_of: ``(a, data) -> indices`` within the table.
        checks: True if it raises BoundsError for others.
    """

    def storage(a: Any, stypes: Stypes) -> Stypes | None:
        known = stypes[0] == "default" and stypes[1] in ("default", "row_sparse")
        return ("default",) if known and (by_rows(a) or stypes[1] == "row_sparse") else None

    def run(a: Any, env: Env, data: Tensor, weight: Any) -> Tensor:
        if isinstance(weight, RowSparse):
            return weight.pick(data.long() if weight.checks_bounds and checks else numbers_of(a, data))
        numbers = numbers_of(a, data)
        rows: Tensor = weight.index_select(0, numbers.flatten())
        return rows.view(*data.shape, a.output_dim)

    def grad(a: Any, env: Env, wanted: Any, grads: Any, data: Tensor, weight: Any) -> Any:
        values = grads[0].reshape(-1, a.output_dim)
        rows, total = sum_rows_by_index(numbers_of(a, data).flatten(), values)
        return [torch.zeros_like(data), row_gradient(rows, total, weight.shape) if wanted[1] else None]

    def grad_storage(a: Any, stypes: Stypes) -> Stypes:
        return ("default", "row_sparse" if by_rows(a) else "default")

    return SparseRule(storage, run, grad, grad_storage)


add_rule(
    "Embedding",
    _table_rule(lambda a: a.sparse_grad or a.hash_rows, _rows_of_embedding),
)
add_rule("_contrib_SparseEmbedding", _table_rule(lambda a: True, _checked_indices, checks=True))


# rows of matrices


def _retain_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    return [data, ins[1]], [data]


def _retain_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    data = ins[0] or outs[0]
    return [data, ins[1]], [data]


@op(
    "_sparse_retain",
    [arg("data"), arg("indices")],
    infer=_retain_shapes,
    infer_type=_retain_types,
    batch=NEVER,
    onnx=Onnx(builder="retain"),
)
def sparse_retain(a: Any, env: Env, data: Tensor, indices: Tensor) -> Tensor:
    """Keep some rows and set the others to zero; a row-sparse result stores only the kept rows.

    Shape:
        data: (rows, ...).
        indices: row indices in any order and shape.
        returns: the shape of `data`.

    Raises:
        BoundsError: a row index is out of range.

    Source: MXNet 1.9.1 `sparse.retain`, which only takes row-sparse arrays.
    """
    kept = torch.zeros(data.shape[0], dtype=torch.bool, device=data.device)
    kept[_rows_to_keep(data, indices)] = True
    return data.mul(kept.view(-1, *[1] * (data.dim() - 1)))


def _rows_to_keep(data: Any, indices: Tensor) -> Tensor:
    """Return the indices of the rows to keep, distinct and ascending."""
    rows: Tensor = torch.unique(indices.long())
    if rows.numel() and not 0 <= int(rows[0]) <= int(rows[-1]) < data.shape[0]:
        wrong = int(rows[0]) if int(rows[0]) < 0 else int(rows[-1])
        raise BoundsError(f"sparse.retain: row {wrong} is outside of an array with {data.shape[0]} rows")
    return rows


def _retain(a: Any, env: Env, data: RowSparse, indices: Tensor) -> Any:
    wanted = _rows_to_keep(data, indices)
    if not data.rows.numel():
        wanted = wanted[:0]
    return RowSparse(wanted, data.pick(wanted), data.shape)


def _retain_grad(a: Any, env: Env, wanted: Any, grads: Any, data: RowSparse, indices: Tensor) -> Any:
    grad, rows = grads[0], _rows_to_keep(data, indices)
    known = RowSparse(*stored_rows(grad), grad.shape) if grad.is_sparse else None
    values = grad.index_select(0, rows) if known is None else known.pick(rows)
    return [RowSparse(rows, values, data.shape), torch.zeros_like(indices) if wanted[1] else None]


add_rule(
    "_sparse_retain",
    SparseRule(
        only("row_sparse", "default", to="row_sparse"),
        _retain,
        _retain_grad,
        lambda a, stypes: ("row_sparse", "default"),
    ),
)


def _take_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return ("csr",) if stypes == ("csr", "default") and a.axis == 0 and a.mode in ("clip", "wrap") else None


def _take(a: Any, env: Env, data: Csr, indices: Tensor) -> Any:
    rows, height = indices.long().flatten(), data.shape[0]
    rows = rows.remainder(height) if a.mode == "wrap" else rows.clamp(0, height - 1)
    return data.pick(rows)


add_rule("take", SparseRule(_take_storage, _take))


def _slice_storage(a: Any, stypes: Stypes) -> Stypes | None:
    steps = [step for step in a.step if step not in (None, 1)]
    return ("csr",) if stypes == ("csr",) and not steps and len(a.begin) <= 2 else None


def _slice(a: Any, env: Env, data: Csr) -> Any:
    ranges = [slice(*pair).indices(length)[:2] for *pair, length in zip(a.begin, a.end, data.shape)]
    first, last = ranges[0]
    picked = data.pick(torch.arange(first, max(first, last), device=data.starts.device))
    if len(ranges) == 1:
        return picked
    left, right = ranges[1]
    kept = (picked.columns >= left) & (picked.columns < right)
    return Csr.from_coordinates(
        picked.row_numbers()[kept],
        picked.columns[kept] - left,
        picked.values[kept],
        (picked.shape[0], max(right - left, 0)),
    )


add_rule("slice", SparseRule(_slice_storage, _slice))


def _concat_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return ("csr",) if set(stypes) == {"csr"} and a.dim == 0 else None


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


# pooled lookups

POOLED = frozenset({"sum", "mean", "sqrt"})
"""Kinds of pooling that are scaled sums of rows."""


class LookupPool(NamedTuple):
    """Attributes of a pooled lookup.

    Attributes:
        pool: attributes of `sequence_pool`, with a kind in `POOLED`.
    """

    lookup: Any
    pool: Any


class PooledLookup(SparseCall):
    """Fused `Embedding` of ragged indices (N,) and `sequence_pool`.

    The embedded rows, possibly hundreds per pooled row, are never written to memory, nor are their gradients: the
    gradient of a table's row is the sum of the gradients of the pooled rows that contain it. The attributes are a
    `LookupPool`.
    """

    def __init__(self, lookup: SparseCall, pool: SparseCall) -> None:
        super().__init__(pool.op, pool.rule, pool.stypes, lookup.takes_rows)
        self._lookup, self._pool = lookup, pool

    def __call__(self, a: LookupPool, env: Env, data: Ragged, weight: Any) -> Any:
        if (  # torch supports these
            data.values.dim() == 1
            and not isinstance(weight, Sparse)
            and weight.is_cpu
            and weight.dtype in (torch.float32, torch.float64)
        ):
            return _PooledRows.apply(a, data, self.takes_rows[1], weight)  # type: ignore[no-untyped-call]
        return self._pool(a.pool, env, self._lookup(a.lookup, env, data, weight))


class _PooledRows(torch.autograd.Function):
    """Pooled rows of a table (input_dim, output_dim); backward returns the table's gradient."""

    @staticmethod
    def forward(ctx: Any, a: LookupPool, data: Ragged, takes_rows: bool, weight: Tensor) -> Tensor:
        ctx.a, ctx.data, ctx.by_rows, ctx.shape = a, data, takes_rows and a.lookup.sparse_grad, weight.shape
        sums = embedding_bag(_table_rows(a, data), weight, data.offsets, mode="sum", include_last_offset=True)
        return _scale_sums(a, sums, data)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, data, grad = ctx.a, ctx.data, grads[0]
        rows, totals = sum_rows_by_index(
            _table_rows(a, data), _scale_sums(a, grad, data).contiguous(), data.row_numbers()
        )
        if ctx.by_rows:
            return None, None, None, row_gradient(rows, totals, ctx.shape)
        return None, None, None, grad.new_zeros(ctx.shape).index_copy_(0, rows, totals)


def _table_rows(a: LookupPool, data: Ragged) -> Tensor:
    return _rows_of_embedding(a.lookup, data.values)


def _scale_sums(a: LookupPool, sums: Tensor, data: Ragged) -> Tensor:
    """Return sums (N, D) over rows of `data`, or their gradients, scaled for the kind of pooling."""
    if a.pool.pool_type == "sum":
        return sums
    counts = data.lengths().clamp(min=1).to(sums.dtype).view(-1, 1)
    return sums / (counts if a.pool.pool_type == "mean" else counts.sqrt())
