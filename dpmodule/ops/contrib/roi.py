"""ROIAlign, its rotated variant, and position-sensitive pooling of regions of interest."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...base import OpError, ShapeError
from ..attrs import boolean, integer, real
from ..dtypes import as_float32
from ..math.pointwise import round_half_away
from ..nn.roi import POOLED_SIZE, divide, image_indices, region_shape_rule
from ..registry import pure
from ..spec import NEVER, Attr, Onnx, arg
from .embedding_bags import equal_bag_starts, linear_corners, pixel_table, rectangle_elements, weighted_bags

_SCALE = Attr(real, "size of the feature map divided by that of the image")
_POOLED = Attr(POOLED_SIZE, "height and width of the output")
_NO_NEGATIVE = -(1 << 30)
"""Minimum image index; regions with a negative index give zeros."""


def bins_of_group(parts: int, groups: int, device: torch.device) -> torch.Tensor:
    """Return the channel group, of `groups`, that each of `parts` bins along an axis reads."""
    return torch.div(torch.arange(parts, device=device) * groups, parts, rounding_mode="floor").int()


def _sample_points(
    start: torch.Tensor, step: torch.Tensor, parts: int, grid: torch.Tensor, ratio: int
) -> torch.Tensor:
    """Return the coordinates of the samples of each bin of each region along one axis.

    Shape:
        start, step: (R,), first edge and bin length.
        grid: (R,), samples per bin.
        returns: (R, parts, max samples); values beyond a region's own number are unused.
    """
    max_samples = ratio if ratio > 0 else int(grid.max()) if grid.numel() else 1
    bin_index = torch.arange(parts, dtype=start.dtype, device=start.device)[:, None]
    sample = torch.arange(max_samples, dtype=start.dtype, device=start.device) + 0.5
    start, step = start[:, None, None], step[:, None, None]
    return start + bin_index * step + sample * step / grid.to(start.dtype)[:, None, None]


def _grid(ratio: int, length: torch.Tensor, parts: int) -> torch.Tensor:
    return torch.full_like(length, ratio) if ratio > 0 else divide(length, parts).ceil()


class _RegionAxis:
    """Pixels and weights that each bin of each region reads along one axis."""

    def __init__(self, points: torch.Tensor, grid: torch.Tensor, size: int) -> None:
        position, weight = linear_corners(points, size)
        self.pixels, self.weight = position.flatten(2), weight.flatten(2)
        self.count = (grid * 2).int()


def _equal_samples(
    base: torch.Tensor, rows: _RegionAxis, columns: _RegionAxis, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return index, weight and bag starts of regions with equal numbers of samples."""
    index = (base + rows.pixels * width)[:, :, None, :, None] + columns.pixels[:, None, :, None, :]
    weight = rows.weight[:, :, None, :, None] * columns.weight[:, None, :, None, :]
    size = rows.pixels.shape[2] * columns.pixels.shape[2]
    bags = index.numel() // max(size, 1)
    return index.flatten(), weight.flatten(), equal_bag_starts(bags, size, index.device)


def _ragged_samples(
    base: torch.Tensor, rows: _RegionAxis, columns: _RegionAxis, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return index, weight and bag starts of regions with different numbers of samples."""
    (count, high, tall), wide, broad = rows.pixels.shape, columns.pixels.shape[1], columns.pixels.shape[2]
    bins = torch.arange(count * high * wide, dtype=torch.int32, device=base.device)
    region = torch.div(bins, high * wide, rounding_mode="floor")
    inner = bins - region * (high * wide)
    bin_row = torch.div(inner, wide, rounding_mode="floor")
    bag, y, x, starts = rectangle_elements(rows.count[region], columns.count[region])
    at_row = ((region * high + bin_row) * tall)[bag] + y
    at_column = ((region * wide + inner - bin_row * wide) * broad)[bag] + x
    index = (base + rows.pixels * width).flatten()[at_row] + columns.pixels.flatten()[at_column]
    return index, rows.weight.flatten()[at_row] * columns.weight.flatten()[at_column], starts


def _region_sides(a: Any, rois: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
    """Return left, top, width and height in pixels of the feature map."""
    left, top, right, bottom = (rois * scale - (0.5 if a.aligned else 0.0)).unbind(1)
    width, height = right - left, bottom - top
    if not a.aligned:
        return left, top, width.clamp(min=1.0), height.clamp(min=1.0)
    if width.numel() and not bool(((width > 0) & (height > 0)).all()):
        raise OpError(
            "_contrib_ROIAlign: a region has no area; aligned=True expects right > left and bottom > top"
        )
    return left, top, width, height


def _align_channels(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    high, wide = a.pooled_size
    if a.position_sensitive and data[1] % (high * wide):
        raise ShapeError(
            f"data has {data[1]} channels, expected a multiple of {high * wide}, the number of bins of pooled_size"
            f" {a.pooled_size}, if position_sensitive"
        )
    return (data[1] // (high * wide) if a.position_sensitive else data[1], high, wide)


@pure(
    "_contrib_ROIAlign",
    [arg("data"), arg("rois")],
    {
        "pooled_size": _POOLED,
        "spatial_scale": _SCALE,
        "sample_ratio": Attr(
            integer(), "samples per bin and axis; below 1 the bin's length in pixels, rounded up", -1
        ),
        "position_sensitive": Attr(boolean, "let each bin read its own channels", False),
        "aligned": Attr(boolean, "shift regions by half a pixel, so that pixels are areas", False),
    },
    infer=region_shape_rule((5,), _align_channels),
    batch=NEVER,
    onnx=Onnx("RoiAlign", builder="roi_align"),
)
def roi_align(a: Any, data: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
    """Divide each region of interest into bins and average interpolated samples of the features over each bin.

    Coordinates are not rounded. Regions with image index -1 give zeros. Regions get no gradient.

    Shape:
        data: (N, C, H, W).
        rois: (R, 5): image index, then left, top, right, bottom in image pixels.
        returns: (R, C, *pooled_size); C / number of bins channels if position_sensitive.

    Raises:
        BoundsError: an image index exceeds the batch.
        OpError: a region has no area and `aligned` is True.

    Source: He et al., "Mask R-CNN", 2017; MXNet 1.9.1 `_contrib_ROIAlign`.
    """
    (high, wide), scale, ratio = a.pooled_size, as_float32(a.spatial_scale), a.sample_ratio
    groups = high * wide if a.position_sensitive else 1
    rois = rois.detach().to(torch.float32 if data.dtype == torch.float16 else data.dtype)
    image = image_indices("_contrib_ROIAlign", rois, data.shape[0], _NO_NEGATIVE)
    left, top, width, height = _region_sides(a, rois[:, 1:], scale)
    grid_y, grid_x = _grid(ratio, height, high), _grid(ratio, width, wide)
    rows = _RegionAxis(_sample_points(top, height / high, high, grid_y, ratio), grid_y, data.shape[2])
    columns = _RegionAxis(_sample_points(left, width / wide, wide, grid_x, ratio), grid_x, data.shape[3])
    rows.weight = rows.weight * ((image >= 0) / (grid_y * grid_x))[:, None, None].to(rows.weight.dtype)
    size = data.shape[2] * data.shape[3]
    base = (image.clamp(min=0) * (groups * size))[:, None, None]
    if groups > 1:
        own = torch.arange(groups, dtype=torch.int32, device=data.device) * size
        index, weight, starts = _ragged_samples(base, rows, columns, data.shape[3])
        bag = torch.repeat_interleave(
            own.repeat(rois.shape[0]),
            torch.diff(starts, append=starts.new_full((1,), index.numel())),
            output_size=index.numel(),
        )
        index = index + bag
    else:
        pairs = _equal_samples if ratio > 0 else _ragged_samples
        index, weight, starts = pairs(base, rows, columns, data.shape[3])
    maps = weighted_bags(pixel_table(data, groups), weight, index, starts, high * wide)
    return maps.view(*maps.shape[:2], high, wide)


@pure(
    "_contrib_RROIAlign",
    [arg("data"), arg("rois")],
    {
        "pooled_size": _POOLED,
        "spatial_scale": _SCALE,
        "sampling_ratio": Attr(
            integer(), "samples per bin and axis; below 1 the bin's length in pixels, rounded up", -1
        ),
    },
    infer=region_shape_rule((6,), lambda a, data: (data[1], *a.pooled_size)),
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no pooling of rotated regions"),
)
def rroi_align(a: Any, data: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
    """Average samples of the features over the bins of rotated regions of interest.

    Shape:
        data: (N, C, H, W).
        rois: (R, 6): image index, center x, y, width, height in image pixels, angle in degrees.
        returns: (R, C, *pooled_size).

    Raises:
        BoundsError: an image index exceeds the batch.

    Source: Ma et al., "Arbitrary-oriented scene text detection via rotation proposals", 2018; MXNet 1.9.1
    `_contrib_RROIAlign`, which has no gradient; here `data` has one.
    """
    (high, wide), scale, ratio = a.pooled_size, as_float32(a.spatial_scale), a.sampling_ratio
    rois = rois.detach().to(torch.float32 if data.dtype == torch.float16 else data.dtype)
    image = image_indices("_contrib_RROIAlign", rois, data.shape[0])
    centre_x, centre_y, width, height = (rois[:, 1:5] * scale).unbind(1)
    width, height = width.clamp(min=1.0), height.clamp(min=1.0)
    grid_y, grid_x = _grid(ratio, height, high), _grid(ratio, width, wide)
    ys = _sample_points(-height / 2.0, height / high, high, grid_y, ratio)[:, :, None, :, None]
    xs = _sample_points(-width / 2.0, width / wide, wide, grid_x, ratio)[:, None, :, None, :]
    angle = (rois[:, 5].double() * math.pi / 180.0).to(rois.dtype)
    cosine, sine, right, down = (
        v[:, None, None, None, None] for v in (angle.cos(), angle.sin(), centre_x, centre_y)
    )
    at_x, weight_x = linear_corners(xs * cosine + ys * sine + right, data.shape[3])
    at_y, weight_y = linear_corners(ys * cosine - xs * sine + down, data.shape[2])
    own = _sample_mask(ys.shape[3], grid_y)[:, :, None] & _sample_mask(xs.shape[4], grid_x)[:, None, :]
    share = own / (grid_y * grid_x)[:, None, None]
    weight = weight_y[..., :, None] * weight_x[..., None, :] * share[:, None, None, :, :, None, None]
    base = (image * (data.shape[2] * data.shape[3])).view(-1, *[1] * 6)
    index = base + at_y[..., :, None] * data.shape[3] + at_x[..., None, :]
    bags = rois.shape[0] * high * wide
    starts = equal_bag_starts(bags, index.numel() // max(bags, 1), index.device)
    maps = weighted_bags(pixel_table(data), weight.flatten(), index.flatten(), starts, high * wide)
    return maps.view(*maps.shape[:2], high, wide)


def _sample_mask(most: int, grid: torch.Tensor) -> torch.Tensor:
    """Return a mask of the samples of each region among `most`."""
    return torch.arange(most, dtype=grid.dtype, device=grid.device) < grid[:, None]


def _psroi_edges(
    low: torch.Tensor, high: torch.Tensor, parts: int, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the range of pixels of each bin of each region, as first and last + 1."""
    step = divide((high - low).clamp(min=0.1), parts)[:, None]
    bin_index = torch.arange(parts, dtype=low.dtype, device=low.device)
    first = (bin_index * step + low[:, None]).floor().clamp(0, size).int()
    last = ((bin_index + 1) * step + low[:, None]).ceil().clamp(0, size).int()
    return first, last


def _psroi_size(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    group = a.group_size or a.pooled_size
    if data[1] and data[1] != a.output_dim * group * group:
        raise ShapeError(
            f"data has {data[1]} channels, expected output_dim * group_size ** 2 = {a.output_dim * group * group}"
        )
    return (a.output_dim, a.pooled_size, a.pooled_size)


@pure(
    "_contrib_PSROIPooling",
    [arg("data"), arg("rois")],
    {
        "spatial_scale": _SCALE,
        "output_dim": Attr(integer(low=1), "number of output channels"),
        "pooled_size": Attr(integer(low=1), "height and width of the output"),
        "group_size": Attr(integer(low=0), "channel groups along each axis; 0 means pooled_size", 0),
    },
    infer=region_shape_rule((5,), _psroi_size),
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no position-sensitive pooling"),
)
def psroi_pooling(a: Any, data: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
    """Divide each region of interest into bins, and average the channels of each bin over it.

    An empty bin is 0. Regions get no gradient.

    Shape:
        data: (N, output_dim * group_size ** 2, H, W).
        rois: (R, 5): image index, then left, top, right, bottom in image pixels.
        returns: (R, output_dim, pooled_size, pooled_size).

    Raises:
        BoundsError: an image index exceeds the batch.

    Source: Dai et al., "R-FCN", 2016; MXNet 1.9.1 `_contrib_PSROIPooling`.
    """
    parts, group, scale = a.pooled_size, a.group_size or a.pooled_size, as_float32(a.spatial_scale)
    rois = rois.detach()
    image = image_indices("_contrib_PSROIPooling", rois, data.shape[0])
    height, width = data.shape[2:]
    whole = round_half_away(rois[:, 1:])
    left, top = (whole[:, :2] * scale).unbind(1)
    right, bottom = ((whole[:, 2:] + 1.0) * scale).unbind(1)
    top, bottom = _psroi_edges(top, bottom, parts, height)
    left, right = _psroi_edges(left, right, parts, width)
    shape = (rois.shape[0], parts, parts)
    tall = (bottom - top).clamp(min=0)[:, :, None].expand(shape).flatten()
    broad = (right - left).clamp(min=0)[:, None, :].expand(shape).flatten()
    bin_group = bins_of_group(parts, group, data.device)
    plane = image[:, None, None] * (group * group) + bin_group[:, None] * group + bin_group
    first = ((plane * height + top[:, :, None]) * width + left[:, None, :]).flatten()
    bag, y, x, starts = rectangle_elements(tall, broad)
    index = first[bag] + y * width + x
    weight = (1.0 / (tall * broad).clamp(min=1))[bag]
    maps = weighted_bags(pixel_table(data, group * group), weight, index, starts, parts * parts)
    return maps.view(*maps.shape[:2], parts, parts)
