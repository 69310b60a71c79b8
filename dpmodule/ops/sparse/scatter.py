"""Operators that change what is stored and leave all other elements zero."""

from __future__ import annotations

from typing import Any

import torch

from ..attrs import boolean, real
from ..math.binary import divide
from ..registry import op
from ..shapes import same
from ..spec import ROWS, Attr, Env, Onnx, arg
from .call import densify, stored_as
from .elementwise import values_at
from .records import Rows, Sparse
from .rule import SparseRule, Stypes, add_rule

Tensor = torch.Tensor


def _own(a: Any, stypes: Stypes) -> Stypes | None:
    return stypes[:1] if stypes[0] != "default" else None


def _shift(name: str, word: str, sign: int) -> None:
    def number(a: Any, data: Tensor) -> Any:
        return sign * (a.scalar if data.is_floating_point() or not a.is_int else int(a.scalar))

    def dense(a: Any, env: Env, data: Tensor) -> Tensor:
        found: Tensor = data + number(a, data)
        return found.to(data.dtype)

    def stored(a: Any, env: Env, data: Sparse) -> Any:
        return data.replaced(dense(a, env, data.values))

    def grad(a: Any, env: Env, wanted: Any, grads: Any, data: Sparse) -> Any:
        return [data.replaced(values_at(grads[0], data))]

    dense.__doc__ = f"""{word} each stored element; of a dense array all elements are stored.

Shape:
    data: any shape.
    returns: the same shape and storage type.

Source: MXNet 1.9.1 `{name}`.
"""
    attrs = {
        "scalar": Attr(real, "operand beside every stored element", 1.0),
        "is_int": Attr(boolean, "cut the number's fraction when data are integers", True),
    }
    op(
        name,
        [arg("data", ROWS)],
        attrs,
        infer=same,
        onnx=Onnx("Add" if sign > 0 else "Sub", scalar="last", drop=("is_int",)),
    )(dense)
    add_rule(name, SparseRule(_own, stored, grad, lambda a, stypes: stypes))


_shift("_scatter_plus_scalar", "Add a number to", 1)
_shift("_scatter_minus_scalar", "Subtract a number from", -1)


@op(
    "_scatter_elemwise_div",
    [arg("lhs", ROWS), arg("rhs", ROWS)],
    infer=same,
    onnx=Onnx("Div", builder="divide"),
)
def scatter_elemwise_div(a: Any, env: Env, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Divide the elements that `lhs` stores by those of `rhs`; of a dense array all elements are stored.

    Shape:
        lhs, rhs: one shape.
        returns: the same shape, with the storage type of `lhs`.

    Source: MXNet 1.9.1 `_scatter_elemwise_div`.
    """
    return divide(lhs, rhs)


def _div_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return _own(a, stypes) if stypes[0] == "row_sparse" else None


def _div(a: Any, env: Env, left: Rows, right: Any) -> Any:
    there = right.pick(left.rows) if isinstance(right, Rows) else densify(right).index_select(0, left.rows)
    return left.replaced(divide(left.values, there))


add_rule("_scatter_elemwise_div", SparseRule(_div_storage, _div))


def _like_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return stypes[1:] if stypes[1] != "default" else None


def _first(a: Any, env: Env, left: Any, right: Sparse) -> Any:
    found = stored_as(left, right.stype)
    return found.clone() if found is left else found


def _first_grad(a: Any, env: Env, wanted: Any, grads: Any, left: Any, right: Sparse) -> Any:
    return [grads[0], None]


add_rule(
    "_identity_with_attr_like_rhs",
    SparseRule(_like_storage, _first, _first_grad, lambda a, stypes: stypes[1:] * 2),
)
