"""Elementwise operators whose gradient is not that of what they compute, and a polynomial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..attrs import boolean, real
from ..bound import bound
from ..math.pointwise import in_type_of, round_away, with_gradient
from ..registry import declare
from ..shapes import same
from ..spec import ROWS, Attr, Onnx, arg

__all__: list[str] = []

Elementwise = Callable[[torch.Tensor], torch.Tensor]


def _pass(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x)


_DOC = """{sentence}, and let the gradient through as it is.

Shape:
    data: any shape.
    returns: the same.

Source: MXNet 1.9.1 `{name}`; the straight-through estimator of Bengio et al. (2013).
"""

for _name, _function, _sentence, _onnx in (
    (
        "_contrib_round_ste",
        round_away,
        "Round to the nearest whole number, halves away from 0",
        Onnx(builder="round_away"),
    ),
    ("_contrib_sign_ste", torch.sign, "Return -1, 0 or 1", Onnx("Sign")),
):
    declare(
        _name,
        with_gradient(_function, _pass),
        [arg("data", ROWS)],
        doc=_DOC.format(sentence=_sentence, name=_name),
        aliases=(f"_sparse_{_name}",),
        infer=same,
        onnx=_onnx,
    )


class _Scaled(torch.autograd.Function):
    """Return the input; its gradient is multiplied by a number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0] * ctx.factor, None


_scaled: Callable[..., torch.Tensor] = _Scaled.apply


@bound(
    "_contrib_gradientmultiplier",
    [arg("data", ROWS)],
    {
        "scalar": Attr(real, "factor of the gradient; negative ones reverse it", 1.0),
        "is_int": Attr(boolean, "accepted for old graphs", True),
    },
    infer=same,
    onnx=Onnx("Identity", drop=("scalar", "is_int")),
)
def gradientmultiplier(a: Any) -> Elementwise:
    """Return the input as it is, and multiply its gradient by a number.

    Shape:
        data: any shape.
        returns: the same.

    Source: MXNet 1.9.1 `_contrib_gradientmultiplier`; gradient reversal of Ganin and Lempitsky (2015).
    """
    factor = a.scalar

    def gradientmultiplier(x: torch.Tensor) -> torch.Tensor:
        return _scaled(x, factor)

    return gradientmultiplier


@bound(
    "_contrib_quadratic",
    [arg("data", ROWS)],
    {
        "a": Attr(real, "factor of the square", 0.0),
        "b": Attr(real, "factor of the element", 0.0),
        "c": Attr(real, "constant", 0.0),
    },
    infer=same,
    onnx=Onnx(builder="quadratic"),
)
def quadratic(a: Any) -> Elementwise:
    """Return ``a * x ** 2 + b * x + c`` of each element.

    Shape:
        data: any shape.
        returns: the same.

    Source: MXNet 1.9.1 `_contrib_quadratic`.
    """
    square, slope, constant = a.a, a.b, a.c

    def quadratic(x: torch.Tensor) -> torch.Tensor:
        return in_type_of(x, (square * x + slope) * x + constant)

    return quadratic
