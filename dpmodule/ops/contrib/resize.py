"""Pooling and interpolation of images to a given size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, integer, ints, optional, real
from ..nn.layer_shapes import layer, unify_input
from ..registry import bound, pure
from ..spec import ROWS, Attr, Onnx, Shapes, arg


def _check_rank(data: tuple[int, ...]) -> None:
    if len(data) != 4:
        raise ShapeError(f"data has shape {data}, expected 4 axes: (N, C, H, W)")


def pooled_size(a: Any) -> tuple[int, int]:
    """Return the output's height and width: one number is used for both, () means 1."""
    size = a.output_size or (1,)
    if len(size) > 2 or min(size) < 1:
        raise OpError(f"output_size is {a.output_size}, expected one or two positive numbers")
    return size[0], size[-1]


def _pooled_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    _check_rank(data)
    return (*data[:2], *pooled_size(a))


@bound(
    "_contrib_AdaptiveAvgPooling2D",
    [arg("data", ROWS)],
    {"output_size": Attr(ints, "height and width of the output, or one number for both; 1 if empty", ())},
    infer=layer((), lambda a, data: [], _pooled_shape),
    onnx=Onnx(builder="adaptive_avg_pooling"),
)
def adaptive_avg_pooling_2d(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Average each image over windows of about equal size, one per output pixel.

    Shape:
        data: (N, C, H, W).
        output: (N, C, h, w); row i averages rows ``i * H // h`` to ``ceil((i + 1) * H / h)`` of the data.

    Source: MXNet 1.9.1 `AdaptiveAvgPooling2D`.
    """
    return partial(F.adaptive_avg_pool2d, output_size=pooled_size(a))


def _scale_size(size: int, scale: float) -> int:
    """Return size times scale in float32, truncated, as in MXNet."""
    return int(np.float32(scale) * np.float32(size))


def _by_scale(a: Any, spatial: tuple[int, int]) -> tuple[int, int]:
    if a.scale_height is None or a.scale_width is None:
        raise OpError(
            f"scale_height is {a.scale_height} and scale_width {a.scale_width}, expected both"
            f" in mode {a.mode}, or neither in mode 'size'"
        )
    odd = [1 if a.mode == "odd_scale" and x % 2 else 0 for x in spatial]
    scales = (a.scale_height, a.scale_width)
    height, width = (_scale_size(x - o, s) + o for x, o, s in zip(spatial, odd, scales, strict=True))
    return height, width


_PARITY: dict[str, Callable[[int], int]] = {
    "to_even_down": lambda x: x - x % 2,
    "to_even_up": lambda x: x + x % 2,
    "to_odd_down": lambda x: x - 1 + x % 2,
    "to_odd_up": lambda x: x + 1 - x % 2,
}


def _output_size(a: Any, spatial: tuple[int, int], like: Shape) -> tuple[int, int]:
    """Return the output's height and width."""
    if a.mode == "like":
        if like is None or len(like) != 4:
            raise ShapeError(f"like has shape {like}, expected 4 axes: (N, C, H, W)")
        return like[2], like[3]
    if a.mode in _PARITY:
        size = _PARITY[a.mode](spatial[0]), _PARITY[a.mode](spatial[1])
    elif a.mode == "odd_scale" or a.scale_height is not None:
        size = _by_scale(a, spatial)
    else:
        size = a.height, a.width
    if min(size) < 1:
        raise ShapeError(f"mode {a.mode} resizes data {spatial} to {size}, expected positive sizes")
    return size


def _resize_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if data is None:
        return ins, outs
    _check_rank(data)
    if out and not data[0]:
        data = (out[0], *data[1:])
    fixed = a.mode == "size" and a.scale_height is None
    if (a.mode == "like" and ins[1] is None) or (0 in data[2:] and not fixed and a.mode != "like"):
        return [data, *ins[1:]], [unify_input("output", out, (*data[:2], 0, 0), data)]
    size = _output_size(a, (data[2], data[3]), ins[-1])
    return [data, *ins[1:]], [unify_input("output", out, (*data[:2], *size), data)]


@pure(
    "_contrib_BilinearResize2D",
    [arg("data", ROWS), arg("like", ROWS, when=lambda a: a.mode == "like")],
    {
        "height": Attr(integer(1, 10000), "output height, in mode 'size' without scales", 1),
        "width": Attr(integer(1, 10000), "output width, in mode 'size' without scales", 1),
        "scale_height": Attr(optional(real), "factor of the height, in modes 'size' and 'odd_scale'", None),
        "scale_width": Attr(optional(real), "factor of the width, in modes 'size' and 'odd_scale'", None),
        "mode": Attr(
            choice("like", "odd_scale", "size", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"),
            "rule for the output's size",
            "size",
        ),
        "align_corners": Attr(boolean, "align the centers of the corner pixels; else the corners", True),
    },
    infer=_resize_infer,
    onnx=Onnx("Resize", builder="bilinear_resize"),
)
def bilinear_resize_2d(a: Any, data: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Resize images by bilinear interpolation.

    The size depends on `mode`: "size": height and width, or the data's times the scales; "odd_scale": an odd size x
    becomes ``(x - 1) * scale + 1``; "like": the size of a second input; "to_even_down", "to_even_up", "to_odd_down",
    "to_odd_up": the next smaller or larger even or odd number.

    Shape:
        data: (N, C, H, W).
        like: (any, any, h, w), in mode "like"; its gradient is zero.
        output: (N, C, h, w).

    Raises:
        OpError: only one of the scales is given.

    Source: MXNet 1.9.1 `BilinearResize2D`.
    """
    corners = a.align_corners
    height, width = data.shape[2:]
    size = _output_size(a, (height, width), None if like is None else tuple(like.shape))
    # an axis of one output pixel gets the first pixel of the data; torch would take the middle
    data = data[:, :, : 1 if size[0] == 1 else height, : 1 if size[1] == 1 else width]
    return F.interpolate(data, size, mode="bilinear", align_corners=corners)
