"""Elementwise functions, arithmetic, comparison and logic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..._devices.device_transfer import tensor_like
from ..attrs import boolean, integer, optional, real
from ..math.binary import (
    COMPARISONS,
    SCALAR,
    Binary,
    Scalar,
    declare_scalar,
    modulo,
    power,
    scalar_attrs,
)
from ..math.pointwise import Elementwise, in_type_of, to_integer
from ..math.unary import ELEMENTWISE
from ..registry import bound, declare, pure
from ..shapes import broadcasting, same
from ..spec import ROWS, Attr, Onnx, arg
from .rules import common, promoted, to_common, truths, types_by


def _unary_doc(name: str, sentence: str, returns: str) -> str:
    return f"""{sentence}.

Shape:
    x: any shape.
    returns: {returns}.

Source: MXNet 1.9.1 `{name}`.
"""


_KEEPS = "the shape and dtype of `x`; integer types truncate fractions"
_TRUTH = "the shape of `x`, bool"

_FUNCTIONS = [
    "abs:absolute",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "expm1",
    "fix",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "negative",
    "radians",
    "reciprocal",
    "rint",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]

_FURTHER = {
    "_npi_absolute": ("_npi_abs",),
    "_npi_degrees": ("_npi_rad2deg",),
    "_npi_radians": ("_npi_deg2rad",),
}
"""Other names, some of them of MXNet 1.6."""

for _pair in _FUNCTIONS:
    _word, _, _other = _pair.partition(":")
    _function, _sentence, _onnx = ELEMENTWISE[_word]
    _name = f"_npi_{_other or _word}"
    declare(
        _name,
        _function,
        [arg("x", ROWS)],
        doc=_unary_doc(_name, _sentence, _KEEPS),
        aliases=_FURTHER.get(_name, ()),
        infer=same,
        classic=_word,
        onnx=_onnx if _onnx.builder else Onnx(_onnx.type),
    )


declare(
    "_npi_bitwise_not",
    torch.bitwise_not,
    [arg("x", ROWS)],
    doc=_unary_doc(
        "_npi_bitwise_not", "Invert the bits of integers, or negate booleans", "the shape and dtype of `x`"
    ),
    infer=same,
    onnx=Onnx("BitwiseNot", builder="bitwise_not"),
)

_TESTS: dict[str, tuple[Elementwise, str, Onnx]] = {
    "logical_not": (torch.logical_not, "Return True if an element is 0", Onnx(builder="is_zero")),
    "isnan": (torch.isnan, "Return True if an element is NaN", Onnx(builder="number_test")),
    "isinf": (torch.isinf, "Return True if an element is infinite", Onnx(builder="number_test")),
    "isposinf": (
        torch.isposinf,
        "Return True if an element is positive infinity",
        Onnx(builder="number_test"),
    ),
    "isneginf": (
        torch.isneginf,
        "Return True if an element is negative infinity",
        Onnx(builder="number_test"),
    ),
    "isfinite": (
        torch.isfinite,
        "Return True if an element is neither infinite nor NaN",
        Onnx(builder="number_test"),
    ),
}

for _word, (_function, _sentence, _onnx) in _TESTS.items():
    declare(
        f"_npi_{_word}",
        _function,
        [arg("x", ROWS)],
        doc=_unary_doc(f"_npi_{_word}", _sentence, _TRUTH),
        infer=same,
        infer_type=truths,
        onnx=_onnx,
    )


def _promoting(function: Binary) -> Binary:
    """Return a function that first converts its operands to their common type."""

    def run(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return function(left, right) if left.dtype == right.dtype else function(*to_common(left, right))

    run.__name__ = getattr(function, "__name__", "run")
    return run


def _binary_doc(name: str, sentence: str, returns: str, names: tuple[str, str]) -> str:
    return f"""{sentence}, with broadcasting.

Shape:
    {names[0]}, {names[1]}: shapes whose dimensions are equal or 1, aligned at the end.
    returns: the larger of each two dimensions; {returns}.

Source: MXNet 1.9.1 `{name}`.
"""


def _declare_binary(
    name: str,
    function: Binary,
    sentence: str,
    onnx: Onnx,
    rule: Any = promoted,
    names: tuple[str, str] = ("lhs", "rhs"),
    returns: str = "the common type of both",
    classic: str = "",
) -> None:
    declare(
        f"_npi_{name}",
        _promoting(function),
        [arg(each) for each in names],
        doc=_binary_doc(f"_npi_{name}", sentence, returns, names),
        infer=broadcasting,
        infer_type=rule,
        classic=classic,
        onnx=onnx,
    )


_divided = types_by(lambda a, *types: common(*types) if "float" in common(*types) else "float32")

_declare_binary("add", torch.add, "Add two arrays", Onnx("Add"), classic="broadcast_add")
_declare_binary(
    "subtract", torch.sub, "Subtract the second array from the first", Onnx("Sub"), classic="broadcast_sub"
)
_declare_binary("multiply", torch.mul, "Multiply two arrays", Onnx("Mul"), classic="broadcast_mul")
_declare_binary(
    "true_divide",
    torch.true_divide,
    "Divide the first array by the second",
    Onnx("Div"),
    _divided,
    returns="the common type of both, float32 for integers",
    classic="broadcast_div",
)
_declare_binary(
    "mod",
    modulo,
    "Return the remainder with the sign of the divisor, 0 for a divisor of 0",
    Onnx(builder="mod"),
    classic="broadcast_mod",
)
_declare_binary(
    "power",
    power,
    "Raise the first array to the power of the second",
    Onnx("Pow", builder="power"),
    classic="broadcast_power",
)

for _word, (_test, _holds, _onnx) in COMPARISONS.items():
    if _word.startswith("logical"):
        continue
    _declare_binary(
        _word.replace("lesser", "less"),
        _test,
        f"Return True if {_holds}",
        Onnx(_onnx.type, builder="compare_as_bool"),
        truths,
        returns="bool",
    )

_PLAIN = {
    "add": "plus",
    "subtract": "minus",
    "rsubtract": "rminus",
    "multiply": "mul",
    "mod": "mod",
    "rmod": "rmod",
    "power": "power",
    "rpower": "rpower",
}

for _name, _word in _PLAIN.items():
    _scalar, _sentence, _onnx = SCALAR[_word]
    declare_scalar(f"_npi_{_name}_scalar", (), _scalar, _sentence, _onnx, classic=f"_{_word}_scalar")
declare_scalar(
    "_npi_true_divide_scalar",
    (),
    torch.true_divide,
    "Divide each element by a number",
    Onnx("Div", scalar="last", drop=("is_int",)),
    in_floats=True,
    classic="_div_scalar",
)
declare_scalar(
    "_npi_rtrue_divide_scalar",
    (),
    lambda x, number: number / x,
    "Divide a number by each element",
    Onnx("Div", scalar="first", drop=("is_int",)),
    in_floats=True,
    classic="_rdiv_scalar",
)


def _declare_test(name: str, test: Callable[..., torch.Tensor], sentence: str, onnx: Onnx) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        number = a.scalar

        def run(x: torch.Tensor) -> torch.Tensor:
            return test(x, bool(number) if x.dtype == torch.bool else number)

        run.__name__ = name.strip("_")
        return run

    bind.__doc__ = f"""{sentence}, with the array first and the number second.

Shape:
    data: any shape.
    returns: the shape of `data`, bool.

Source: MXNet 1.9.1 `{name}`.
"""
    bound(name, [arg("data", ROWS)], scalar_attrs(), infer=same, infer_type=truths, onnx=onnx)(bind)


for _word, (_test, _holds, _onnx) in COMPARISONS.items():
    if not _word.startswith("logical"):
        _declare_test(
            f"_npi_{_word.replace('lesser', 'less')}_scalar",
            _test,
            f"Return True if {_holds}",
            Onnx(_onnx.type, scalar="last", builder="compare_as_bool"),
        )


def _in_float(function: Binary) -> Binary:
    """Return a function that computes integers as float32."""

    def run(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return function(left, right) if left.is_floating_point() else function(left.float(), right.float())

    return run


def _ldexp(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if left.is_floating_point():
        return left * torch.pow(2.0, right)
    return in_type_of(left, left.double() * torch.pow(2.0, right.double()))


def _fmod(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    zero = right == 0
    return torch.where(zero, 0, torch.fmod(left, torch.where(zero, 1, right)))


def _floor_divide(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if left.is_floating_point():
        return torch.floor(left / right)
    zero = right == 0
    return torch.where(zero, 0, torch.div(left, torch.where(zero, 1, right), rounding_mode="floor"))


def _with_sign(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if left.is_floating_point():
        return torch.copysign(left, right)
    return torch.where(right < 0, -left.abs(), left.abs())


_FLOATING = "the common type of both, float32 for integers"
_INTEGERS = "the common type of both, integers"
_MORE: tuple[tuple[str, Binary, str, Onnx, Any, tuple[str, str], str], ...] = (
    (
        "arctan2",
        _in_float(torch.atan2),
        "Return the angle of the point (x2, x1) in radians",
        Onnx(builder="arctan2"),
        _divided,
        ("x1", "x2"),
        _FLOATING,
    ),
    (
        "hypot",
        _in_float(torch.hypot),
        "Return sqrt(x1^2 + x2^2)",
        Onnx(builder="hypot"),
        _divided,
        ("x1", "x2"),
        _FLOATING,
    ),
    (
        "copysign",
        _with_sign,
        "Return the magnitude of the first array with the sign of the second",
        Onnx(builder="copysign"),
        promoted,
        ("lhs", "rhs"),
        "the common type of both",
    ),
    (
        "ldexp",
        _ldexp,
        "Return lhs * 2^rhs",
        Onnx(builder="ldexp"),
        promoted,
        ("lhs", "rhs"),
        "the common type of both",
    ),
    (
        "fmod",
        _fmod,
        "Return the remainder with the sign of the dividend, 0 for a divisor of 0",
        Onnx(builder="fmod"),
        promoted,
        ("lhs", "rhs"),
        "the common type of both",
    ),
    (
        "floor_divide",
        _floor_divide,
        "Divide and round down",
        Onnx(builder="floor_divide"),
        promoted,
        ("lhs", "rhs"),
        "the common type of both",
    ),
    (
        "fmax",
        torch.fmax,
        "Return the maximum, or the other operand if one is NaN",
        Onnx(builder="fmax"),
        promoted,
        ("lhs", "rhs"),
        "the common type of both",
    ),
    (
        "fmin",
        torch.fmin,
        "Return the minimum, or the other operand if one is NaN",
        Onnx(builder="fmin"),
        promoted,
        ("lhs", "rhs"),
        "the common type of both",
    ),
    (
        "logaddexp",
        _in_float(torch.logaddexp),
        "Return log(exp(lhs) + exp(rhs))",
        Onnx(builder="logaddexp"),
        _divided,
        ("lhs", "rhs"),
        _FLOATING,
    ),
)

for _each in _MORE:
    _declare_binary(*_each)

_NO_LCM = Onnx(missing="ONNX has no greatest common divisor")
_NO_SHIFT = Onnx(missing="ONNX shifts only unsigned integers")
_BITS: dict[str, tuple[Binary, str, Onnx]] = {
    "bitwise_and": (torch.bitwise_and, "Combine bits by and", Onnx("BitwiseAnd", builder="bitwise")),
    "bitwise_or": (torch.bitwise_or, "Combine bits by or", Onnx("BitwiseOr", builder="bitwise")),
    "bitwise_xor": (torch.bitwise_xor, "Combine bits by exclusive or", Onnx("BitwiseXor", builder="bitwise")),
    "bitwise_left_shift": (torch.bitwise_left_shift, "Shift bits to the left", _NO_SHIFT),
    "bitwise_right_shift": (torch.bitwise_right_shift, "Shift bits to the right", _NO_SHIFT),
    "lcm": (torch.lcm, "Return the least common multiple", _NO_LCM),
    "gcd": (torch.gcd, "Return the greatest common divisor", _NO_LCM),
}
"""Name: function of integers, first sentence, ONNX operator."""


def _declare_bits_scalar(
    name: str, function: Binary, sentence: str, onnx: Onnx, reverse: bool = False
) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        number = to_integer(a.scalar)

        def run(x: torch.Tensor) -> torch.Tensor:
            other = tensor_like(x, bool(number) if x.dtype == torch.bool else number)
            return function(other, x) if reverse else function(x, other)

        run.__name__ = name.strip("_")
        return run

    bind.__doc__ = f"""{sentence}, of each element and a number.

Shape:
    data: any shape, integers.
    returns: the shape and dtype of `data`.

Source: MXNet 1.9.1 `{name}`.
"""
    bound(name, [arg("data", ROWS)], scalar_attrs(), infer=same, onnx=onnx)(bind)


for _name, (_integer, _sentence, _onnx) in _BITS.items():
    declare(
        f"_npi_{_name}",
        _promoting(_integer),
        [arg("lhs"), arg("rhs")],
        doc=_binary_doc(f"_npi_{_name}", _sentence, _INTEGERS, ("lhs", "rhs")),
        infer=broadcasting,
        infer_type=promoted,
        onnx=_onnx,
    )
    _declare_bits_scalar(
        f"_npi_{_name}_scalar", _integer, _sentence, replace(_onnx, scalar="last" if _onnx.type else "")
    )
for _name in ("bitwise_left_shift", "bitwise_right_shift"):
    _declare_bits_scalar(f"_npi_r{_name}_scalar", _BITS[_name][0], _BITS[_name][1], _NO_SHIFT, reverse=True)

_LOGIC: dict[str, tuple[Binary, str, Onnx]] = {
    "logical_and": (torch.logical_and, "neither is 0", Onnx("And", builder="logic_as_bool")),
    "logical_or": (torch.logical_or, "one of them is not 0", Onnx("Or", builder="logic_as_bool")),
    "logical_xor": (torch.logical_xor, "exactly one of them is not 0", Onnx("Xor", builder="logic_as_bool")),
}

for _name, (_connect, _holds, _onnx) in _LOGIC.items():
    _declare_binary(_name, _connect, f"Return True if {_holds}", _onnx, truths, returns="bool")
    _declare_test(
        f"_npi_{_name}_scalar",
        partial(lambda function, x, number: function(x, tensor_like(x, number)), _connect),
        f"Return True if {_holds}",
        replace(_onnx, scalar="last"),
    )


def _with_number(function: Binary, reverse: bool = False) -> Scalar:
    """Return a function of an array and a number that keeps integer types."""

    def run(x: torch.Tensor, number: Any) -> torch.Tensor:
        real = x if x.is_floating_point() else x.double()
        other = torch.full((), number, dtype=real.dtype, device=real.device)
        return in_type_of(x, function(other, real) if reverse else function(real, other))

    return run


_SCALARS: tuple[tuple[str, Binary, bool, str, Onnx], ...] = (
    (
        "arctan2",
        torch.atan2,
        True,
        "Return the angle of the point (second operand, first operand)",
        Onnx(builder="arctan2"),
    ),
    (
        "copysign",
        torch.copysign,
        True,
        "Return the magnitude of the first operand with the sign of the second",
        Onnx(builder="copysign"),
    ),
    (
        "ldexp",
        _ldexp,
        True,
        "Return the first operand times 2 to the power of the second",
        Onnx(builder="ldexp"),
    ),
    ("fmod", _fmod, True, "Return the remainder with the sign of the dividend", Onnx(builder="fmod")),
    ("floor_divide", _floor_divide, True, "Divide and round down", Onnx(builder="floor_divide")),
    (
        "fmax",
        torch.fmax,
        False,
        "Return the maximum, or the number if the element is NaN",
        Onnx(builder="fmax"),
    ),
    (
        "fmin",
        torch.fmin,
        False,
        "Return the minimum, or the number if the element is NaN",
        Onnx(builder="fmin"),
    ),
    ("logaddexp", torch.logaddexp, False, "Return log(exp(data) + exp(scalar))", Onnx(builder="logaddexp")),
)
"""Name, function, True if there is a form with the number first, first sentence, ONNX operator."""

for _name, _two, _reverses, _sentence, _onnx in _SCALARS:
    declare_scalar(f"_npi_{_name}_scalar", (), _with_number(_two), _sentence, replace(_onnx, scalar="last"))
    if _reverses:
        declare_scalar(
            f"_npi_r{_name}_scalar",
            (),
            _with_number(_two, True),
            _sentence,
            replace(_onnx, scalar="first"),
        )


@pure(
    "_npi_around",
    [arg("x", ROWS)],
    {"decimals": Attr(integer(), "number of digits after the point to keep", 0)},
    infer=same,
    onnx=Onnx(builder="around"),
)
def around(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Round to a number of decimals, halves to even; integers are truncated. The gradient is 0.

    Shape:
        x: any shape.
        returns: the shape and dtype of `x`.

    Source: MXNet 1.9.1 `_npi_around`.
    """
    if not x.is_floating_point():
        step = 10 ** max(-a.decimals, 0)
        found: torch.Tensor = torch.div(x, step, rounding_mode="trunc") * step
        return found
    return torch.round(x, decimals=a.decimals)


@pure(
    "_npi_nan_to_num",
    [arg("data", ROWS)],
    {
        "copy": Attr(boolean, "accepted and ignored", True),
        "nan": Attr(real, "replacement of NaN", 0.0),
        "posinf": Attr(
            optional(real), "replacement of infinity; None means the largest number of the dtype", None
        ),
        "neginf": Attr(
            optional(real), "replacement of -infinity; None means the smallest number of the dtype", None
        ),
    },
    infer=same,
    onnx=Onnx(builder="nan_to_num"),
)
def nan_to_num(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Replace NaN and infinities by numbers; the gradient there is 0.

    Shape:
        data: any shape.
        returns: the shape and dtype of `data`.

    Source: MXNet 1.9.1 `_npi_nan_to_num`.
    """
    return torch.nan_to_num(x, a.nan, a.posinf, a.neginf)
