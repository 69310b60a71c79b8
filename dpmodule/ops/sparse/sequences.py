"""Operators on the rows of ragged values, as in Paddle's `fluid.layers`.

They only take ragged data: binding a dense value is an error.
"""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import boolean, choice, integer, optional
from ..nn.layer_shapes import unify_input
from ..registry import op
from ..shapes import prod, same, unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg, param
from .dispatch import SparseRule, Stypes, add_ragged_rule, differentiated_by_torch
from .storage import Ragged

Tensor = torch.Tensor

NO_ONNX = Onnx(missing="works on rows of different lengths, which ONNX lacks")


def dense_error(name: str, values: str = "data") -> OpError:
    """Return the error of an operator that got a dense value in place of a ragged one."""
    return OpError(
        f"{name} takes ragged {values}, got a dense value; declare its variable with Variable(stype='ragged'), or "
        "create an array with nd.ragged_array(values, offsets)"
    )


def add_sequence_rule(name: str, run: Any, output: str = "ragged", position: int = 0) -> None:
    """Register the rule of an operator that only takes ragged data.

    Args:
        run: function of ragged and dense values.
        output: storage of the outputs, with spaces between them.
        position: index of the ragged input; after it all inputs are dense.
    """

    def storage(a: Any, stypes: Stypes) -> Stypes:
        if stypes[position] != "ragged":
            raise dense_error(name, "data" if position == 0 else "y")
        if any(stype != "default" for stype in stypes[position + 1 :]) or stypes[0] not in (
            "default",
            "ragged",
        ):
            raise OpError(f"{name} takes no inputs stored as {', '.join(stypes)}")
        return tuple(output.split())

    rule = SparseRule(storage, run, None, None, differentiated_by_torch(run))
    add_ragged_rule(name, rule, alone=lambda a: True)


def row_sums(data: Ragged, values: Tensor) -> Tensor:
    """Return the sum of each row's elements; zeros for an empty row.

    Args:
        values: (T, ...), used instead of the data's.
    """
    sums = values.new_zeros((data.shape[0], *values.shape[1:]))
    return sums.index_add(0, data.row_numbers(), values)


def _column(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number per row, broadcastable to rows with further axes."""
    return numbers.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def row_maxima(data: Ragged) -> Tensor:
    """Return the maximum of each row's elements, 0 for an empty row; not differentiable.

    Returns:
        (N, ...).
    """
    values = data.values.detach()
    index = data.row_numbers().view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return values.new_zeros(data.shape).scatter_reduce(0, index, values, "amax", include_self=False)


def _max(data: Ragged) -> Tensor:
    """Return the maximum of each row's elements; the gradient goes to the first maximum."""
    values, bounds = data.values.detach(), data.offsets.tolist()
    positions = torch.zeros(data.shape, dtype=torch.int64, device=values.device)
    for row, (first, end) in enumerate(zip(bounds, bounds[1:])):  # five times as fast as one scatter
        if end > first:
            positions[row] = values[first:end].max(0).indices + first
    return _gather_elements(data, positions)


def _gather_elements(data: Ragged, positions: Tensor) -> Tensor:
    """Return elements by position, and zeros for empty rows."""
    if not data.values.shape[0]:
        return data.values.new_zeros(data.shape)
    empty = data.lengths().eq(0).view(-1, *[1] * (data.values.dim() - 1))
    picked = data.values.gather(0, positions.clamp(0, data.values.shape[0] - 1))
    return picked.masked_fill(empty, 0)


def _first_or_last(data: Ragged, last: bool) -> Tensor:
    """Return each row's first or last element, zeros for an empty row."""
    positions = data.offsets[1:] - 1 if last else data.offsets[:-1]
    return _gather_elements(data, positions.view(-1, *[1] * (data.values.dim() - 1)).expand(data.shape))


def _pool(a: Any, env: Env, data: Ragged) -> Tensor:
    kind = a.pool_type
    if kind == "max":
        return _max(data)
    if kind in ("first", "last"):
        return _first_or_last(data, kind == "last")
    total = row_sums(data, data.values)
    if kind == "sum":
        return total
    counts = _column(data.lengths().clamp(min=1), total)
    return total / (counts if kind == "mean" else counts.sqrt())


@op(
    "sequence_pool",
    [arg("data", NEVER)],
    {
        "pool_type": Attr(
            choice("sum", "mean", "sqrt", "max", "first", "last"),
            "reduction of a row's elements; 'sqrt' is their sum divided by the square root of their number",
            "sum",
        )
    },
    infer=same,
    batch=NEVER,
    onnx=NO_ONNX,
)
def sequence_pool(a: Any, env: Env, data: Tensor) -> Tensor:
    """Reduce each ragged row to a dense row; an empty row becomes zeros, also for "max".

    The gradient of "max" goes to the first maximum.

    Shape:
        data: (N, ...), ragged.
        output: (N, ...).

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.sequence_pool`.
    """
    raise dense_error("sequence_pool")


add_sequence_rule("sequence_pool", _pool, "default")


# operators that keep the row lengths


def _softmax(a: Any, env: Env, data: Ragged) -> Ragged:
    rows = data.row_numbers()
    shifted = data.values - row_maxima(data).index_select(0, rows)
    powers = shifted.exp()
    return data.replaced(powers / row_sums(data, powers).index_select(0, rows))


@op("sequence_softmax", [arg("data", NEVER)], infer=same, batch=NEVER, onnx=NO_ONNX)
def sequence_softmax(a: Any, env: Env, data: Tensor) -> Tensor:
    """Apply softmax over each row's elements, separately for further axes.

    Shape:
        data: (N, ...), ragged.
        output: like data, ragged.

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.sequence_softmax`, whose elements are single numbers.
    """
    raise dense_error("sequence_softmax")


add_sequence_rule("sequence_softmax", _softmax)


def _reverse(a: Any, env: Env, data: Ragged) -> Ragged:
    rows = data.row_numbers()
    ends = (data.offsets[:-1] + data.offsets[1:] - 1).index_select(0, rows)
    positions = torch.arange(rows.numel(), device=rows.device)
    return data.replaced(data.values.index_select(0, ends - positions))


@op("sequence_reverse", [arg("data", NEVER)], infer=same, batch=NEVER, onnx=NO_ONNX)
def sequence_reverse(a: Any, env: Env, data: Tensor) -> Tensor:
    """Reverse the elements of each row.

    Shape:
        data: (N, ...), ragged.
        output: like data, ragged.

    Raises:
        OpError: the data is dense; `SequenceReverse` takes padded sequences.

    Source: Paddle 1.x `fluid.layers.sequence_reverse`.
    """
    raise dense_error("sequence_reverse")


add_sequence_rule("sequence_reverse", _reverse)


# operators that change the row lengths


def _expand_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "x and output")
    rows = data[0] if data else 0
    y = ins[1]
    if y and not y[0]:
        y = (rows, *y[1:])
    if y and data:
        unify((data[0],), y[:1], "rows of x and y")
        data = (data[0] or y[0], *data[1:])
    return [data, y], [data]


def _expand_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    data = ins[0] or outs[0]
    return [data, ins[1] or data], [data]


def _expand(a: Any, env: Env, x: Any, y: Ragged) -> Ragged:
    if not isinstance(x, Ragged):
        return y.replaced(y.expanded(x))
    if x.shape[0] != y.shape[0]:
        y.expanded(x.lengths())  # raises an error with the numbers of rows
    times = y.lengths()
    lengths = x.lengths() * times
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    rows = torch.arange(times.numel(), device=times.device).repeat_interleave(lengths)
    inside = torch.arange(rows.numel(), device=rows.device) - offsets.index_select(0, rows)
    positions = x.offsets.index_select(0, rows) + inside % x.lengths().index_select(0, rows)
    return Ragged(x.values.index_select(0, positions), offsets)


@op(
    "sequence_expand",
    [arg("x", NEVER), arg("y", NEVER)],
    infer=_expand_shapes,
    infer_type=_expand_types,
    batch=NEVER,
    onnx=NO_ONNX,
)
def sequence_expand(a: Any, env: Env, x: Tensor, y: Tensor) -> Tensor:
    """Repeat each row of x by the length of the same row of y.

    A dense row counts as one element, so the result has the lengths of y. A ragged row is repeated as a whole, within
    the same row. Only the lengths of y are read.

    Shape:
        x: (N, ...), dense or ragged.
        y: (N, ...), ragged.
        output: like x, ragged.

    Raises:
        OpError: y is dense.
        ShapeError: x and y have different numbers of rows.

    Source: Paddle 1.x `fluid.layers.sequence_expand`, which returns each repetition of a ragged row as a separate row.
    """
    raise dense_error("sequence_expand", "y")


add_sequence_rule("sequence_expand", _expand, position=1)


def _conv_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, weight, *bias = ins
    rows = outs[0][0] if outs[0] else 0
    features = prod(data[1:]) if data else 0
    if data is not None and not data[0] and rows:
        data = (rows, *data[1:])
    weight = unify_input("weight", weight, (a.num_filters, a.filter_size * features), data)
    bias = [unify_input("bias", one, (a.num_filters,), data) for one in bias]
    return [data, weight, *bias], [
        unify_input("output", outs[0], (data[0] if data else rows, a.num_filters), data)
    ]


def _window_start(a: Any) -> int:
    return int(-(a.filter_size // 2) if a.padding_start is None else a.padding_start)


def _conv(a: Any, env: Env, data: Ragged, weight: Tensor, bias: Tensor | None = None) -> Ragged:
    values = data.values.flatten(1) if data.values.dim() != 1 else data.values[:, None]
    count, rows = values.shape[0], data.row_numbers()
    first, end = (limits.index_select(0, rows) for limits in (data.offsets[:-1], data.offsets[1:]))
    with_zeros = torch.cat([values, values.new_zeros(1, values.shape[1])])
    positions = torch.arange(count, device=rows.device)
    parts = []
    for shift in range(_window_start(a), _window_start(a) + a.filter_size):
        there = positions + shift
        inside = (there >= first) & (there < end)
        parts.append(with_zeros.index_select(0, torch.where(inside, there, count)))
    return data.replaced(torch.nn.functional.linear(torch.cat(parts, 1), weight, bias))


@op(
    "sequence_conv",
    [arg("data", NEVER), param("weight"), param("bias", when=lambda a: not a.no_bias)],
    {
        "num_filters": Attr(integer(low=1), "number of output features"),
        "filter_size": Attr(integer(low=1), "number of elements of a window", 3),
        "padding_start": Attr(
            optional(integer()),
            "start of the window relative to its element; None = -(filter_size // 2)",
            None,
        ),
        "no_bias": Attr(boolean, "omit the bias", False),
    },
    infer=_conv_shapes,
    batch=NEVER,
    onnx=NO_ONNX,
)
def sequence_conv(a: Any, env: Env, data: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear map to a window around each element; positions outside of its row are zeros.

    Shape:
        data: (N, ...), ragged, with D features per element.
        weight: (num_filters, filter_size * D), the concatenated weights of the window's elements.
        bias: (num_filters,).
        output: (N, num_filters), ragged.

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.sequence_conv`, whose weight is the transpose of this one.
    """
    raise dense_error("sequence_conv")


add_sequence_rule("sequence_conv", _conv)
