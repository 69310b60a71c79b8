"""Where pixels are: images to tensors and their normalization, crop, resize and flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer, ints, reals
from ..registry import op
from ..shapes import forward, typed, unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes, arg
from .resize import resize
from .rules import augment, check_channels, check_rank, straight, uniform

Tensor = torch.Tensor


def _to_tensor_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    check_rank("_image_to_tensor", data)
    return (*data[:-3], data[-1], *data[-3:-1])


@op(
    "_image_to_tensor",
    [arg("data")],
    infer=forward(_to_tensor_shape),
    infer_type=typed(lambda a: "float32"),
    batch=NEVER,
    onnx=Onnx(builder="image_to_tensor"),
)
def to_tensor(a: Any, env: Env, data: Tensor) -> Tensor:
    """Turn an image of 0 to 255 into channels of 0 to 1.

    Shape:
        data: (H, W, C) or (N, H, W, C).
        returns: (C, H, W) or (N, C, H, W), float32.

    Source: MXNet 1.9.1 `_image_to_tensor`, whose gradient is the head gradient as it lies in memory.
    """
    return straight(lambda x: x.movedim(-1, -3).float().div(255.0).contiguous(), data)


def _normalize_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "data and output")
    if shape is not None and len(shape) not in (3, 4):
        raise ShapeError(
            f"_image_normalize: data has shape {shape}, expected (channels, height, width), or a batch"
        )
    if shape is not None:
        check_channels("_image_normalize", shape, shape[-3])
    return [shape], [shape]


def _per_channel(name: str, values: Sequence[float], data: Tensor) -> Tensor:
    """Return one number for each channel, to broadcast over (C, H, W)."""
    channels = data.shape[-3]
    if len(values) not in (1, channels, 4):
        raise OpError(f"_image_normalize: {name} has {len(values)} numbers, expected 1 or {channels}")
    chosen = values if len(values) == 1 else values[:channels]
    return torch.tensor(chosen, dtype=torch.float32, device=data.device).view(-1, 1, 1)


@op(
    "_image_normalize",
    [arg("data")],
    {
        "mean": Attr(reals, "mean of each channel, or one for all", (0.0, 0.0, 0.0, 0.0)),
        "std": Attr(reals, "standard deviation of each channel, or one for all", (1.0, 1.0, 1.0, 1.0)),
    },
    infer=_normalize_shape,
    onnx=Onnx(builder="image_normalize"),
)
def normalize(a: Any, env: Env, data: Tensor) -> Tensor:
    """Subtract a mean from each channel and divide by its standard deviation.

    Shape:
        data: (C, H, W) or (N, C, H, W) with 1 or 3 channels, as `to_tensor` returns it.
        returns: the same shape and type.

    Raises:
        OpError: `mean` or `std` fits not the number of channels.

    Source: MXNet 1.9.1 `_image_normalize`, which refuses its own default of four numbers; here they are 0 and 1.
    """
    _normalize_shape(a, [tuple(data.shape)], [None])
    mean, std = _per_channel("mean", a.mean, data), _per_channel("std", a.std, data)
    return ((data - mean) / std).to(data.dtype)


def _crop_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    check_rank("_image_crop", data)
    check_channels("_image_crop", data, data[-1])
    height, width = data[-3:-1]
    if a.x + a.width > width or a.y + a.height > height:
        raise ShapeError(
            f"_image_crop: {a.width} x {a.height} pixels from ({a.x}, {a.y}) reach beyond "
            f"the {width} x {height} of data"
        )
    return (*data[:-3], a.height, a.width, data[-1])


@op(
    "_image_crop",
    [arg("data")],
    {
        "x": Attr(integer(low=0), "left end"),
        "y": Attr(integer(low=0), "top end"),
        "width": Attr(integer(low=1), "width in pixels"),
        "height": Attr(integer(low=1), "height in pixels"),
    },
    infer=forward(_crop_shape),
    view=True,
    onnx=Onnx(builder="image_crop"),
)
def crop(a: Any, env: Env, data: Tensor) -> Tensor:
    """Cut a rectangle out of images.

    Shape:
        data: (H, W, C) or (N, H, W, C) with 1 or 3 channels.
        returns: (height, width, C) or (N, height, width, C).

    Raises:
        ShapeError: the rectangle reaches beyond the image.

    Source: MXNet 1.9.1 `_image_crop`.
    """
    _crop_shape(a, tuple(data.shape))
    return data.narrow(-3, a.y, a.height).narrow(-2, a.x, a.width)


def new_size(a: Any, height: int, width: int) -> tuple[int, int]:
    """Return (height, width) after resizing."""
    if len(a.size) not in (1, 2) or min(a.size) < 1:
        raise OpError(f"_image_resize: size is {a.size}, expected one number or (width, height), from 1")
    if len(a.size) == 2:
        return a.size[1], a.size[0]
    (side,) = a.size
    if not a.keep_ratio:
        return side, side
    return (height * side // width, side) if height > width else (side, width * side // height)


def _resize_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    check_rank("_image_resize", data)
    return (*data[:-3], *new_size(a, data[-3], data[-2]), data[-1])


@op(
    "_image_resize",
    [arg("data")],
    {
        "size": Attr(ints, "(width, height), or one number for both", ()),
        "keep_ratio": Attr(boolean, "bring the shorter side to the one number of `size`", False),
        "interp": Attr(integer(low=0), "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos", 1),
    },
    infer=forward(_resize_shape),
    batch=NEVER,
    onnx=Onnx(builder="image_resize"),
)
def image_resize(a: Any, env: Env, data: Tensor) -> Tensor:
    """Resize images.

    Shape:
        data: (H, W, C) or (N, H, W, C), uint8 or floating.
        returns: (height, width, C) or (N, height, width, C), of the same type.

    Raises:
        OpError: `size` is neither one number nor two.

    Source: MXNet 1.9.1 `_image_resize` on CPU, which is OpenCV's `resize`.
    """
    height, width = new_size(a, data.shape[-3], data.shape[-2])
    if data.dim() == 3:
        return resize(data, width, height, a.interp)
    return torch.stack([resize(one, width, height, a.interp) for one in data])


@augment("_image_flip_left_right", onnx=Onnx("Slice", builder="image_flip"))
def flip_left_right(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image: its left side becomes its right one.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_flip_left_right`.
    """
    return straight(lambda x: x.flip(1), data)


@augment("_image_flip_top_bottom", onnx=Onnx("Slice", builder="image_flip"))
def flip_top_bottom(a: Any, env: Env, data: Tensor) -> Tensor:
    """Turn an image upside down.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_flip_top_bottom`.
    """
    return straight(lambda x: x.flip(0), data)


def _maybe_flip(env: Env, data: Tensor, axis: int) -> Tensor:
    keeps = uniform(env, 0.0, 1.0) < 0.5
    return straight(lambda x: torch.where(keeps, x, x.flip(axis)), data)


@augment("_image_random_flip_left_right", random=True)
def random_flip_left_right(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mirror an image in every other case, at random.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_flip_left_right`, with random numbers of our own.
    """
    return _maybe_flip(env, data, 1)


@augment("_image_random_flip_top_bottom", random=True)
def random_flip_top_bottom(a: Any, env: Env, data: Tensor) -> Tensor:
    """Turn an image upside down in every other case, at random.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_flip_top_bottom`, with random numbers of our own.
    """
    return _maybe_flip(env, data, 0)
