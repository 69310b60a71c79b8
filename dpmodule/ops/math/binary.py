"""Arithmetic, comparison and logic of two arrays, with or without broadcasting, and of an array and a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..._core.torch_private import is_transformed
from ..._devices.device_transfer import tensor_like
from ..attrs import boolean, real
from ..registry import bound, declare
from ..shapes import broadcasting, same
from ..spec import ROWS, Attr, Onnx, Types, arg
from ..tracing import is_jit_tracing
from .pointwise import element_of, in_type_of, operand_for, with_gradient

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Names = tuple[str, ...]


def divide(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Divide; integers are truncated, and division by 0 gives 0."""
    if left.is_floating_point():
        return torch.div(left, right)
    zero = right == 0
    return torch.where(zero, 0, torch.div(left, torch.where(zero, 1, right), rounding_mode="trunc"))


def modulo(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the remainder with the sign of `right`, as Python's %; 0 if `right` is 0."""
    zero = right == 0
    return torch.where(zero, 0, torch.remainder(left, torch.where(zero, 1, right)))


def power(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Raise to a power; integers are computed in float64, so that negative exponents give 0.

    Rounding removes the error of CUDA's powers, and does not change fractions: they are 0.5 or less.
    """
    if left.is_floating_point():
        return torch.pow(left, right)
    return in_type_of(left, torch.pow(left.double(), right.double()).round())


def maximum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the maximum, propagating NaN; if both are equal the gradient goes to `left`."""
    if not (torch.is_grad_enabled() or is_jit_tracing()):
        return torch.maximum(left, right)
    return torch.where((left < right) | (right != right), right, left)


def minimum(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the minimum, propagating NaN; if both are equal the gradient goes to `left`."""
    if not (torch.is_grad_enabled() or is_jit_tracing()):
        return torch.minimum(left, right)
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
    returns: the larger of each two dimensions; the dtype of the inputs.

Source: MXNet 1.9.1 `{name}`.
"""


def declare_pair(function: Binary, sentence: str, equal: Names, broadcast: Names, onnx: Onnx | None) -> None:
    """Declare a function of two arrays as two operators, for equal shapes and with broadcasting.

    Args:
        function: ``(lhs, rhs) -> result``.
        sentence: description without a full stop.
        equal: names of the operator for equal shapes, the registry name first.
        broadcast: names of the operator with broadcasting, the registry name first.
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


for _name, _word, _function, _sentence, _onnx in (
    ("add", "plus", torch.add, "Add two arrays", Onnx("Add")),
    ("sub", "minus", torch.sub, "Subtract the second array from the first", Onnx("Sub")),
    ("mul", "mul", torch.mul, "Multiply two arrays", Onnx("Mul")),
    (
        "div",
        "div",
        divide,
        "Divide the first array by the second (integers are truncated)",
        Onnx("Div", builder="divide"),
    ),
):
    _words = tuple(dict.fromkeys((_name, _word)))
    declare_pair(
        _function,
        _sentence,
        (
            f"elemwise_{_name}",
            f"_{_word.title()}",
            *(f"_{each}" for each in _words),
            f"_sparse_elemwise_{_name}",
        ),
        tuple(f"{kind}_{each}" for kind in ("broadcast", "_sparse_broadcast") for each in _words),
        _onnx,
    )

_TIE = "(if both are equal the gradient goes to the first)"

for _name, _function, _sentence, _onnx in (
    (
        "mod",
        modulo,
        "Return the remainder with the sign of the divisor, as Python's %, and 0 for a divisor of 0",
        Onnx(builder="mod"),
    ),
    ("power", power, "Raise the first array to the power of the second", Onnx("Pow", builder="power")),
    ("maximum", maximum, f"Return the maximum of two arrays {_TIE}", Onnx("Max")),
    ("minimum", minimum, f"Return the minimum of two arrays {_TIE}", Onnx("Min")),
    ("hypot", hypot, "Return the hypotenuse sqrt(lhs^2 + rhs^2)", Onnx(builder="hypot")),
):
    declare_pair(_function, _sentence, (f"_{_name}", f"_{_name.title()}"), (f"broadcast_{_name}",), _onnx)


Comparison = Callable[..., torch.Tensor]


def in_operand_type(compare: Comparison) -> Comparison:
    """Return a comparison whose results are 0 and 1 in the type of the left operand.

    With `out=` torch writes that type directly; converting booleans takes ten times as long, but `torch.vmap` supports
    nothing else.
    """

    def run(left: torch.Tensor, right: torch.Tensor | float) -> torch.Tensor:
        left, other = left.detach(), right.detach() if isinstance(right, torch.Tensor) else right
        if is_transformed(left) or isinstance(other, torch.Tensor) and is_transformed(other):
            return compare(left, other).to(left.dtype)
        return compare(left, other, out=left.new_empty(0))

    run.__name__ = getattr(compare, "__name__", "run")
    return run


COMPARISONS: dict[str, tuple[Comparison, str, Onnx]] = {
    "equal": (torch.eq, "both are equal", Onnx("Equal", builder="compare")),
    "not_equal": (torch.ne, "they differ", Onnx("Equal", builder="not_equal")),
    "greater": (torch.gt, "the first is greater", Onnx("Greater", builder="compare")),
    "greater_equal": (torch.ge, "the first is greater or equal", Onnx("GreaterOrEqual", builder="compare")),
    "lesser": (torch.lt, "the first is smaller", Onnx("Less", builder="compare")),
    "lesser_equal": (torch.le, "the first is smaller or equal", Onnx("LessOrEqual", builder="compare")),
    "logical_and": (torch.logical_and, "neither is 0", Onnx("And", builder="logic")),
    "logical_or": (torch.logical_or, "one of them is not 0", Onnx("Or", builder="logic")),
    "logical_xor": (torch.logical_xor, "exactly one of them is not 0", Onnx("Xor", builder="logic")),
}
"""Name: function, condition for the docstring, ONNX operator."""

for _word, (_test, _holds, _onnx) in COMPARISONS.items():
    declare_pair(
        in_operand_type(_test),
        f"Return 1 if {_holds}, else 0, in the dtype of the operands and without a gradient",
        (f"_{_word}", f"_{_word.title()}"),
        (f"broadcast_{_word}",),
        _onnx,
    )


Scalar = Callable[[torch.Tensor, Any], torch.Tensor]


def _power(x: torch.Tensor, number: float) -> torch.Tensor:
    if x.is_floating_point():
        return torch.pow(x, number)
    return in_type_of(x, torch.pow(x.double(), number))


def _rpower(x: torch.Tensor, number: float) -> torch.Tensor:
    if x.is_floating_point():
        return torch.pow(number, x)
    return in_type_of(x, torch.pow(number, x.double()))


def _logic(compare: Callable[..., torch.Tensor]) -> Scalar:
    written = in_operand_type(compare)
    return lambda x, number: written(x, tensor_like(x, number))


def _one_sided_clamp(name: str, inside: Callable[..., torch.Tensor]) -> Scalar:
    """Return a one-sided `torch.clamp`, with a gradient computed without branches."""

    def limit(x: torch.Tensor, number: Any) -> torch.Tensor:
        if not (x.requires_grad and torch.is_grad_enabled()):
            return torch.clamp(x, **{name: number})
        slope = with_gradient(lambda t: torch.clamp(t, **{name: number}), lambda t, y: inside(t, number))
        return slope(x)

    return limit


_DROP = ("is_int",)

SCALAR: dict[str, tuple[Scalar, str, Onnx]] = {
    "plus": (
        lambda x, s: x + operand_for(x, s),
        "Add a number to each element",
        Onnx("Add", scalar="last", drop=_DROP),
    ),
    "minus": (
        lambda x, s: x - operand_for(x, s),
        "Subtract a number from each element",
        Onnx("Sub", scalar="last", drop=_DROP),
    ),
    "rminus": (
        lambda x, s: operand_for(x, s) - x,
        "Subtract each element from a number",
        Onnx("Sub", scalar="first", drop=_DROP),
    ),
    "mul": (
        lambda x, s: x * operand_for(x, s),
        "Multiply each element by a number",
        Onnx("Mul", scalar="last", drop=_DROP),
    ),
    "div": (
        lambda x, s: x / operand_for(x, s) if x.is_floating_point() else divide(x, tensor_like(x, s)),
        "Divide each element by a number (integers are truncated, and division by 0 gives 0)",
        Onnx("Div", scalar="last", builder="divide"),
    ),
    "rdiv": (
        lambda x, s: divide(tensor_like(x, s), x),
        "Divide a number by each element (integers are truncated)",
        Onnx("Div", scalar="first", builder="divide"),
    ),
    "mod": (
        lambda x, s: torch.remainder(x, s) if s else torch.zeros_like(x),
        "Return the remainder of division by a number, with its sign; 0 for division by 0",
        Onnx("Mod", scalar="last", builder="mod"),
    ),
    "rmod": (
        lambda x, s: modulo(tensor_like(x, s), x),
        "Return the remainder of a number divided by each element, with the element's sign; 0 for division by 0",
        Onnx("Mod", scalar="first", builder="mod"),
    ),
    "power": (_power, "Raise each element to a power", Onnx("Pow", scalar="last", builder="power")),
    "rpower": (
        _rpower,
        "Raise a number to the power of each element",
        Onnx("Pow", scalar="first", builder="power"),
    ),
    "maximum": (
        _one_sided_clamp("min", in_operand_type(torch.ge)),
        "Return the maximum of each element and a number (the gradient is 1 if both are equal)",
        Onnx("Max", scalar="last", drop=_DROP),
    ),
    "minimum": (
        _one_sided_clamp("max", in_operand_type(torch.le)),
        "Return the minimum of each element and a number (the gradient is 1 if both are equal)",
        Onnx("Min", scalar="last", drop=_DROP),
    ),
    "hypot": (
        lambda x, s: hypot(x, tensor_like(x, s)),
        "Return sqrt(data^2 + scalar^2)",
        Onnx(scalar="last", builder="hypot"),
    ),
}
"""Name: function of array and number, first sentence, ONNX operator; names with "r" take the number first."""


_OTHERS = "int64 for booleans; float64 for integers when `is_int` is False"


def scalar_attrs() -> dict[str, Attr]:
    """Return the attributes of operators of an array and a number."""
    return {
        "scalar": Attr(real, "second operand", 1.0),
        "is_int": Attr(
            boolean, "truncate the number for integer data; if False, the result is float64", True
        ),
    }


def _types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the input's type; booleans give int64, and integers give float64 if `is_int` is False."""
    if a.is_int:
        dtype = ins[0] or outs[0]
        return [dtype], ["int64" if ins[0] == "bool" else dtype]
    if ins[0] is None:
        return ins, outs
    return ins, [ins[0] if "float" in ins[0] else "float64"]


def _float_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the input's type; integers and booleans give float32."""
    dtype = ins[0] or outs[0]
    return [dtype], [dtype if dtype is None or "float" in dtype else "float32"]


def declare_scalar(
    name: str,
    aliases: Names,
    function: Scalar,
    sentence: str,
    onnx: Onnx,
    in_floats: bool = False,
    classic: str = "",
) -> None:
    """Declare an operator of an array and the number ``scalar``.

    Args:
        in_floats: True if integers and booleans give float32.
        classic: the field of `Op`.
    """

    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        number, is_int = a.scalar, a.is_int

        def run(x: torch.Tensor) -> torch.Tensor:
            if x.is_floating_point():
                return function(x, number)
            if in_floats:
                return function(x.float(), number)
            if x.dtype == torch.bool and is_int:
                x = x.to(torch.int64)
            return function(x, element_of(x, number)) if is_int else function(x.double(), number)

        run.__name__ = name.strip("_")
        return run

    others = "float32 for integers and booleans" if in_floats else _OTHERS
    bind.__doc__ = f"""{sentence}.

Shape:
    data: any shape.
    returns: the shape and dtype of `data`; {others}.

Source: MXNet 1.9.1 `{name}`.
"""
    types = _float_types if in_floats else _types
    bound(
        name,
        [arg("data", ROWS)],
        scalar_attrs(),
        aliases=aliases,
        infer=same,
        infer_type=types,
        classic=classic,
        onnx=onnx,
    )(bind)


for _word, (_scalar, _sentence, _onnx) in SCALAR.items():
    _title = f"R{_word[1:].title()}" if _word.startswith("r") else _word.title()
    declare_scalar(f"_{_word}_scalar", (f"_{_title}Scalar",), _scalar, _sentence, _onnx)
for _word, (_test, _holds, _onnx) in COMPARISONS.items():
    declare_scalar(
        f"_{_word}_scalar",
        (f"_{_word.title().replace('_', '')}Scalar",),
        (_logic if _word.startswith("logical") else in_operand_type)(_test),
        f"Return 1 if {_holds}, else 0, with the array first and the number second",
        _onnx,
    )
