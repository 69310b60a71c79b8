"""Grid generation, bilinear sampling, spatial transformers, upsampling and cropping."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, integer, optional, shape
from ..dtypes import HALF
from ..registry import bound, op
from ..shapes import unify
from ..spec import ROWS, Attr, Env, Onnx, Shapes, Variadic, arg, param
from .layer_shapes import unify_input

_CUDNN_OFF = Attr(optional(boolean), "accepted and ignored", None)


def _target_size(a: Any) -> tuple[int, int]:
    """Return the grid's height and width."""
    if len(a.target_shape) != 2 or min(a.target_shape) < 1:
        raise OpError(f"target_shape is {a.target_shape}, expected a positive height and width")
    return a.target_shape[0], a.target_shape[1]


def _axes(height: int, width: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x of the columns, (1, W), and y of the rows, (H, 1), from -1 to 1."""
    x, y = (torch.linspace(-1, 1, n, dtype=like.dtype, device=like.device) for n in (width, height))
    return x[None, :], y[:, None]


def _affine(target: tuple[int, int], theta: torch.Tensor) -> torch.Tensor:
    """Return the grid (N, 2, H, W) transformed by affine maps (N, 6)."""
    x, y = _axes(*target, theta)
    t = theta.reshape(-1, 2, 3, 1, 1)
    return t[:, :, 0] * x + t[:, :, 1] * y + t[:, :, 2]


def _warp(flow: torch.Tensor) -> torch.Tensor:
    """Return the coordinates (N, 2, H, W) of pixels moved by a flow in pixels."""
    if flow.dim() != 4 or flow.shape[1] != 2:
        raise ShapeError(f"data has shape {tuple(flow.shape)}, expected (N, 2, H, W)")
    height, width = flow.shape[2:]
    x, y = (torch.arange(n, dtype=flow.dtype, device=flow.device) for n in (width, height))
    moved = flow[:, 0] + x, flow[:, 1] + y[:, None]
    halves = (((n - 1) / 2) or torch.inf for n in (width, height))  # a single pixel is at -1
    return torch.stack([coordinates / half for coordinates, half in zip(moved, halves, strict=True)], 1) - 1


def _sample(data: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Interpolate images at coordinates (N, 2, H, W), with zeros outside of the image."""
    return _sample_at("bilinear", "zeros", True, data, grid.movedim(1, -1))


def _sample_at(
    mode: str, padding: str, align_corners: bool, data: torch.Tensor, coordinates: torch.Tensor
) -> torch.Tensor:
    """Interpolate images at coordinates (N, H, W, 2)."""
    if data.dtype in HALF and data.device.type == "cpu":
        # torch has no half-precision kernel on the CPU
        return F.grid_sample(data.float(), coordinates.float(), mode, padding, align_corners).to(data.dtype)
    return F.grid_sample(data, coordinates, mode, padding, align_corners)


def _grid_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if a.transform_type == "warp":
        data = unify_input("data", data if data is not None else out, (0, 2, 0, 0), data)
        data = unify_input("output", out, data, data)
        return [data], [data]
    rows = (data or out or (0,))[0] or (out[0] if out else 0)
    data = unify_input("data", data, (rows, 6), data)
    return [data], [unify_input("output", out, (rows, 2, *_target_size(a)), data)]


@bound(
    "GridGenerator",
    [arg("data", ROWS)],
    {
        "transform_type": Attr(choice("affine", "warp"), "kind of data: affine maps, or a flow in pixels"),
        "target_shape": Attr(shape, "affine: the grid's (height, width)", (0, 0)),
    },
    hidden=1,
    infer=_grid_infer,
    onnx=Onnx(builder="grid_generator"),
)
def grid_generator(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the sampling grid of `BilinearSampler`, in coordinates from -1 to 1 over the image.

    Shape:
        data: affine: (N, 6), the rows of a 2 x 3 matrix that maps (x, y, 1); warp: (N, 2, H, W), offsets of x
            and y of every pixel.
        output: (N, 2, H, W), x then y; H and W are target_shape, or those of the flow.

    Raises:
        OpError: affine without a target shape.
        ShapeError: data is not (N, 6), or for warp not (N, 2, H, W).

    Source: Jaderberg et al., "Spatial transformer networks", 2015; MXNet 1.9.1 `GridGenerator`. A grid one pixel
    wide or high is at -1, where MXNet gives NaN.
    """
    return _warp if a.transform_type == "warp" else partial(_affine, _target_size(a))


def _sampler_infer(is_last: bool, a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer shapes of images, grid and result; `is_last` if x and y are the last axis of the grid."""
    data, grid, out = ins[0], ins[1], outs[0]
    if data is None and grid is None:
        return ins, outs
    rows = next((s[0] for s in (data, grid, out) if s and s[0]), 0)
    sizes = out[2:] if out else (0, 0)
    grid = unify_input("grid", grid, (rows, *sizes, 2) if is_last else (rows, 2, *sizes), data)
    if data is None or grid is None:
        return [data, grid], outs
    data = unify_input("data", data, (rows, 0, 0, 0), data)
    sizes = grid[1:3] if is_last else grid[2:]
    return [data, grid], [unify_input("output", out, (rows, (data or (0, 0))[1], *sizes), data)]


@bound(
    "BilinearSampler",
    [arg("data", ROWS), arg("grid", ROWS)],
    {"cudnn_off": _CUDNN_OFF},
    hidden=1,
    infer=partial(_sampler_infer, False),
    onnx=Onnx("GridSample", builder="bilinear_sampler"),
)
def bilinear_sampler(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Sample images at the points of a grid, with bilinear interpolation and zeros outside of the image.

    Shape:
        data: (N, C, H, W).
        grid: (N, 2, h, w), x then y; the centers of the corner pixels are at -1 and 1.
        output: (N, C, h, w).

    Source: Jaderberg et al., "Spatial transformer networks", 2015; MXNet 1.9.1 `BilinearSampler`.
    """
    return _sample


@bound(
    "_grid_sample",
    [arg("data", ROWS), arg("grid", ROWS)],
    {
        "mode": Attr(choice("bilinear", "nearest", "bicubic"), "kind of interpolation", "bilinear"),
        "padding_mode": Attr(choice("zeros", "border", "reflection"), "values outside of the image", "zeros"),
        "align_corners": Attr(
            boolean, "let -1 and 1 be the centers of the corner pixels instead of their edges", False
        ),
    },
    infer=partial(_sampler_infer, True),
    onnx=Onnx("GridSample", builder="grid_sample"),
)
def grid_sample(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Sample images at the points of a grid.

    Shape:
        data: (N, C, H, W).
        grid: (N, h, w, 2), x then y.
        output: (N, C, h, w).

    Source: `torch.nn.functional.grid_sample`.
    """
    return partial(_sample_at, a.mode, a.padding_mode, a.align_corners)


def _transformer_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, loc, out = ins[0], ins[1], outs[0]
    target = _target_size(a)
    rows = next((s[0] for s in (data, loc, out) if s and s[0]), 0)
    loc = unify_input("loc", loc, (rows, 6), data)
    if data is None:
        return [data, loc], outs
    data = unify_input("data", data, (rows, 0, 0, 0), data)
    return [data, loc], [unify_input("output", out, (rows, (data or (0, 0))[1], *target), data)]


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
    """Transform each image by an affine map, with zeros outside of the image.

    Shape:
        data: (N, C, H, W).
        loc: (N, 6), the rows of a 2 x 3 matrix that maps output coordinates (x, y, 1) to data coordinates.
        output: (N, C, *target_shape).

    Raises:
        OpError: there is no target shape.

    Source: Jaderberg et al., "Spatial transformer networks", 2015; MXNet 1.9.1 `SpatialTransformer`.
    """
    target = _target_size(a)
    return lambda data, loc: _sample(data, _affine(target, loc))


def _channels(a: Any, ins: list[Shape]) -> int:
    """Return the output's number of channels; 0 if an input's is unknown."""
    if a.sample_type == "bilinear" or a.multi_input_mode == "sum":
        return next((s[1] for s in ins[:1] if s), 0)
    counts = [s[1] if s else 0 for s in ins]
    return sum(counts) if all(counts) else 0


def _infer_upsampling(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    first = ins[0]
    if first is None:
        return ins, outs
    if len(first) != 4:
        raise ShapeError(f"the first input has shape {first}, expected 4 axes: (N, C, H, W)")
    if outs[0] and not first[0]:
        first = (outs[0][0], *first[1:])
    ins = [first, *ins[1:]]
    if a.sample_type == "bilinear":
        side = 2 * a.scale - a.scale % 2
        ins = [first, unify(ins[1], (first[1], 1, side, side), "weight")]
    size = (first[0], _channels(a, ins), first[2] * a.scale, first[3] * a.scale)
    return ins, [unify(outs[0], size, "output")]


def _repeat_pixels(data: torch.Tensor, factor: int) -> torch.Tensor:
    if factor == 1:
        return data
    if data.is_floating_point() and data.numel():  # keeps channels_last
        return F.interpolate(data, (data.shape[2] * factor, data.shape[3] * factor), mode="nearest")
    return data.repeat_interleave(factor, 2).repeat_interleave(factor, 3)


def _bilinear(scale: int, data: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    pad = scale // 2
    return F.conv_transpose2d(data, weight, stride=scale, padding=pad, groups=data.shape[1])


@op(
    "UpSampling",
    attrs={
        "scale": Attr(integer(low=1), "scale of the first input"),
        "num_filter": Attr(integer(low=0), "number of channels, for bilinear", 0),
        "sample_type": Attr(choice("bilinear", "nearest"), "interpolation"),
        "multi_input_mode": Attr(
            choice("concat", "sum"), "nearest: how several inputs are combined", "concat"
        ),
        "num_args": Attr(integer(low=1), "number of inputs; set by the call", 1),
        "workspace": Attr(integer(low=0), "accepted and ignored", 512),
    },
    variadic=Variadic(
        "arg",
        "num_args",
        ROWS,
        instead=(arg("data", ROWS), param("weight")),
        fixed=lambda a: a.sample_type == "bilinear",
    ),
    infer=_infer_upsampling,
    view=True,
    onnx=Onnx(builder="upsampling"),
)
def upsampling(a: Any, env: Env, *inputs: torch.Tensor) -> torch.Tensor:
    """Enlarge images by repeating pixels, or by a transposed convolution with a bilinear weight.

    Shape:
        inputs: nearest: (N, C, H, W), scaled to one size by integer factors, then concatenated along channels or
            summed. bilinear: data (N, C, H, W) and weight (C, 1, K, K) with ``K = 2 * scale - scale % 2``.
        output: (N, C, scale * H, scale * W); C is the sum of all channels for "concat".

    Source: MXNet 1.9.1 `UpSampling`.
    """
    if a.sample_type == "bilinear":
        return _bilinear(a.scale, *inputs)
    height = inputs[0].shape[2] * a.scale
    images = [_repeat_pixels(x, height // x.shape[2] if x.shape[2] else a.scale) for x in inputs]
    if len(images) == 1:
        return images[0]
    return (
        torch.cat(images, 1)
        if a.multi_input_mode == "concat"
        else torch.stack(images).sum(0, dtype=images[0].dtype)
    )


def _crop_size(a: Any, like: Shape) -> tuple[int, int]:
    """Return height and width of the crop; 0 if unknown."""
    if a.num_args == 1:
        if len(a.h_w) != 2 or min(a.h_w) < 1:
            raise OpError(f"h_w is {a.h_w}, expected a positive height and width for one input")
        return a.h_w[0], a.h_w[1]
    if like is None:
        return 0, 0
    if len(like) != 4:
        raise ShapeError(f"the second input has shape {like}, expected 4 axes: (N, C, H, W)")
    return like[2], like[3]


def _corner(a: Any, spatial: tuple[int, ...], size: tuple[int, int]) -> tuple[int, int]:
    """Return the first row and column of the crop."""
    room = [0 if not x or not n else x - n for x, n in zip(spatial, size, strict=True)]
    offset = (room[0] // 2, room[1] // 2) if a.center_crop else a.offset
    if len(offset) != 2 or min(room) < 0:
        raise ShapeError(f"offset {offset} and size {size}, expected two numbers each, within {spatial}")
    if any(not 0 <= o <= r for o, r, x in zip(offset, room, spatial, strict=True) if x):
        raise ShapeError(
            f"offset is {offset}, expected from (0, 0) to {tuple(room)} to crop {size} from {spatial}"
        )
    return offset[0], offset[1]


def _infer_crop(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if len(ins) > 2:
        raise OpError(
            f"num_args is {len(ins)}, expected 1 (data) or 2 (data and an array of the target size)"
        )
    if data is None:
        return ins, outs
    if len(data) != 4:
        raise ShapeError(f"data has shape {data}, expected 4 axes: (N, C, H, W)")
    size = _crop_size(a, ins[-1])
    if all(size):
        _corner(a, data[2:], size)
    if out and not data[0]:
        data = (out[0], *data[1:])
    return [data, *ins[1:]], [unify_input("output", out, (*data[:2], *size), data)]


@op(
    "Crop",
    attrs={
        "num_args": Attr(integer(1, 2), "number of inputs; set by the call"),
        "offset": Attr(shape, "first row and column: (y, x)", (0, 0)),
        "h_w": Attr(shape, "height and width, for one input", (0, 0)),
        "center_crop": Attr(boolean, "crop the center; offset is ignored", False),
    },
    variadic=Variadic("arg", "num_args", ROWS),
    infer=_infer_crop,
    view=True,
    onnx=Onnx("Slice", builder="crop"),
)
def crop(a: Any, env: Env, *inputs: torch.Tensor) -> torch.Tensor:
    """Crop a rectangle from images, with the size of a second input, or `h_w`.

    Shape:
        arg0: (N, C, H, W).
        arg1: (any, any, h, w), optional; only its size is used, its gradient is zero.
        output: (N, C, h, w).

    Raises:
        ShapeError: the rectangle is not inside the image.

    Source: Long et al., "Fully convolutional networks for semantic segmentation", 2015; MXNet 1.9.1 `Crop`.
    """
    data = inputs[0]
    height, width = _crop_size(a, tuple(inputs[-1].shape))
    top, left = _corner(a, tuple(data.shape[2:]), (height, width))
    return data[:, :, top : top + height, left : left + width]
