"""The first pooling operator, kept for old saved graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ...base import ShapeError
from ..attrs import boolean, choice, shape
from ..bound import bound
from ..shapes import prod
from ..spec import ROWS, Attr, Onnx, arg
from .rules import layer, per_axis, window_size


def _windows(a: Any, spatial: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Return (windows, kernel, stride, pad) for each axis; 0 windows where the size is unknown."""
    rank = len(spatial)
    if a.global_pool:
        return [(1, x, 1, 0) for x in spatial]
    if len(a.kernel) != rank:
        raise ShapeError(f"kernel is {a.kernel}, expected {rank} values: one per spatial axis of the data")
    strides, pads = per_axis(a.stride, rank, 1, "stride"), per_axis(a.pad, rank, 0, "pad")
    axes = zip(spatial, a.kernel, strides, pads, strict=True)
    return [(window_size(x, k, s, p, a.pooling_convention == "full"), k, s, p) for x, k, s, p in axes]


def _output(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    if len(data) not in (4, 5):
        raise ShapeError(f"data has shape {data}, expected 4 or 5 axes")
    return (*data[:2], *(windows for windows, *_ in _windows(a, data[2:])))


def _pool(a: Any, data: torch.Tensor) -> torch.Tensor:
    axes = _windows(a, tuple(data.shape[2:]))
    kernel, stride = [k for _, k, _, _ in axes], [s for _, _, s, _ in axes]
    pads, extra = [], []
    for x, (o, k, s, p) in zip(reversed(data.shape[2:]), reversed(axes), strict=True):
        pads += [p, p]
        extra += [0, max((o - 1) * s + k - x - 2 * p, 0)]
    data = F.pad(data, pads)
    if a.pool_type == "max":
        data = F.pad(data, extra, value=-float("inf"))
        return (torch.max_pool2d if len(axes) == 2 else torch.max_pool3d)(data, kernel, stride)
    average = F.avg_pool2d if len(axes) == 2 else F.avg_pool3d
    size = 1 if a.pool_type == "sum" else prod(kernel)
    return average(F.pad(data, extra), kernel, stride, divisor_override=size)


@bound(
    "Pooling_v1",
    [arg("data", ROWS)],
    {
        "kernel": Attr(shape, "window size: (h, w) or (d, h, w); not needed with global_pool", ()),
        "pool_type": Attr(choice("avg", "max", "sum"), "what to take of each window", "max"),
        "global_pool": Attr(boolean, "one window over all; kernel, stride and pad are ignored", False),
        "pooling_convention": Attr(
            choice("full", "valid"), "count windows that fit (valid), or one more that sticks out", "valid"
        ),
        "stride": Attr(shape, "step of the window; 1 on every axis if empty", ()),
        "pad": Attr(shape, "zeros added at both ends of each axis; none if empty", ()),
    },
    infer=layer((), lambda a, data: [], _output),
    onnx=Onnx(builder="pooling_v1"),
)
def pooling_v1(a: Any) -> Callable[..., torch.Tensor]:
    """Take the maximum, average or sum of each window, the padding counting as zeros.

    Unlike `Pooling`, the maximum sees the padding's zeros, and an average always divides by the whole window.

    Shape:
        data: (N, C, H, W) or (N, C, D, H, W).
        output: (N, C, *sizes).

    Source: MXNet 1.9.1 `Pooling_v1`.
    """
    return partial(_pool, a)
