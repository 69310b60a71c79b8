"""Operators on the rows of ragged values, named and defined as in Paddle's `fluid.layers`."""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import choice
from ..registry import op
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg
from .ragged import Ragged
from .rule import SparseRule, Stypes, add_ragged_rule

__all__ = ["sequence_pool"]

Tensor = torch.Tensor

_NO_ONNX = Onnx(missing="works on rows of different lengths, which ONNX lacks")


def _one_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer types where data comes first and has the output's."""
    data = ins[0] or outs[0]
    return [data, *ins[1:]], [outs[0] or data]


def _refused(name: str, values: str = "data") -> OpError:
    return OpError(
        f"{name} takes ragged {values}, got a dense value; declare its variable with Variable(stype='ragged'), or make "
        "an array with nd.ragged_array(values, offsets)"
    )


def _add_rule(name: str, run: Any, output: str = "default") -> None:
    """Enter an operator that takes ragged data and no other.

    Args:
        name: the operator.
        run: ``(a, env, *inputs) -> output``, which torch differentiates.
        output: storage type of what it returns.
    """

    def storage(a: Any, stypes: Stypes) -> Stypes:
        if stypes[0] != "ragged":
            raise _refused(name)
        return (output,)

    def recorded(a: Any, env: Env, takes_rows: Any, *inputs: Any) -> Any:
        return run(a, env, *inputs)

    def grad_storage(a: Any, stypes: Stypes) -> Stypes:
        return tuple("ragged" if stype == "ragged" else "default" for stype in stypes)

    add_ragged_rule(name, SparseRule(storage, run, None, grad_storage, recorded), alone=lambda a: True)


def _same(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    from ..shapes import unify

    data = unify(ins[0], outs[0], "data and output")
    return [data, *ins[1:]], [data]


def row_sums(data: Ragged, values: Tensor) -> Tensor:
    """Return the sum of each row's elements; zeros for an empty row.

    Args:
        data: the rows.
        values: (T, ...), in place of the data's.
    """
    found = values.new_zeros((data.shape[0], *values.shape[1:]))
    return found.index_add(0, data.row_numbers(), values)


def _column(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number per row as what multiplies rows of further axes."""
    return numbers.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def row_maxima(data: Ragged) -> tuple[Tensor, Tensor]:
    """Return the largest of each row's elements, 0 for an empty row, and the place of the first that is as large.

    Returns:
        (N, ...), and (N, ...) int64: places among the elements, meaningless for empty rows.
    """
    values, rows = data.values, data.row_numbers()
    shape = (data.shape[0], *values.shape[1:])
    index = rows.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    found = values.new_zeros(shape).scatter_reduce(0, index, values.detach(), "amax", include_self=False)
    places = (
        torch.arange(values.shape[0], device=rows.device)
        .view(-1, *[1] * (values.dim() - 1))
        .expand_as(values)
    )
    is_largest = values.detach() == found.index_select(0, rows)
    is_largest |= values.detach().isnan() if values.is_floating_point() else False
    marked = torch.where(is_largest, places, values.shape[0])
    first = torch.full(shape, values.shape[0], dtype=torch.int64, device=rows.device)
    return found, first.scatter_reduce(0, index, marked, "amin")


def _max(data: Ragged) -> Tensor:
    """Return the largest of each row's elements; its gradient goes to the first that is as large."""
    _, places = row_maxima(data)
    return _picked(data, places)


def _picked(data: Ragged, places: Tensor) -> Tensor:
    """Return elements by place, zeros where a row is empty.

    Args:
        data: (N, ...).
        places: (N, ...) int64.
    """
    if not data.values.shape[0]:
        return data.values.new_zeros(data.shape)
    empty = data.lengths().eq(0).view(-1, *[1] * (data.values.dim() - 1))
    found = data.values.gather(0, places.clamp(0, data.values.shape[0] - 1))
    return found.masked_fill(empty, 0)


def _at_end(data: Ragged, last: bool) -> Tensor:
    """Return each row's first or last element, zeros for an empty row."""
    places = data.offsets[1:] - 1 if last else data.offsets[:-1]
    return _picked(data, places.view(-1, *[1] * (data.values.dim() - 1)).expand(data.shape))


def _pool(a: Any, env: Env, data: Ragged) -> Tensor:
    kind = a.pool_type
    if kind == "max":
        return _max(data)
    if kind in ("first", "last"):
        return _at_end(data, kind == "last")
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
            "what becomes of a row's elements: 'sqrt' is their sum over the square root of their number",
            "sum",
        )
    },
    infer=_same,
    infer_type=_one_type,
    batch=NEVER,
    onnx=_NO_ONNX,
)
def sequence_pool(a: Any, env: Env, data: Tensor) -> Tensor:
    """Make one dense row of each ragged one; an empty row becomes zeros, also under "max".

    Where several elements are as large, the gradient of "max" goes to the first.

    Shape:
        data: (N, ...), ragged.
        output: (N, ...).

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.sequence_pool`.
    """
    raise _refused("sequence_pool")


_add_rule("sequence_pool", _pool)
