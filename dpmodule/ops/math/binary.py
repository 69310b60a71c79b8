"""Arithmetic of two arrays, of equal shape or broadcast."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..registry import declare
from ..shapes import broadcasting, same
from ..spec import ROWS, Onnx, arg
from .pointwise import in_type_of

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Names = tuple[str, ...]


def divide(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Divide; integers are cut towards 0, and give 0 where `right` is 0."""
    if left.is_floating_point():
        return torch.div(left, right)
    zero = right == 0
    return torch.where(zero, 0, torch.div(left, torch.where(zero, 1, right), rounding_mode="trunc"))


def modulo(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the remainder with the sign of `right`, as Python's %; 0 where `right` is 0."""
    zero = right == 0
    return torch.where(zero, 0, torch.remainder(left, torch.where(zero, 1, right)))


def power(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Raise to a power; integers go through float64, so that negative exponents give 0."""
    if left.is_floating_point():
        return torch.pow(left, right)
    return in_type_of(left, torch.pow(left.double(), right.double()))


def maximum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the greater one, NaN if there is one; where both are equal the gradient goes to `left`."""
    return torch.where((left < right) | (right != right), right, left)


def minimum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the smaller one, NaN if there is one; where both are equal the gradient goes to `left`."""
    return torch.where((left > right) | (right != right), right, left)


def hypot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return sqrt(left^2 + right^2)."""
    if left.is_floating_point():
        return torch.hypot(left, right)
    return in_type_of(left, torch.hypot(left.double(), right.double()))


def _equal_doc(name: str, sentence: str) -> str:
    return f"""{sentence}, element by element.

Shape:
    lhs, rhs: one shape.
    returns: the same shape and dtype.

Source: MXNet 1.9.1 `{name}`.
"""


def _broadcast_doc(name: str, sentence: str) -> str:
    return f"""{sentence}, with broadcasting.

Shape:
    lhs, rhs: shapes whose dimensions are equal or 1, aligned at the end.
    returns: the greater of each two dimensions; the dtype of the inputs.

Source: MXNet 1.9.1 `{name}`.
"""


def declare_pair(function: Binary, sentence: str, equal: Names, broadcast: Names, onnx: Onnx | None) -> None:
    """Declare a function of two arrays as two operators, one for equal shapes and one that broadcasts.

    Args:
        function: ``(lhs, rhs) -> result``.
        sentence: what it does, without a full stop.
        equal: names of the one for equal shapes, the registry name first.
        broadcast: names of the one that broadcasts, the registry name first.
    """
    declare(
        equal[0],
        function,
        [arg("lhs", ROWS), arg("rhs", ROWS)],
        doc=_equal_doc(equal[0], sentence),
        aliases=equal[1:],
        infer=same,
        onnx=onnx,
    )
    declare(
        broadcast[0],
        function,
        [arg("lhs"), arg("rhs")],
        doc=_broadcast_doc(broadcast[0], sentence),
        aliases=broadcast[1:],
        infer=broadcasting,
        onnx=onnx,
    )


_ARITHMETIC: tuple[tuple[Binary, str, Names, Names, Onnx], ...] = (
    (
        torch.add,
        "Add two arrays",
        ("elemwise_add", "_Plus", "_add", "_plus", "_sparse_elemwise_add"),
        ("broadcast_add", "broadcast_plus", "_sparse_broadcast_add", "_sparse_broadcast_plus"),
        Onnx("Add"),
    ),
    (
        torch.sub,
        "Subtract the second array from the first",
        ("elemwise_sub", "_Minus", "_minus", "_sub", "_sparse_elemwise_sub"),
        ("broadcast_sub", "broadcast_minus", "_sparse_broadcast_sub", "_sparse_broadcast_minus"),
        Onnx("Sub"),
    ),
    (
        torch.mul,
        "Multiply two arrays",
        ("elemwise_mul", "_Mul", "_mul", "_sparse_elemwise_mul"),
        ("broadcast_mul", "_sparse_broadcast_mul"),
        Onnx("Mul"),
    ),
    (
        divide,
        "Divide the first array by the second (integers are cut towards 0)",
        ("elemwise_div", "_Div", "_div", "_sparse_elemwise_div"),
        ("broadcast_div", "_sparse_broadcast_div"),
        Onnx("Div", builder="divide"),
    ),
    (
        modulo,
        "Return the remainder with the sign of the divisor, as Python's %, and 0 for a divisor of 0",
        ("_mod", "_Mod"),
        ("broadcast_mod",),
        Onnx(builder="mod"),
    ),
    (
        power,
        "Raise the first array to the power of the second",
        ("_power", "_Power"),
        ("broadcast_power",),
        Onnx("Pow", builder="power"),
    ),
    (
        maximum,
        "Return the greater of two arrays (where both are equal the gradient goes to the first)",
        ("_maximum", "_Maximum"),
        ("broadcast_maximum",),
        Onnx("Max"),
    ),
    (
        minimum,
        "Return the smaller of two arrays (where both are equal the gradient goes to the first)",
        ("_minimum", "_Minimum"),
        ("broadcast_minimum",),
        Onnx("Min"),
    ),
    (
        hypot,
        "Return the hypotenuse sqrt(lhs^2 + rhs^2)",
        ("_hypot", "_Hypot"),
        ("broadcast_hypot",),
        Onnx(builder="hypot"),
    ),
)
"""Function, first sentence, names for equal shapes, names for broadcasting, ONNX operator."""

for _row in _ARITHMETIC:
    declare_pair(*_row)
