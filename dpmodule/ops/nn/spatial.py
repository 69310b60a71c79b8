"""Sampling of images at moved places: grids, the bilinear sampler, the spatial transformer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, optional, shape
from ..bound import bound
from ..dtypes import HALF
from ..spec import ROWS, Attr, Onnx, Shapes, arg
from .rules import agree

_CUDNN_OFF = Attr(optional(boolean), "accepted and ignored", None)


def _target(a: Any) -> tuple[int, int]:
    """Return the grid's height and width."""
    if len(a.target_shape) != 2 or min(a.target_shape) < 1:
        raise OpError(f"target_shape is {a.target_shape}, expected a height and a width from 1")
    return a.target_shape[0], a.target_shape[1]


def _axes(height: int, width: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x of every column, (1, W), and y of every row, (H, 1), from -1 to 1."""
    x, y = (torch.linspace(-1, 1, n, dtype=like.dtype, device=like.device) for n in (width, height))
    return x[None, :], y[:, None]


def _affine(target: tuple[int, int], theta: torch.Tensor) -> torch.Tensor:
    """Return the places (N, 2, H, W) that affine maps (N, 6) give to the points of a grid."""
    x, y = _axes(*target, theta)
    t = theta.reshape(-1, 2, 3, 1, 1)
    return t[:, :, 0] * x + t[:, :, 1] * y + t[:, :, 2]


def _warp(flow: torch.Tensor) -> torch.Tensor:
    """Return the places (N, 2, H, W) of pixels moved by a flow in pixels."""
    height, width = flow.shape[2:]
    x, y = (torch.arange(n, dtype=flow.dtype, device=flow.device) for n in (width, height))
    moved = flow[:, 0] + x, flow[:, 1] + y[:, None]
    halves = (((n - 1) / 2) or torch.inf for n in (width, height))  # a single pixel lies at -1
    return torch.stack([place / half for place, half in zip(moved, halves, strict=True)], 1) - 1


def _sample(data: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Interpolate images at places (N, 2, H, W); beyond the image lie zeros."""
    return _sample_at("bilinear", "zeros", True, data, grid.movedim(1, -1))


def _sample_at(
    mode: str, padding: str, align_corners: bool, data: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Interpolate images at places (N, H, W, 2)."""
    if data.dtype in HALF and data.device.type == "cpu":
        # torch has no half-precision kernel on the CPU
        return F.grid_sample(data.float(), places.float(), mode, padding, align_corners).to(data.dtype)
    return F.grid_sample(data, places, mode, padding, align_corners)


def _grid_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if a.transform_type == "warp":
        data = agree("data", data if data is not None else out, (0, 2, 0, 0), data)
        data = agree("output", out, data, data)
        return [data], [data]
    rows = (data or out or (0,))[0] or (out[0] if out else 0)
    data = agree("data", data, (rows, 6), data)
    return [data], [agree("output", out, (rows, 2, *_target(a)), data)]


@bound(
    "GridGenerator",
    [arg("data", ROWS)],
    {
        "transform_type": Attr(
            choice("affine", "warp"), "what the data are: affine maps, or a flow in pixels"
        ),
        "target_shape": Attr(shape, "affine: the grid's (height, width)", (0, 0)),
    },
    hidden=1,
    infer=_grid_infer,
    onnx=Onnx(builder="grid_generator"),
)
def grid_generator(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Make the places where `BilinearSampler` reads, in units in which the image reaches from -1 to 1.

    Shape:
        data: affine: (N, 6), the rows of a 2 x 3 matrix that maps (x, y, 1); warp: (N, 2, H, W), what is added
            to x and y of every pixel.
        output: (N, 2, H, W), x then y; H and W are target_shape, or those of the flow.

    Raises:
        OpError: affine without a target shape.

    Source: Jaderberg et al., "Spatial transformer networks", 2015; MXNet 1.9.1 `GridGenerator`. A grid one pixel
    wide or high lies at -1, where MXNet gives NaN.
    """
    return _warp if a.transform_type == "warp" else partial(_affine, _target(a))


def _sampler_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, grid, out = ins[0], ins[1], outs[0]
    if data is None and grid is None:
        return ins, outs
    rows = next((s[0] for s in (data, grid, out) if s and s[0]), 0)
    grid = agree("grid", grid, (rows, 2, *(out[2:] if out else (0, 0))), data)
    if data is None or grid is None:
        return [data, grid], outs
    data = agree("data", data, (rows, 0, 0, 0), data)
    return [data, grid], [agree("output", out, (rows, (data or (0, 0))[1], *grid[2:]), data)]


@bound(
    "BilinearSampler",
    [arg("data", ROWS), arg("grid", ROWS)],
    {"cudnn_off": _CUDNN_OFF},
    hidden=1,
    infer=_sampler_infer,
    onnx=Onnx("GridSample", builder="bilinear_sampler"),
)
def bilinear_sampler(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Read images at the places of a grid, with bilinear interpolation; beyond the image lie zeros.

    Shape:
        data: (N, C, H, W).
        grid: (N, 2, h, w), x then y, in units in which the centres of the corner pixels lie at -1 and 1.
        output: (N, C, h, w).

    Source: Jaderberg et al., "Spatial transformer networks", 2015; MXNet 1.9.1 `BilinearSampler`.
    """
    return _sample


def _grid_sample_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, grid, out = ins[0], ins[1], outs[0]
    if data is None or grid is None:
        return ins, outs
    rows = data[0] or grid[0]
    data = agree("data", data, (rows, 0, 0, 0), data)
    grid = agree("grid", grid, (rows, 0, 0, 2), data)
    return [data, grid], [agree("output", out, (rows, (data or (0, 0))[1], *(grid or (0, 0, 0))[1:3]), data)]


@bound(
    "_grid_sample",
    [arg("data", ROWS), arg("grid", ROWS)],
    {
        "mode": Attr(choice("bilinear", "nearest", "bicubic"), "kind of interpolation", "bilinear"),
        "padding_mode": Attr(choice("zeros", "border", "reflection"), "what lies beyond the image", "zeros"),
        "align_corners": Attr(
            boolean, "whether -1 and 1 are the centres of the corner pixels, not their edges", False
        ),
    },
    infer=_grid_sample_infer,
    onnx=Onnx("GridSample", builder="grid_sample"),
)
def grid_sample(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Read images at the places of a grid.

    Shape:
        data: (N, C, H, W).
        grid: (N, h, w, 2), x then y.
        output: (N, C, h, w).

    Source: `torch.nn.functional.grid_sample`.
    """
    return partial(_sample_at, a.mode, a.padding_mode, a.align_corners)


def _transformer_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, loc, out = ins[0], ins[1], outs[0]
    target = _target(a)
    rows = next((s[0] for s in (data, loc, out) if s and s[0]), 0)
    loc = agree("loc", loc, (rows, 6), data)
    if data is None:
        return [data, loc], outs
    data = agree("data", data, (rows, 0, 0, 0), data)
    if data is None:
        raise ShapeError("SpatialTransformer: the data's shape is unknown")
    return [data, loc], [agree("output", out, (*data[:2], *target), data)]


@bound(
    "SpatialTransformer",
    [arg("data", ROWS), arg("loc", ROWS)],
    {
        "target_shape": Attr(shape, "height and width of the output", (0, 0)),
        "transform_type": Attr(choice("affine"), "kind of map"),
        "sampler_type": Attr(choice("bilinear"), "kind of interpolation"),
        "cudnn_off": _CUDNN_OFF,
    },
    hidden=2,
    infer=_transformer_infer,
    onnx=Onnx(builder="spatial_transformer"),
)
def spatial_transformer(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Move, turn and scale each image by an affine map that a network found; beyond the image lie zeros.

    Shape:
        data: (N, C, H, W).
        loc: (N, 6), the rows of a 2 x 3 matrix that maps a place (x, y, 1) of the output to one of the data.
        output: (N, C, *target_shape).

    Raises:
        OpError: no target shape.

    Source: Jaderberg et al., "Spatial transformer networks", 2015; MXNet 1.9.1 `SpatialTransformer`.
    """
    target = _target(a)
    return lambda data, loc: _sample(data, _affine(target, loc))
