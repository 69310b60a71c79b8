"""Conversion of element types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...mode import integers_carried
from ..attrs import dtype
from ..bound import bound
from ..dtypes import name_of, torch_dtype
from ..shapes import same
from ..spec import ROWS, Attr, Onnx, Types, arg

Unary = Callable[[torch.Tensor], torch.Tensor]

_FLOATS = ("float16", "bfloat16", "float32")


@bound(
    "Cast",
    [arg("data", ROWS)],
    {"dtype": Attr(dtype, "wanted dtype")},
    aliases=("cast",),
    infer=same,
    infer_type=lambda a, ins, outs: (ins, [a.dtype]),
    view=True,
    onnx=Onnx("Cast", builder="converted"),
)
def cast(a: Any) -> Unary:
    """Convert the element type; integers lose the fraction, and the gradient comes back in the old type.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `Cast`.
    """
    kind = torch_dtype(a.dtype)
    floating = kind.is_floating_point

    def cast(x: torch.Tensor) -> torch.Tensor:
        if not floating and integers_carried():
            real = x.double()
            return real + (real.detach().to(kind).double() - real.detach())
        return x.to(kind)

    return cast


def _amp_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return ins, [a.dtype if ins[0] in _FLOATS else ins[0] or outs[0]]


@bound(
    "amp_cast",
    [arg("data", ROWS)],
    {"dtype": Attr(dtype, "wanted dtype")},
    infer=same,
    infer_type=_amp_types,
    view=True,
    onnx=Onnx("Cast", builder="converted"),
)
def amp_cast(a: Any) -> Unary:
    """Convert between float32 and the half-precision types; leave other types alone.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `amp_cast`.
    """
    kind = torch_dtype(a.dtype)

    def amp_cast(x: torch.Tensor) -> torch.Tensor:
        return x.to(kind) if name_of(x.dtype) in _FLOATS else x

    return amp_cast
