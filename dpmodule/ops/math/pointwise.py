"""Elementwise functions with custom gradients, and conversions for integer types."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ..._core import torch_private
from ..attrs import boolean, choice
from ..registry import op
from ..shapes import broadcasting, same
from ..spec import ROWS, Attr, Onnx, arg
from ..tracing import is_jit_tracing, is_tracing

Elementwise = Callable[[torch.Tensor], torch.Tensor]


class _Pointwise(torch.autograd.Function):
    """Elementwise ``function(x)`` with the derivative ``slope(x, y)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(function: Elementwise, slope: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return function(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.slope = inputs[1]
        ctx.save_for_backward(inputs[2], output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, y = ctx.saved_tensors
        return None, None, grads[0] * ctx.slope(x, y)


def with_gradient(
    function: Elementwise, slope: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Elementwise:
    """Return an elementwise function with a custom derivative.

    Args:
        function: ``(x) -> y``.
        slope: ``(x, y) -> dy/dx``.
    """
    apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Pointwise)

    def run(x: torch.Tensor) -> torch.Tensor:
        return function(x) if is_jit_tracing() else apply(function, slope, x)

    return run


def in_type_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Convert `y` to the type of `x`; integer types truncate fractions and wrap on overflow, and booleans do not."""
    if y.dtype == x.dtype:
        return y
    if y.is_floating_point() and not x.is_floating_point() and x.dtype is not torch.bool:
        y = y.to(torch.int64)
    return y.to(x.dtype)


def keep_type(function: Elementwise) -> Elementwise:
    """Return a function that keeps integer types, as in MXNet, where torch returns float32."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return function(x) if x.is_floating_point() else in_type_of(x, function(x.double()))

    run.__name__ = getattr(function, "__name__", "run")
    return run


def round_half_away(x: torch.Tensor) -> torch.Tensor:
    """Round to the nearest integer, halves away from 0, as C does."""
    cut = torch.trunc(x)
    return cut + torch.sign(x) * ((x - cut).abs() >= 0.5)


def to_integer(number: float) -> int:
    """Convert a number to an integer operand: truncated, limited to int64, NaN as 0."""
    if number != number:
        return 0
    limited = max(-(2.0**63), min(2.0**63, number))
    return min(int(limited), 2**63 - 1)


def element_of(x: torch.Tensor, number: float) -> float:
    """Return a number as an element of a tensor; integers truncate it, and wrap where it is out of their range."""
    if x.is_floating_point() or x.dtype is torch.bool:
        return number
    limits = torch.iinfo(x.dtype)
    return (to_integer(number) - limits.min) % (limits.max - limits.min + 1) + limits.min


_FEW = 1024
"""Number of elements up to which torch's largest element takes less time than the sum."""


@lru_cache(maxsize=1024)
def _in_float32(number: float, sign: float) -> torch.Tensor:
    with torch.inference_mode(False):  # else autograd could not use it later
        return torch.tensor(number, dtype=torch.float32, device="cpu")


def operand_for(x: torch.Tensor, number: float) -> torch.Tensor | float:
    """Return a number as an operand of arithmetic with a tensor, which must not be written.

    torch converts a number to the tensor's type in every call, forward and backward, which takes as long as a small
    operator. A tensor of the same type is not converted, and gives the same bits.
    """
    if x.dtype is torch.float32 and x.is_cpu and type(x) is torch.Tensor and not is_tracing():
        return _in_float32(number, math.copysign(1.0, number))
    return number


def relu_gradient(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return the data's gradient: the output's gradient where the output is positive, NaN where it is NaN, else 0.

    Args:
        out: the output, whose elements are nonnegative or NaN.
    """
    grad = torch.ops.aten.threshold_backward(grad, out, 0)
    return grad if _can_look(out) and not _has_nan(out) else torch.where(out.isnan(), out, grad)


def _can_look(values: torch.Tensor) -> bool:
    """Return True if Python can read a value without waiting for a device."""
    return values.is_cpu and not (torch_private.is_transformed(values) or is_tracing())


def _has_nan(out: torch.Tensor) -> bool:
    """Return True if an element of a relu's output is NaN."""
    # the sum of nonnegative numbers is NaN only if one of them is, and is much faster than a check of each
    values = out.detach()
    return math.isnan((values.max() if 0 < values.numel() <= _FEW else values.sum()).item())


class _Relu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(data: torch.Tensor) -> torch.Tensor:
        return torch.relu(data)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return relu_gradient(grads[0], *ctx.saved_tensors)


_apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Relu)


def relu(data: torch.Tensor) -> torch.Tensor:
    """Return max(x, 0) of each element, propagating NaN."""
    if not (data.requires_grad and torch.is_grad_enabled()) or is_jit_tracing():
        return torch.relu(data)
    if _can_look(data):
        out = torch.relu(data)  # whose gradient differs from MXNet's only for NaN
        if not _has_nan(out):
            return out
    return _apply(data)


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
    {"kind": Attr(choice(*_BITWISE), "bitwise operation")},
    infer=broadcasting,
    differentiable=False,
)
def onnx_bitwise(a: Any, env: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Combine the bits of integers, or shift the first operand by the second, with broadcasting.

    A right shift keeps the sign.

    Shape:
        lhs, rhs: shapes whose dimensions are equal or 1, aligned at the end; integers.
        returns: the larger of each two dimensions; the dtype of the inputs.

    Source: ONNX `BitwiseAnd`, `BitwiseOr`, `BitwiseXor` and `BitShift`.
    """
    return _BITWISE[a.kind](left, right)


@op(
    "_onnx_mod",
    [arg("lhs"), arg("rhs")],
    {"fmod": Attr(boolean, "use the sign of the dividend, as C's fmod, instead of the divisor's", False)},
    infer=broadcasting,
    onnx=Onnx("Mod", builder="onnx_mod"),
)
def onnx_mod(a: Any, env: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the remainder of a division, with broadcasting; NaN for floats divided by 0.

    Shape:
        lhs, rhs: shapes whose dimensions are equal or 1, aligned at the end.
        returns: the larger of each two dimensions; the dtype of the inputs.

    Source: ONNX `Mod`; integers divided by 0 give 0.
    """
    if not left.is_floating_point():
        zero = right == 0
        divide = torch.fmod if a.fmod else torch.remainder
        return torch.where(zero, 0, divide(left, torch.where(zero, 1, right)))
    # zeros have the sign of the divisor, too; in torch they have that of the dividend
    return torch.fmod(left, right) if a.fmod else torch.copysign(torch.remainder(left, right), right)


_FLOATS = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e5m2fnuz": torch.float8_e5m2fnuz,
}
"""8-bit floating types by name."""

_ROUNDED_TO = ("integer", *_FLOATS, "float4_e2m1")


@op(
    "_onnx_round",
    [arg("data", ROWS)],
    {
        "to": Attr(
            choice(*_ROUNDED_TO), "set of values to round to: integers, or those of a type", "integer"
        ),
        "saturate": Attr(boolean, "clip too large numbers to the maximum instead of infinity or NaN", True),
    },
    infer=same,
    onnx=Onnx("Round", builder="onnx_round"),
)
def onnx_round(a: Any, env: Any, data: torch.Tensor) -> torch.Tensor:
    """Round floats to integers, or to the values of an 8-bit or 4-bit type; halves go to even.

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
    rounded = (data.clamp(-limit, limit) if a.saturate else data).to(dtype).to(data.dtype)
    if a.saturate or dtype is not torch.float8_e4m3fn:
        return rounded
    # newer versions of torch saturate; 464 is half way to the next value, which the type does not have
    return torch.where(data.abs() > 464, torch.nan, rounded)
