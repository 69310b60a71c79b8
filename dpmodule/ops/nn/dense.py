"""The fully connected layer and the embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ...base import ArgumentError, Shape
from ..attrs import boolean, dtype, integer, optional
from ..registry import bound, op
from ..shapes import HASHED_ROWS, prod, unify
from ..spec import ROWS, Attr, Env, Onnx, Shapes, Types, arg, param
from ..tracing import is_tracing
from .layer_shapes import flat_from, unify_input
from .linear import CHOICE_MIN_WORK, ONEDNN_MIN_WORK, linear


def _data_from_neighbours(a: Any, data: tuple[int, ...], weight: Shape, out: Shape) -> tuple[int, ...]:
    """Infer data dimensions from the output's rows and the weight's columns."""
    lead = 1 if a.flatten else len(data) - 1
    if out is not None and len(out) == lead + 1:
        data = (*unify_input("data", data[:lead], out[:lead], out), *data[lead:])  # type: ignore[misc]
    if weight is not None and len(weight) == 2 and lead == len(data) - 1 and not data[-1]:
        data = (*data[:-1], weight[1])
    return data


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer weight, bias and output from data, and data's rows from the output (begin states of unrolled RNNs)."""
    data, weight, *bias = ins
    units = a.num_hidden
    bias = [
        unify_input("bias", b, (units, 1) if b is not None and len(b) == 2 else (units,), data) for b in bias
    ]
    if data is None:
        if weight is not None:
            unify(weight, (units, 0), "weight")  # an unknown weight stays unknown, as in MXNet
        return [None, weight, *bias], outs
    data = _data_from_neighbours(a, data, weight, outs[0])
    features = prod(data[1:]) if a.flatten else data[-1]  # 0 if unknown
    weight = unify_input("weight", weight, (units, features), data)
    out = (data[0], units) if a.flatten else (*data[:-1], units)
    return [data, weight, *bias], [unify_input("output", outs[0], out, data)]


def _row_linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    if bias is not None and bias.dim() != 1:  # (num_hidden, 1) in some old files
        bias = bias.reshape(-1)
    # our own kernels multiply matrices, and torch would multiply once for each index of a first axis with gaps
    if data.dim() > 2 and (data.numel() * weight.shape[0] >= CHOICE_MIN_WORK or not data.is_contiguous()):
        rows = data.reshape(-1, data.shape[-1])
        return linear(rows, weight, bias).view(*data.shape[:-1], weight.shape[0])
    return linear(data, weight, bias)


def _flat_linear(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    if data.dim() != 2:
        data = flat_from(data, 1)
    if bias is not None and bias.dim() != 1:
        return _row_linear(data, weight, bias)
    least = ONEDNN_MIN_WORK if torch.is_grad_enabled() else CHOICE_MIN_WORK
    return (F.linear if data.shape[0] * weight.numel() < least else linear)(data, weight, bias)


@bound(
    "FullyConnected",
    [arg("data", ROWS), param("weight"), param("bias", when=lambda a: not a.no_bias)],
    {
        "num_hidden": Attr(integer(low=1), "number of output units"),
        "no_bias": Attr(boolean, "omit the bias", False),
        "flatten": Attr(boolean, "treat all axes but the first as features, else only the last", True),
    },
    aliases=["_sparse_FullyConnected"],
    infer=_infer,
    onnx=Onnx("Gemm", builder="fully_connected"),
)
def fully_connected(a: Any) -> Callable[..., torch.Tensor]:
    """Apply a linear map to each row: ``data @ weight.T + bias``.

    Shape:
        data: (N, ...); with flatten=False (..., K).
        weight: (num_hidden, K), where K is the product of all axes of data but the first, or the last axis.
        bias: (num_hidden,), or (num_hidden, 1), for example an embedding of width 1 used as bias.
        output: (N, num_hidden); with flatten=False (..., num_hidden).

    Source: MXNet 1.9.1 `FullyConnected`.
    """
    return _flat_linear if a.flatten else _row_linear


_INDICES = frozenset({torch.int32, torch.int64})
_SUMMED = frozenset({torch.float32, torch.float64})
"""Types in which torch adds up rows in the same way in a list and in a whole table."""


def table_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer shapes of a table lookup: the output has the axes of the indices and the row length."""
    data, out = ins[0], outs[0]
    if (a.input_dim is None) is not bool(getattr(a, "hash_rows", False)):
        raise ArgumentError(
            "Embedding: input_dim is missing; give the number of rows, or hash_rows=True for ids of any 64 bits"
            if a.input_dim is None
            else f"Embedding: input_dim is {a.input_dim}, but hash_rows=True makes rows for ids; omit input_dim"
        )
    rows = HASHED_ROWS if a.input_dim is None else a.input_dim
    weight = unify_input("weight", ins[1], (rows, a.output_dim), data)
    if out:
        data = unify(data, out[:-1], "indices and output without its last axis")
    if data is not None:
        out = unify_input("output", out, (*data, a.output_dim), data)
    return [data, weight], [out]


def table_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer types of a table lookup: the output has the table's type, by default the attribute's; indices have any."""
    table = ins[1] or outs[0] or a.dtype
    return [ins[0], table], [outs[0] or table]


_MEMORY, _WRITTEN = "memory_for_gradient", "written_rows"
MIN_TABLE = 2**21
"""Bytes of a table from which filling its gradient with zeros takes longer than keeping a list of rows."""
_MANY = 1024
"""Indices from which the gradient of selected rows, which torch adds up row by row, is the faster one."""
_ROWS_OF_FILL = 8
"""Rows of a whole table that are filled in the time of one row of a list."""


class _Lookup(torch.autograd.Function):
    """Looks up rows of a table.

    The gradient is written to the memory of the last one, if that is lent: then only the rows of the last batch are set
    to zero. Filling a whole table with zeros takes longer than all other operators of many networks.
    """

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        ctx.weight, ctx.indices = weight, indices
        return torch.embedding(weight, indices)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (grad,), weight, indices = grads, ctx.weight, ctx.indices
        table = vars(weight).pop(_MEMORY, None)
        if torch.is_grad_enabled() or torch_private.is_transformed(grad):
            return torch.ops.aten.embedding_dense_backward(grad, indices, weight.shape[0], -1, False), None
        rows = indices.flatten().to(torch.int64, copy=True)  # the batch may change before the next gradient
        if table is None:
            table = grad.new_zeros(weight.shape)
        else:
            old, version = vars(table).get(_WRITTEN, (rows, None))
            if table._version == version and _ROWS_OF_FILL * old.numel() < table.shape[0]:
                table.index_fill_(0, old, 0.0)
            else:
                table.zero_()
        table.index_add_(0, rows, grad.reshape(-1, table.shape[1]))
        vars(table)[_WRITTEN] = rows, table._version
        return table, None


_look_up: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Lookup)


def lend_memory(weight: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Let the next backward of lookups in a table write the table's gradient to the memory of its last one.

    Shape:
        weight, gradient: (rows, row length).

    Args:
        gradient: the last gradient, to which nothing else refers; None ends the loan.
    """
    if gradient is not None:
        vars(weight)[_MEMORY] = gradient
    else:
        vars(weight).pop(_MEMORY, None)


@op(
    "Embedding",
    [arg("data", ROWS), param("weight")],
    {
        "input_dim": Attr(optional(integer(low=1)), "number of rows of the table", None),
        "output_dim": Attr(integer(low=1), "length of a row"),
        "dtype": Attr(dtype, "type of the table", "float32"),
        "sparse_grad": Attr(boolean, "make the table's gradient row-sparse", False),
        "hash_rows": Attr(
            boolean, "make a row for each id of 64 bits that is trained, instead of `input_dim`", False
        ),
        "min_count": Attr(
            integer(low=1), "`hash_rows`: steps in which an id is trained until it has a row", 1
        ),
        "ttl_steps": Attr(
            integer(low=0), "`hash_rows`: steps without an id until its row is dropped; 0: never", 0
        ),
    },
    aliases=["_sparse_Embedding"],
    infer=table_shapes,
    infer_type=table_types,
    onnx=Onnx("Gather", builder="embedding"),
)
def embedding(a: Any, env: Env, data: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Look up a row of the table for each index.

    Fractions are truncated; out-of-range indices are clipped.

    With ``hash_rows=True``, indices are ids of any 64 bits, int64; the gradient is row-sparse. MXNet cannot read such a
    symbol.

    Shape:
        data: any, numbers of any type.
        weight: (input_dim, output_dim).
        output: (*data, output_dim).

    Raises:
        ArgumentError: `hash_rows` with `input_dim`, or neither; or with ids as floating-point numbers that may have
            lost digits.

    Source: MXNet 1.9.1 `Embedding`, which also clips indices. Growing tables follow Paddle's sparse tables.
    """
    if data.is_cpu and not is_tracing():
        indices = data if data.dtype in _INDICES else data.long()
        try:
            records = weight.requires_grad and torch.is_grad_enabled() and weight.dtype in _SUMMED
            if records and weight.nbytes >= MIN_TABLE and weight.is_leaf and weight.is_contiguous():
                return _look_up(weight, indices)
            if records and indices.numel() >= _MANY:
                return weight.index_select(0, indices.flatten()).view(*indices.shape, -1)
            return torch.embedding(weight, indices)
        except IndexError:  # torch checks indices on the CPU
            pass
    return F.embedding(data.long().clamp(0, a.input_dim - 1), weight)
