"""Operators that ONNX has and MXNet's symbols do not: bits of integers, remainders as C has them, types of few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..attrs import boolean, choice
from ..registry import declare, op
from ..shapes import broadcasting, same
from ..spec import ROWS, Attr, Onnx, arg

__all__ = ["FEW_BITS"]

_BITWISE: tuple[tuple[str, Callable[..., torch.Tensor], str, Onnx], ...] = (
    (
        "and",
        torch.bitwise_and,
        "Return the bits that both integers have",
        Onnx("BitwiseAnd", builder="bitwise"),
    ),
    (
        "or",
        torch.bitwise_or,
        "Return the bits that one integer or both have",
        Onnx("BitwiseOr", builder="bitwise"),
    ),
    (
        "xor",
        torch.bitwise_xor,
        "Return the bits in which integers differ",
        Onnx("BitwiseXor", builder="bitwise"),
    ),
    (
        "left_shift",
        torch.bitwise_left_shift,
        "Move the bits of the first integer up by the second, without those that leave its type",
        Onnx(missing="it shifts unsigned integers alone"),
    ),
    (
        "right_shift",
        torch.bitwise_right_shift,
        "Move the bits of the first integer down by the second; its sign stays",
        Onnx(missing="it shifts unsigned integers alone"),
    ),
)

for _word, _function, _sentence, _onnx in _BITWISE:
    declare(
        f"_npi_bitwise_{_word}",
        _function,
        [arg("lhs"), arg("rhs")],
        doc=f"""{_sentence}, with broadcasting.

Shape:
    lhs, rhs: shapes whose dimensions are equal or 1, aligned at the end; integers of one dtype.
    returns: the greater of each two dimensions; the dtype of the inputs.

Source: MXNet {"2.0" if "shift" in _word else "1.9.1"} `_npi_bitwise_{_word}`.
""",
        infer=broadcasting,
        onnx=_onnx,
    )

declare(
    "_npi_bitwise_not",
    torch.bitwise_not,
    [arg("x", ROWS)],
    doc="""Turn every bit of integers.

Shape:
    x: any shape, of integers.
    returns: the same shape and dtype.

Source: MXNet 1.9.1 `_npi_bitwise_not`.
""",
    infer=same,
    onnx=Onnx("BitwiseNot", builder="bitwise"),
)


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


FEW_BITS = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
    "float4_e2m1": None,
}
"""Types of 8 and 4 bits by name; torch has none of 4 bits."""


@op(
    "_onnx_round",
    [arg("data", ROWS)],
    {
        "to": Attr(choice(*FEW_BITS), "whose values are kept"),
        "saturate": Attr(boolean, "make too great numbers the greatest, not infinity or NaN", True),
    },
    infer=same,
    onnx=Onnx("Cast", builder="few_bits"),
)
def onnx_round(a: Any, env: Any, data: torch.Tensor) -> torch.Tensor:
    """Round floats to the values of a type of 8 or 4 bits, a half to the even neighbour.

    Shape:
        data: any shape, of floats.
        returns: the same shape and dtype.

    Source: ONNX `Cast`, to the type and back.
    """
    dtype = FEW_BITS[a.to]
    if dtype is None:
        size = data.abs()
        step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0)).to(data.dtype)
        return ((data / step).round() * step).clamp(-6, 6).nan_to_num(nan=-0.0)
    limit = torch.finfo(dtype).max
    found = (data.clamp(-limit, limit) if a.saturate else data).to(dtype).to(data.dtype)
    if a.saturate or dtype is not torch.float8_e4m3fn:
        return found
    # newer versions of torch saturate; 464 lies half way to the next value, which the type does not have
    return torch.where(data.abs() > 464, torch.nan, found)
