"""Elementwise functions, arithmetic, comparison and logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..math.binary import COMPARISONS, SCALAR, Binary, declare_scalar, modulo, power, scalar_attrs
from ..math.pointwise import Elementwise
from ..math.unary import ELEMENTWISE
from ..registry import bound, declare
from ..shapes import broadcasting, same
from ..spec import ROWS, Onnx, arg
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

_FUNCTIONS = """
abs:absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix floor log log10
log1p log2 negative radians reciprocal rint sign sin sinh sqrt square tan tanh trunc
""".split()

for _pair in _FUNCTIONS:
    _word, _, _other = _pair.partition(":")
    _function, _sentence, _onnx = ELEMENTWISE[_word]
    _name = f"_npi_{_other or _word}"
    declare(
        _name,
        _function,
        [arg("x", ROWS)],
        doc=_unary_doc(_name, _sentence, _KEEPS),
        aliases=(f"_npi_{_word}",) if _other else (),
        infer=same,
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
    differentiable=False,
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
) -> None:
    declare(
        f"_npi_{name}",
        _promoting(function),
        [arg(each) for each in names],
        doc=_binary_doc(f"_npi_{name}", sentence, returns, names),
        infer=broadcasting,
        infer_type=rule,
        onnx=onnx,
    )


_divided = types_by(lambda a, *types: common(*types) if "float" in common(*types) else "float32")

_declare_binary("add", torch.add, "Add two arrays", Onnx("Add"))
_declare_binary("subtract", torch.sub, "Subtract the second array from the first", Onnx("Sub"))
_declare_binary("multiply", torch.mul, "Multiply two arrays", Onnx("Mul"))
_declare_binary(
    "true_divide",
    torch.true_divide,
    "Divide the first array by the second",
    Onnx("Div"),
    _divided,
    returns="the common type of both, float32 for integers",
)
_declare_binary(
    "mod",
    modulo,
    "Return the remainder with the sign of the divisor, 0 for a divisor of 0",
    Onnx(builder="mod"),
)
_declare_binary(
    "power", power, "Raise the first array to the power of the second", Onnx("Pow", builder="power")
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
    declare_scalar(f"_npi_{_name}_scalar", (), _scalar, _sentence, _onnx)
declare_scalar(
    "_npi_true_divide_scalar",
    (),
    torch.true_divide,
    "Divide each element by a number",
    Onnx("Div", scalar="last", drop=("is_int",)),
    in_floats=True,
)
declare_scalar(
    "_npi_rtrue_divide_scalar",
    (),
    lambda x, number: number / x,
    "Divide a number by each element",
    Onnx("Div", scalar="first", drop=("is_int",)),
    in_floats=True,
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
