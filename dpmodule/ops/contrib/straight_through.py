"""Elementwise operators whose gradient is not that of what they compute, and a polynomial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape
from ..attrs import boolean, real
from ..bound import bound
from ..math.pointwise import in_type_of, round_away, with_gradient
from ..registry import declare
from ..shapes import same, unify
from ..spec import ROWS, SHARE, Attr, Onnx, Shapes, Types, arg

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


class _ScaledBy(torch.autograd.Function):
    """Return the input; its gradient is multiplied by a tensor of one number, or divided by it."""

    @staticmethod
    def forward(x: torch.Tensor, factor: torch.Tensor, inverse: bool) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.inverse = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (factor,) = ctx.saved_tensors
        scaled = grads[0] / factor if ctx.inverse else grads[0] * factor
        return scaled.to(grads[0].dtype), None, None


_scaled_by: Callable[..., torch.Tensor] = _ScaledBy.apply


def _first_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "_scale_gradient")
    return [shape, (1,)], [shape]


def _first_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = ins[0] or outs[0]
    return [found, ins[1] or "float32"], [found]


@bound(
    "_scale_gradient",
    [arg("data", ROWS), arg("factor", SHARE)],
    {"inverse": Attr(boolean, "divide instead of multiplying", False)},
    infer=_first_shape,
    infer_type=_first_type,
    onnx=Onnx(missing="it is part of training in 16 bits alone"),
)
def scale_gradient(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the input as it is, and multiply its gradient by a number, or divide it.

    Shape:
        data: any shape.
        factor: (1,); it gets no gradient.
        returns: that of `data`.

    Source: loss scaling of Micikevicius et al., "Mixed precision training", 2018.
    """
    inverse = a.inverse

    def scale_gradient(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return _scaled_by(x, factor, inverse)

    return scale_gradient


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
