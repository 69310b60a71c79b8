"""Operators that ONNX has and MXNet's symbols do not: bits of integers, remainders as C has them, types of few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..attrs import boolean, choice
from ..registry import op
from ..shapes import broadcasting, same
from ..spec import ROWS, Attr, Onnx, arg

_BITWISE: dict[str, Callable[..., torch.Tensor]] = {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
}


@op(
    "_onnx_bitwise",
    [arg("lhs"), arg("rhs")],
    {"kind": Attr(choice(*_BITWISE), "what is done with the bits")},
    infer=broadcasting,
    differentiable=False,
    onnx=Onnx(builder="onnx_bitwise"),
)
def onnx_bitwise(a: Any, env: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Combine the bits of integers, or shift those of the first by the second, with broadcasting.

    A shift to the right keeps the sign.

    Shape:
        lhs, rhs: shapes whose dimensions are equal or 1, aligned at the end; integers.
        returns: the greater of each two dimensions; the dtype of the inputs.

    Source: ONNX `BitwiseAnd`, `BitwiseOr`, `BitwiseXor` and `BitShift`.
    """
    return _BITWISE[a.kind](left, right)


@op(
    "_onnx_mod",
    [arg("lhs"), arg("rhs")],
    {"fmod": Attr(boolean, "take the sign of the dividend, as C's fmod, not that of the divisor", False)},
    infer=broadcasting,
    onnx=Onnx("Mod", builder="onnx_mod"),
)
def onnx_mod(a: Any, env: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the remainder of a division, NaN where floats are divided by 0, with broadcasting.

    Shape:
        lhs, rhs: shapes whose dimensions are equal or 1, aligned at the end.
        returns: the greater of each two dimensions; the dtype of the inputs.

    Source: ONNX `Mod`; integers give 0 where they are divided by 0.
    """
    if not left.is_floating_point():
        zero = right == 0
        divide = torch.fmod if a.fmod else torch.remainder
        return torch.where(zero, 0, divide(left, torch.where(zero, 1, right)))
    # zeros, too, have the sign of the divisor; torch leaves them that of the dividend
    return torch.fmod(left, right) if a.fmod else torch.copysign(torch.remainder(left, right), right)


_FLOATS = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
}
"""Types of 8 bits by name."""

_ROUNDED_TO = ("integer", *_FLOATS, "float4_e2m1")


@op(
    "_onnx_round",
    [arg("data", ROWS)],
    {
        "to": Attr(choice(*_ROUNDED_TO), "the values that are kept: integers, or those of a type", "integer"),
        "saturate": Attr(boolean, "make too great numbers the greatest of 8 bits, not infinity or NaN", True),
    },
    infer=same,
    onnx=Onnx("Round", builder="onnx_round"),
)
def onnx_round(a: Any, env: Any, data: torch.Tensor) -> torch.Tensor:
    """Round floats to integers, or to the values of a type of 8 or 4 bits; a half goes to the even neighbour.

    Shape:
        data: any shape, of floats.
        returns: the same shape and dtype.

    Source: ONNX `Round`, and `Cast` to a type and back.
    """
    if a.to == "integer":
        return torch.round(data)
    if a.to == "float4_e2m1":
        size = data.abs()
        step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0)).to(data.dtype)
        return ((data / step).round() * step).clamp(-6, 6).nan_to_num(nan=-0.0)
    dtype = _FLOATS[a.to]
    limit = torch.finfo(dtype).max
    found = (data.clamp(-limit, limit) if a.saturate else data).to(dtype).to(data.dtype)
    if a.saturate or dtype is not torch.float8_e4m3fn:
        return found
    # newer versions of torch saturate; 464 lies half way to the next value, which the type does not have
    return torch.where(data.abs() > 464, torch.nan, found)
