"""Shape helpers of layers: inference of parameters, window sizes, and channels-last layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..shapes import unify
from ..spec import Infer, Shapes


def flat_from(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Flatten all axes from `axis` on, as a dense layer does.

    Args:
        x: (d0, ..., d_axis, ...), or (d0, ..., d_(axis - 1)), which gets a last axis of length 1.
        axis: the axis.
    """
    return x.flatten(axis) if x.dim() > axis else x.unsqueeze(axis)


def unify_input(name: str, have: Shape, want: Shape, data: Shape) -> Shape:
    """Merge the known shape of an input with the one required by the data.

    Args:
        have: the known shape, with 0 and None for unknown.
        data: the data's shape.
    """
    try:
        return unify(have, want)
    except ShapeError:
        raise ShapeError(f"{name} has shape {have}, expected {want} from data {data}") from None


def kernel_rank(a: Any, data: tuple[int, ...] | None = None) -> int:
    """Return the number of spatial axes of a layer's kernel, and of its data's shape if given."""
    rank = len(a.kernel)
    if not 1 <= rank <= 3:
        raise ShapeError(f"kernel is {a.kernel}, expected 1, 2 or 3 values")
    if data is not None and len(data) != rank + 2:
        raise ShapeError(f"data has shape {data}, expected {rank + 2} axes for kernel {a.kernel}")
    return rank


def grouped_channels(a: Any, data: tuple[int, ...]) -> int:
    """Return the number of channels of a convolution's data in any layout."""
    kernel_rank(a, data)
    channels = to_first(data, channels_last(a.layout))[1]
    if a.num_filter % a.num_group or channels % a.num_group:
        raise ShapeError(
            f"num_group is {a.num_group}, expected a divisor of num_filter {a.num_filter} and of the"
            f" {channels} channels of data {data}"
        )
    return channels


def layer(
    names: Sequence[str],
    params: Callable[[Any, tuple[int, ...]], Sequence[tuple[int, ...]]],
    output: Callable[[Any, tuple[int, ...]], tuple[int, ...]],
) -> Infer:
    """Return the shape rule of a layer whose data and output share axis 0 and whose data determine all other shapes.

    Unknown dimensions (0) stay unknown: the batch size may become known later, also from the output.

    Args:
        params: ``(a, data) -> shapes`` of these inputs; additional shapes are ignored.
        output: ``(a, data) -> shape``.
    """

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        data, out = ins[0], outs[0]
        if data is None:
            return ins, outs
        if out and data and not data[0]:
            data = (out[0], *data[1:])
        wanted = zip(names, ins[1:], params(a, data), strict=False)
        rest = [unify_input(name, have, want, data) for name, have, want in wanted]
        return [data, *rest], [unify_input("output", out, output(a, data), data), *outs[1:]]

    return infer


def per_axis(values: tuple[int, ...], rank: int, default: int, name: str) -> tuple[int, ...]:
    """Return one value per spatial axis, or the default for all axes if `values` is empty."""
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise ShapeError(f"{name} is {values}, expected {rank} values: one per axis of the kernel")
    if min(values) < default:
        raise ShapeError(f"{name} is {values}, expected at least {default} on every axis")
    return values


def window_size(size: int, kernel: int, stride: int, pad: int, up: bool = False) -> int:
    """Return the number of windows along an axis; 0 (unknown) stays 0.

    Args:
        size: elements on the axis.
        kernel: window length including dilation.
    """
    if not size:
        return 0
    rest = size + 2 * pad - kernel
    if rest < 0:
        raise ShapeError(f"kernel size {kernel} exceeds the input ({size}, padded to {size + 2 * pad})")
    return 1 + (-(-rest // stride) if up else rest // stride)


def channels_last(layout: str | None) -> bool:
    """Return True if a layout such as NHWC has the channels last."""
    return layout is not None and layout.endswith("C")


def to_first(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """Return a shape with the channels moved from the last to the second axis, if `last`."""
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def to_last(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """Return a shape with the channels moved from the second to the last axis, if `last`."""
    return (shape[0], *shape[2:], shape[1]) if last else shape


def through_first(function: Callable[..., torch.Tensor], count: int) -> Callable[..., torch.Tensor]:
    """Wrap a channels-first function for channels-last tensors, without copying the inputs.

    Args:
        function: ``(*tensors) -> tensor``, channels on axis 1.
        count: number of leading tensors with channels on the last axis.
    """

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        moved = [t.movedim(-1, 1) for t in tensors[:count]]
        return function(*moved, *tensors[count:]).movedim(1, -1)

    return call
