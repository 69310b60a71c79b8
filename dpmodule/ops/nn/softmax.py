"""Softmax and its relatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ...base import OpError, Shape
from ...compat import torch_private
from ..attrs import boolean, choice, dtype, integer, optional, real
from ..dtypes import torch_dtype
from ..recording import is_recorded
from ..registry import bound, op
from ..shapes import same, typed, unify
from ..spec import ROWS, Attr, Env, Input, Onnx, Shapes, Types, arg
from .small_matmul import is_plain, kernels

_ATTRS: Mapping[str, Attr] = {
    "axis": Attr(integer(), "axis along which the values sum to one", -1),
    "temperature": Attr(optional(real), "divisor of the data; None for 1", None),
    "dtype": Attr(optional(dtype), "type of the output; None for the data's", None),
    "use_length": Attr(optional(boolean), "mask positions from `length` on", False),
}


def _normalize(a: Any, function: Callable[..., torch.Tensor], data: torch.Tensor) -> torch.Tensor:
    """Apply softmax or log-softmax under temperature and output type."""
    if a.temperature is not None:
        data = data / a.temperature
    if a.dtype is None:
        return function(data, a.axis)
    target = torch_dtype(a.dtype)
    return function(data, a.axis, dtype=torch.promote_types(data.dtype, target)).to(target)


def _plain(function: Callable[..., torch.Tensor]) -> Callable[[Any], Callable[..., torch.Tensor] | None]:
    """Make the bind of an operator that is one torch call unless an attribute asks for more."""

    def bind(a: Any) -> Callable[..., torch.Tensor] | None:
        if a.use_length or a.temperature is not None or a.dtype is not None:
            return None
        return partial(function, dim=a.axis)

    return bind


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Give data and output one shape; `length` lacks the axis."""
    shape = unify(ins[0], outs[0], "data and output")
    rest = ins[1:]
    if rest and shape is not None:
        axis = a.axis % len(shape)
        rest = [unify(rest[0], shape[:axis] + shape[axis + 1 :], "length and data without the axis")]
    return [shape, *rest], [shape]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """The output has the data's type or the attribute's; `length` has its own."""
    data = ins[0] or (outs[0] if a.dtype is None else None)
    return [data, *ins[1:]], [outs[0] or a.dtype or data]


def _beyond(data: torch.Tensor, length: torch.Tensor, axis: int) -> torch.Tensor:
    """Return where an element's position on the axis is not below its length."""
    dims = [1] * data.dim()
    dims[axis] = data.shape[axis]
    return torch.arange(dims[axis], device=data.device).view(dims) >= length.unsqueeze(axis)


@op(
    "softmax",
    [arg("data", ROWS), Input("length", batch=ROWS, when=lambda a: bool(a.use_length))],
    _ATTRS,
    bind=_plain(torch.softmax),
    infer=_infer,
    infer_type=_infer_type,
    onnx=Onnx("Softmax", builder="softmax"),
)
def softmax(a: Any, env: Env, data: torch.Tensor, length: torch.Tensor | None = None) -> torch.Tensor:
    """Turn values along an axis into shares of one: ``exp(x) / sum(exp(x))``.

    Shape:
        data, output: any.
        length: data without `axis`, integers, only with use_length: output from there on is zero.

    Source: MXNet 1.9.1 `softmax`.
    """
    if length is None:
        return _normalize(a, torch.softmax, data)
    beyond = _beyond(data, length, a.axis)
    return _normalize(a, torch.softmax, data.masked_fill(beyond, float("-inf"))).masked_fill(beyond, 0.0)


def _refuse_length(a: Any, name: str) -> None:
    if a.use_length:
        raise OpError(f"{name} takes no length; set use_length=False, or use softmax, which has it")


@op(
    "log_softmax",
    [arg("data", ROWS)],
    _ATTRS,
    bind=_plain(torch.log_softmax),
    infer=_infer,
    infer_type=_infer_type,
    onnx=Onnx("LogSoftmax", builder="softmax"),
)
def log_softmax(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of softmax, computed without loss of precision.

    Shape:
        data, output: any.

    Source: MXNet 1.9.1 `log_softmax`, which lists use_length but takes no length; here that is an error.
    """
    _refuse_length(a, "log_softmax")
    return _normalize(a, torch.log_softmax, data)


@op(
    "softmin",
    [arg("data", ROWS)],
    _ATTRS,
    infer=_infer,
    infer_type=_infer_type,
    onnx=Onnx(builder="softmin"),
)
def softmin(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Return the softmax of the negated data.

    Shape:
        data, output: any.

    Source: MXNet 1.9.1 `softmin`, which lists use_length but takes no length; here that is an error.
    """
    _refuse_length(a, "softmin")
    return _normalize(a, torch.softmax, -data)


@bound(
    "SoftmaxActivation",
    [arg("data", ROWS)],
    {
        "mode": Attr(
            choice("channel", "instance"),
            "over axis 1 (channel) or over the last axis (instance)",
            "instance",
        )
    },
    infer=same,
    infer_type=typed(lambda a: None),
    onnx=Onnx("Softmax", builder="softmax_activation"),
)
def softmax_activation(a: Any) -> Callable[..., torch.Tensor]:
    """Apply softmax over the last axis, or over the channels of each position.

    Shape:
        data, output: (N, C, ...).

    Source: MXNet 1.9.1 `SoftmaxActivation`.
    """
    return partial(torch.softmax, dim=1 if a.mode == "channel" else -1)


_LEAST_ROWS = 4
"""Rows below which torch is as fast."""


def _is_small(data: torch.Tensor) -> bool:
    """Say whether rows are short enough for the kernel, and of nothing that is learned."""
    if is_recorded():  # looked at first, since the sizes may be unknown then
        return False
    return (
        data.dim() == 2
        and data.size(0) >= _LEAST_ROWS
        and 0 < data.size(1) < getattr(kernels(), "vector_width", 0)
        and is_plain(data)
        and data.is_contiguous()
        and not data.requires_grad
        and not torch_private.is_batched(data)
    )


def row_softmax(data: torch.Tensor) -> torch.Tensor:
    """Return ``torch.softmax(data, -1)``.

    Shape:
        data, returns: (..., classes).
    """
    if not _is_small(data):
        return torch.softmax(data, -1)
    result = torch.empty_like(data)
    kernels().softmax(*data.shape, data.data_ptr(), result.data_ptr())
    return result
