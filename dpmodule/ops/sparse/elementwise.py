"""Sparse rules of elementwise operators, and operators that change the storage type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import ArgumentError
from ..attrs import boolean, choice, real
from ..math.binary import divide
from ..registry import get, op
from ..shapes import same
from ..spec import ROWS, Attr, Env, Onnx, arg
from .dispatch import (
    SparseRule,
    Stypes,
    add_rule,
    as_first,
    densify,
    only,
    pass_gradient,
    stored_as,
    unchanged,
)
from .gradients import stored_rows
from .storage import Csr, RowSparse, Sparse, add_rows

Tensor = torch.Tensor

_SAME_GRADIENT = "abs ceil fix floor relu rint round sign square trunc"
"""Operators with a zero gradient at zero, so that only stored elements have a gradient."""

_LINEAR = "negative _mul_scalar _div_scalar"

_OTHER = """
arcsin arcsinh arctan arctanh cbrt degrees expm1 log1p radians sin sinh sqrt tan tanh clip
_plus_scalar _minus_scalar _equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar
_lesser_scalar _lesser_equal_scalar
"""
"""Operators with a nonzero gradient at zero, and step functions: dense copies are differentiated."""


def _apply(name: str, a: Any, env: Env, *tensors: Tensor) -> Tensor:
    """Run an operator on tensors."""
    result: Tensor = get(name).run(a, env, *tensors)
    return result


def _keeps_zero(name: str, a: Any) -> bool:
    """Return True if a unary operator maps zero to zero."""
    zero = torch.zeros(1)
    return not bool(_apply(name, a, Env(zero.device, None, False), zero).ne(0))


def values_at(grad: Any, record: Sparse) -> Tensor:
    """Return a gradient's elements at the positions stored in a record."""
    if isinstance(record, RowSparse):
        if grad.is_sparse:
            return RowSparse(*stored_rows(grad), grad.shape).pick(record.rows)
        rows_values: Tensor = grad.index_select(0, record.rows)
        return rows_values
    dense = grad.to_dense() if grad.is_sparse else grad
    picked: Tensor = dense[record.row_numbers(), record.columns]  # type: ignore[attr-defined]
    return picked


def _unary(name: str) -> SparseRule:
    checked = name not in ("_mul_scalar", "_div_scalar", *_SAME_GRADIENT.split())

    def storage(a: Any, stypes: Stypes) -> Stypes | None:
        return as_first(a, stypes) if not checked or _keeps_zero(name, a) else None

    def run(a: Any, env: Env, data: Sparse) -> Any:
        return data.replaced(_apply(name, a, env, data.values))

    def at_stored(a: Any, env: Env, wanted: Any, grads: Any, data: Sparse) -> Any:
        grad = grads[0]
        if grad.is_sparse and isinstance(data, RowSparse):  # rows without a gradient are not needed
            rows, head = stored_rows(grad)
            data = RowSparse(rows, data.pick(rows), data.shape)
        else:
            head = values_at(grad, data)
        with torch.enable_grad():
            values = data.values.detach().requires_grad_()
            out = _apply(name, a, env, values)
        (slope,) = torch.autograd.grad(out, values, head)
        return [data.replaced(slope)]

    def linear(a: Any, env: Env, wanted: Any, grads: Any, data: Sparse) -> Any:
        grad = grads[0]
        if not grad.is_sparse:
            return [_apply(name, a, env, grad)]
        rows, values = stored_rows(grad)
        return [RowSparse(rows, _apply(name, a, env, values), grad.shape)]

    if name in _SAME_GRADIENT.split():
        return SparseRule(storage, run, at_stored, unchanged)
    if name in _LINEAR.split():
        return SparseRule(storage, run, linear, unchanged)
    return SparseRule(storage, run, None, _step_storage(name))


def _step_storage(name: str) -> Callable[[Any, Stypes], Stypes] | None:
    """Return the gradient storage of step functions and of shifts by zero."""
    if name in ("_plus_scalar", "_minus_scalar"):
        return lambda a, stypes: stypes if not a.scalar else ("default",)
    return unchanged if name.endswith(("er_scalar", "equal_scalar")) else None


for _name in (*_SAME_GRADIENT.split(), *_LINEAR.split(), *_OTHER.split()):
    add_rule(_name, _unary(_name))


add_rule(
    "_contrib_quadratic",
    SparseRule(lambda a, s: s if s == ("csr",) and a.c == 0 else None, _unary("_contrib_quadratic").run),
)


def _identity(a: Any, env: Env, data: Sparse) -> Any:
    return data.replaced(data.values.clone())


def _stop_grad(a: Any, env: Env, wanted: Any, grads: Any, data: Sparse) -> Any:
    return [data.replaced(torch.zeros_like(data.values))]


def _zeros(a: Any, env: Env, data: Sparse) -> Any:
    return data.emptied()


add_rule("_copy", SparseRule(as_first, _identity, pass_gradient, unchanged))
add_rule("BlockGrad", SparseRule(as_first, _identity, _stop_grad, unchanged))
add_rule("make_loss", SparseRule(as_first, _identity))
add_rule("zeros_like", SparseRule(as_first, _zeros, _stop_grad, unchanged))


_STEPS = """
_equal _not_equal _greater _greater_equal _lesser _lesser_equal
broadcast_equal broadcast_not_equal broadcast_greater broadcast_greater_equal broadcast_lesser broadcast_lesser_equal
argmax argmin ones_like
"""
"""Operators on dense values with zero gradients, which are stored like the inputs."""

add_rule(_STEPS.split(), SparseRule(lambda a, stypes: None, _zeros, None, unchanged))
add_rule(
    "where",
    SparseRule(lambda a, stypes: None, _zeros, None, lambda a, stypes: (stypes[0], "default", "default")),
)


# two arrays


def _common_storage(a: Any, stypes: Stypes) -> Stypes | None:
    """Return the output's storage for two arrays of the same sparse type."""
    return stypes[:1] if stypes[0] == stypes[1] != "default" else None


def _apply_on_union(left: Sparse, right: Sparse, run: Callable[[Tensor, Tensor], Tensor]) -> Sparse:
    """Apply a function at all positions stored in one of two records."""
    if isinstance(left, RowSparse) and isinstance(right, RowSparse):
        if torch.equal(left.rows, right.rows):
            return left.replaced(run(left.values, right.values))
        rows = torch.unique(torch.cat([left.rows, right.rows]))
        return RowSparse(rows, run(left.pick(rows), right.pick(rows)), left.shape)
    width = max(left.shape[1], 1)
    keys = [r.row_numbers() * width + r.columns for r in (left, right)]  # type: ignore[attr-defined]
    positions, inverse = torch.unique(torch.cat(keys), return_inverse=True)
    slots = inverse.split([keys[0].numel(), keys[1].numel()])
    filled = [
        r.values.new_zeros(positions.numel()).index_add_(0, slot, r.values)
        for r, slot in zip((left, right), slots)
    ]
    return Csr.from_coordinates(positions // width, positions % width, run(*filled), left.shape)


def _binary(name: str) -> Callable[..., Any]:
    def run(a: Any, env: Env, left: Sparse, right: Sparse) -> Any:
        return _apply_on_union(left, right, lambda x, y: _apply(name, a, env, x, y))

    return run


def _negated(grad: Any) -> Any:
    return RowSparse(stored_rows(grad)[0], -stored_rows(grad)[1], grad.shape) if grad.is_sparse else -grad


def _sub_grad(a: Any, env: Env, wanted: Any, grads: Any, *inputs: Any) -> Any:
    return [grads[0], _negated(grads[0]) if wanted[1] else None]


def _alike(a: Any, stypes: Stypes) -> Stypes:
    return stypes if _common_storage(a, stypes) else ("default", "default")


add_rule("elemwise_add", SparseRule(_common_storage, _binary("elemwise_add"), pass_gradient, _alike))
add_rule("elemwise_sub", SparseRule(_common_storage, _binary("elemwise_sub"), _sub_grad, _alike))
for _name in ("_maximum", "_minimum", "_hypot"):
    add_rule(_name, SparseRule(_common_storage, _binary(_name)))


def _all_rows(a: Any, stypes: Stypes) -> Stypes | None:
    return ("row_sparse",) if set(stypes) == {"row_sparse"} else None


add_rule(
    "add_n",
    SparseRule(
        _all_rows,
        lambda a, env, *inputs: add_rows(inputs),
        pass_gradient,
        lambda a, s: s if _all_rows(a, s) else ("default",) * len(s),
    ),
)


def _mul_storage(a: Any, stypes: Stypes) -> Stypes | None:
    kinds = set(stypes) - {"default"}
    return (kinds.pop(),) if len(kinds) == 1 else None


def _mul(a: Any, env: Env, left: Any, right: Any) -> Any:
    if isinstance(left, Sparse) and isinstance(right, Sparse):
        return _apply_on_union(left, right, torch.mul)
    if isinstance(left, Sparse):
        return left.replaced(left.values * values_at(right, left))
    return right.replaced(right.values * values_at(left, right))


add_rule("elemwise_mul", SparseRule(_mul_storage, _mul))


def _csr_by_dense(run: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    def stretched(a: Any, env: Env, left: Csr, right: Tensor) -> Any:
        other = right.expand(left.shape)
        return left.replaced(run(left.values, other[left.row_numbers(), left.columns]))

    return stretched


add_rule("broadcast_mul", SparseRule(only("csr", "default", to="csr"), _csr_by_dense(torch.mul)))
add_rule("broadcast_div", SparseRule(only("csr", "default", to="csr"), _csr_by_dense(torch.div)))


def _shift(name: str, word: str, sign: int) -> None:
    def number(a: Any, data: Tensor) -> Any:
        return sign * (a.scalar if data.is_floating_point() or not a.is_int else int(a.scalar))

    def dense(a: Any, env: Env, data: Tensor) -> Tensor:
        shifted: Tensor = data + number(a, data)
        return shifted.to(data.dtype)

    def stored(a: Any, env: Env, data: Sparse) -> Any:
        return data.replaced(dense(a, env, data.values))

    def grad(a: Any, env: Env, wanted: Any, grads: Any, data: Sparse) -> Any:
        return [data.replaced(values_at(grads[0], data))]

    dense.__doc__ = f"""{word} each stored element; all elements of a dense array are stored.

Shape:
    data: any shape.
    returns: the same shape and storage type.

Source: MXNet 1.9.1 `{name}`.
"""
    attrs = {
        "scalar": Attr(real, "second operand", 1.0),
        "is_int": Attr(boolean, "truncate the number for integer data", True),
    }
    op(
        name,
        [arg("data", ROWS)],
        attrs,
        infer=same,
        onnx=Onnx("Add" if sign > 0 else "Sub", scalar="last", drop=("is_int",)),
    )(dense)
    add_rule(name, SparseRule(as_first, stored, grad, unchanged))


_shift("_scatter_plus_scalar", "Add a number to", 1)
_shift("_scatter_minus_scalar", "Subtract a number from", -1)


@op(
    "_scatter_elemwise_div",
    [arg("lhs", ROWS), arg("rhs", ROWS)],
    infer=same,
    onnx=Onnx("Div", builder="divide"),
)
def scatter_elemwise_div(a: Any, env: Env, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Divide the stored elements of `lhs` by those of `rhs`; all elements of a dense array are stored.

    Shape:
        lhs, rhs: one shape.
        returns: the same shape, with the storage type of `lhs`.

    Source: MXNet 1.9.1 `_scatter_elemwise_div`.
    """
    return divide(lhs, rhs)


def _div(a: Any, env: Env, left: RowSparse, right: Any) -> Any:
    there = (
        right.pick(left.rows) if isinstance(right, RowSparse) else densify(right).index_select(0, left.rows)
    )
    return left.replaced(divide(left.values, there))


add_rule("_scatter_elemwise_div", SparseRule(lambda a, s: s[:1] if s[0] == "row_sparse" else None, _div))


# changing the storage


@op(
    "cast_storage",
    [arg("data", ROWS)],
    {"stype": Attr(choice("csr", "default", "row_sparse"), "target storage type")},
    aliases=("_sparse_cast_storage",),
    infer=same,
    view=True,
    onnx=Onnx("Identity", drop=("stype",)),
)
def cast_storage(a: Any, env: Env, data: Tensor) -> Tensor:
    """Convert the storage type; conversion between the two sparse types is not supported.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `cast_storage`.
    """
    return data


def _cast_storage(a: Any, stypes: Stypes) -> Stypes | None:
    if a.stype != stypes[0] and "default" not in (a.stype, stypes[0]):
        raise ArgumentError(
            f"cast_storage from {stypes[0]} to {a.stype} is not supported; convert to 'default' first"
        )
    return (a.stype,)


def _cast(a: Any, env: Env, data: Any) -> Any:
    converted = stored_as(data, a.stype)
    shared = converted is data or converted is getattr(data, "values", None)
    return converted.clone() if shared else converted


add_rule(
    "cast_storage",
    SparseRule(_cast_storage, _cast, pass_gradient, lambda a, stypes: (a.stype,)),
)


def _first(a: Any, env: Env, left: Any, right: Sparse) -> Any:
    converted = stored_as(left, right.stype)
    return converted.clone() if converted is left else converted


add_rule(
    "_identity_with_attr_like_rhs",
    SparseRule(
        lambda a, s: s[1:] if s[1] != "default" else None,
        _first,
        lambda a, env, wanted, grads, *inputs: [grads[0], None],
        lambda a, s: s[1:] * 2,
    ),
)
