"""Cutting a part out of images, as fully convolutional networks do."""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer, shape
from ..registry import op
from ..spec import ROWS, Attr, Env, Onnx, Shapes, Variadic
from .rules import agree


def _wanted(a: Any, like: Shape) -> tuple[int, int]:
    """Return height and width of the part; 0 where they are unknown."""
    if a.num_args == 1:
        if len(a.h_w) != 2 or min(a.h_w) < 1:
            raise OpError(f"h_w is {a.h_w}, expected a height and a width from 1 for one input")
        return a.h_w[0], a.h_w[1]
    if like is None:
        return 0, 0
    if len(like) != 4:
        raise ShapeError(f"the second input has shape {like}, expected 4 axes: (N, C, H, W)")
    return like[2], like[3]


def _corner(a: Any, spatial: tuple[int, ...], part: tuple[int, int]) -> tuple[int, int]:
    """Return the first row and column of the part."""
    room = [0 if not x or not n else x - n for x, n in zip(spatial, part, strict=True)]
    offset = (room[0] // 2, room[1] // 2) if a.center_crop else a.offset
    if len(offset) != 2 or min(room) < 0:
        raise ShapeError(f"offset {offset} and part {part}, expected two numbers each, within {spatial}")
    if any(not 0 <= o <= r for o, r, x in zip(offset, room, spatial, strict=True) if x):
        raise ShapeError(
            f"offset is {offset}, expected from (0, 0) to {tuple(room)} to cut {part} out of {spatial}"
        )
    return offset[0], offset[1]


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if len(ins) > 2:
        raise OpError(
            f"num_args is {len(ins)}, expected 1 (data) or 2 (data and what it becomes as large as)"
        )
    if data is None:
        return ins, outs
    if len(data) != 4:
        raise ShapeError(f"data has shape {data}, expected 4 axes: (N, C, H, W)")
    part = _wanted(a, ins[-1])
    if all(part):
        _corner(a, data[2:], part)
    if out and not data[0]:
        data = (out[0], *data[1:])
    return [data, *ins[1:]], [agree("output", out, (*data[:2], *part), data)]


@op(
    "Crop",
    attrs={
        "num_args": Attr(integer(1, 2), "number of inputs, filled in by the call"),
        "offset": Attr(shape, "first row and column: (y, x)", (0, 0)),
        "h_w": Attr(shape, "height and width, for one input", (0, 0)),
        "center_crop": Attr(boolean, "take the middle; offset is ignored", False),
    },
    variadic=Variadic("arg", "num_args", ROWS),
    infer=_infer,
    view=True,
    onnx=Onnx("Slice", builder="crop"),
)
def crop(a: Any, env: Env, *inputs: torch.Tensor) -> torch.Tensor:
    """Cut a rectangle out of images: as large as a second input, or as `h_w` tells.

    Shape:
        arg0: (N, C, H, W).
        arg1: (any, any, h, w), optional; only its size counts, its gradient is zero.
        output: (N, C, h, w).

    Raises:
        ShapeError: the rectangle does not lie inside.

    Source: Long et al., "Fully convolutional networks for semantic segmentation", 2015; MXNet 1.9.1 `Crop`.
    """
    data = inputs[0]
    height, width = _wanted(a, tuple(inputs[-1].shape))
    top, left = _corner(a, tuple(data.shape[2:]), (height, width))
    return data[:, :, top : top + height, left : left + width]
