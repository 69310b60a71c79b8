"""Correlation of two feature maps, as optical flow networks use it."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer
from ..registry import bound
from ..shapes import unify
from ..spec import ROWS, Attr, Onnx, Shapes, arg
from .rules import agree


def _sizes(a: Any, spatial: tuple[int, ...]) -> list[int]:
    """Return the output's height and width; unknown ones (0) stay unknown."""
    border = a.max_displacement + a.kernel_size // 2
    rooms = [x and x + 2 * (a.pad_size - border) for x in spatial]
    if any(x and room < 1 for x, room in zip(spatial, rooms, strict=True)):
        raise ShapeError(
            f"data of {spatial} padded by {a.pad_size} leave no room for max_displacement {a.max_displacement}"
            f" and kernel_size {a.kernel_size}; raise pad_size"
        )
    return [-(-room // a.stride1) for room in rooms]


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Both inputs have one shape, which gives the output's."""
    if a.kernel_size % 2 == 0:
        raise OpError(f"kernel_size is {a.kernel_size}, expected an odd number")
    data, out = unify(ins[0], ins[1], "data1 and data2"), outs[0]
    if data is None:
        return ins, outs
    if len(data) != 4:
        raise ShapeError(f"data1 has shape {data}, expected 4 axes: (N, C, H, W)")
    if out and not data[0]:
        data = (out[0], *data[1:])
    reach = 2 * (a.max_displacement // a.stride2) + 1
    found = (data[0], reach * reach, *_sizes(a, data[2:]))
    return [data, data], [agree("output", out, found, data)]


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the sum over channels of absolute differences; the slope at a tie is 1, where torch's is 0."""
    difference = one - other
    return torch.where(difference >= 0, difference, -difference).sum(1)


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one * other).sum(1)


@bound(
    "Correlation",
    [arg("data1", ROWS), arg("data2", ROWS)],
    {
        "kernel_size": Attr(integer(low=1), "side of the patches compared, odd", 1),
        "max_displacement": Attr(integer(low=0), "furthest displacement, in pixels", 1),
        "stride1": Attr(integer(low=1), "step between the patches of data1", 1),
        "stride2": Attr(integer(low=1), "step between displacements", 1),
        "pad_size": Attr(integer(low=0), "zeros added around both inputs", 0),
        "is_multiply": Attr(boolean, "multiply the patches; else take absolute differences", True),
    },
    hidden=2,
    infer=_infer,
    onnx=Onnx(missing="compares patches of two images over all displacements"),
)
def correlation(a: Any) -> Any:
    """Compare each patch of one feature map with the patches around the same place in another.

    Shape:
        data1, data2: (N, C, H, W).
        output: (N, D * D, h, w), ``D = 2 * (max_displacement // stride2) + 1`` displacements along each axis,
            ``h = ceil((H + 2 * pad_size - 2 * (max_displacement + kernel_size // 2)) / stride1)``. Each value is
            the mean over patch and channels.

    Raises:
        ShapeError: inputs too small for the displacements.

    Source: Dosovitskiy et al., "FlowNet: learning optical flow with convolutional networks", 2015; MXNet 1.9.1
    `Correlation`.
    """
    reach, step, pad = a.max_displacement, a.stride2, a.pad_size
    # the outermost displacement is the greatest multiple of the step
    first = reach - reach // step * step
    shifts = range(first, 2 * reach + 1, step)
    compare = _product if a.is_multiply else _distance

    def correlation(data1: torch.Tensor, data2: torch.Tensor) -> torch.Tensor:
        _sizes(a, tuple(data1.shape[2:]))
        height, width = (n + 2 * (pad - reach) for n in data1.shape[2:])
        # an unpadded rim of data1 is never compared
        one = F.pad(data1, [pad - reach] * 4)
        other = F.pad(data2, [pad] * 4)
        maps = [
            compare(one, other[:, :, dy : dy + height, dx : dx + width]) for dy in shifts for dx in shifts
        ]
        elements = data1.shape[1] * a.kernel_size**2
        return F.avg_pool2d(torch.stack(maps, 1), a.kernel_size, a.stride1, divisor_override=elements)

    return correlation
