"""Arithmetic and comparison of an array with a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...devices.device_transfer import beside
from ..attrs import boolean, real
from ..bound import bound
from ..shapes import same
from ..spec import ROWS, Attr, Onnx, Types, arg
from .binary import divide, hypot, modulo
from .compare import COMPARISONS, in_operand_type
from .pointwise import in_type_of, whole, with_gradient

Scalar = Callable[[torch.Tensor, Any], torch.Tensor]


def _power(x: torch.Tensor, number: float) -> torch.Tensor:
    if x.is_floating_point():
        return torch.pow(x, number)
    return in_type_of(x, torch.pow(x.double(), number))


def _rpower(x: torch.Tensor, number: float) -> torch.Tensor:
    if x.is_floating_point():
        return torch.pow(number, x)
    return in_type_of(x, torch.pow(number, x.double()))


def _logic(test: Callable[..., torch.Tensor]) -> Scalar:
    written = in_operand_type(test)
    return lambda x, number: written(x, beside(x, number))


def _limit(name: str, inside: Callable[..., torch.Tensor]) -> Scalar:
    """Return `torch.clamp` from one side, with a gradient that is computed without branches."""

    def limit(x: torch.Tensor, number: Any) -> torch.Tensor:
        if not (x.requires_grad and torch.is_grad_enabled()):
            return torch.clamp(x, **{name: number})
        slope = with_gradient(lambda t: torch.clamp(t, **{name: number}), lambda t, y: inside(t, number))
        return slope(x)

    return limit


_DROP = ("is_int",)

_SCALAR: dict[str, tuple[Scalar, str, str, Onnx]] = {
    "plus": (torch.add, "Plus", "Add a number to each element", Onnx("Add", scalar="last", drop=_DROP)),
    "minus": (
        torch.sub,
        "Minus",
        "Subtract a number from each element",
        Onnx("Sub", scalar="last", drop=_DROP),
    ),
    "rminus": (
        lambda x, s: s - x,
        "RMinus",
        "Subtract each element from a number",
        Onnx("Sub", scalar="first", drop=_DROP),
    ),
    "mul": (torch.mul, "Mul", "Multiply each element by a number", Onnx("Mul", scalar="last", drop=_DROP)),
    "div": (
        lambda x, s: x / s if x.is_floating_point() else divide(x, beside(x, s)),
        "Div",
        "Divide each element by a number (integers are cut towards 0, and give 0 where the number is 0)",
        Onnx("Div", scalar="last", builder="divide"),
    ),
    "rdiv": (
        lambda x, s: divide(beside(x, s), x),
        "RDiv",
        "Divide a number by each element (integers are cut towards 0)",
        Onnx("Div", scalar="first", builder="divide"),
    ),
    "mod": (
        lambda x, s: torch.remainder(x, s) if s else torch.zeros_like(x),
        "Mod",
        "Return the remainder by a number, with its sign, and 0 by 0",
        Onnx("Mod", scalar="last", builder="mod"),
    ),
    "rmod": (
        lambda x, s: modulo(beside(x, s), x),
        "RMod",
        "Return the remainder of a number by each element, with the element's sign, and 0 by 0",
        Onnx("Mod", scalar="first", builder="mod"),
    ),
    "power": (_power, "Power", "Raise each element to a power", Onnx("Pow", scalar="last", builder="power")),
    "rpower": (
        _rpower,
        "RPower",
        "Raise a number to the power of each element",
        Onnx("Pow", scalar="first", builder="power"),
    ),
    "maximum": (
        _limit("min", in_operand_type(torch.ge)),
        "Maximum",
        "Return the greater of each element and a number (the gradient is 1 where both are equal)",
        Onnx("Max", scalar="last", drop=_DROP),
    ),
    "minimum": (
        _limit("max", in_operand_type(torch.le)),
        "Minimum",
        "Return the smaller of each element and a number (the gradient is 1 where both are equal)",
        Onnx("Min", scalar="last", drop=_DROP),
    ),
    "hypot": (
        lambda x, s: hypot(x, beside(x, s)),
        "Hypot",
        "Return sqrt(data^2 + scalar^2)",
        Onnx(scalar="last", builder="hypot"),
    ),
}
"""Word: function of array and number, spelling of the alias, first sentence, ONNX operator."""


def _attrs() -> dict[str, Attr]:
    return {
        "scalar": Attr(real, "operand beside every element", 1.0),
        "is_int": Attr(
            boolean, "cut the number's fraction when data are integers; if not, the result is float64", True
        ),
    }


def _types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """One type, except that booleans give int64, and integers with a number that is not one float64."""
    if a.is_int:
        found = ins[0] or outs[0]
        return [found], ["int64" if ins[0] == "bool" else found]
    if ins[0] is None:
        return ins, outs
    return ins, [ins[0] if "float" in ins[0] else "float64"]


def _declare(name: str, alias: str, function: Scalar, sentence: str, onnx: Onnx) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        number, is_int = a.scalar, a.is_int

        def run(x: torch.Tensor) -> torch.Tensor:
            if x.is_floating_point():
                return function(x, number)
            if x.dtype == torch.bool and is_int:
                x = x.to(torch.int64)
            return function(x, whole(number)) if is_int else function(x.double(), number)

        run.__name__ = name.strip("_")
        return run

    bind.__doc__ = f"""{sentence}.

Shape:
    data: any shape.
    returns: the shape and dtype of `data`; int64 for booleans; float64 for integers when `is_int` is False.

Source: MXNet 1.9.1 `{name}`.
"""
    bound(name, [arg("data", ROWS)], _attrs(), aliases=(alias,), infer=same, infer_type=_types, onnx=onnx)(
        bind
    )


for _word, (_function, _alias, _sentence, _onnx) in _SCALAR.items():
    _declare(f"_{_word}_scalar", f"_{_alias}Scalar", _function, _sentence, _onnx)
for _word, (_test, _alias, _holds, _onnx) in COMPARISONS.items():
    _declare(
        f"_{_word}_scalar",
        f"_{_alias.replace('_', '')}Scalar",
        (_logic if _word.startswith("logical") else in_operand_type)(_test),
        f"Return 1 where {_holds}, else 0, with the array first and the number second",
        _onnx,
    )
