"""Deformable convolution, plain and modulated, and deformable pooling of regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from ...base import Shape, ShapeError
from ..attrs import boolean, choice, integer, optional, real, shape
from ..dtypes import as_float32
from ..math.pointwise import round_half_away
from ..nn.layer_shapes import per_axis, unify_input, window_size
from ..nn.roi import divide, image_indices, region_shape_rule
from ..registry import pure
from ..shapes import known, output_shape
from ..spec import NEVER, ROWS, Attr, Onnx, Shapes, arg, param
from .embedding_bags import equal_bag_starts, pixel_table, weighted_bags
from .roi import bins_of_group

_COLUMNS = 1 << 25
"""Maximum size of the sampled columns of one chunk of the batch."""

Corners = tuple[torch.Tensor, torch.Tensor]


def _conv_shapes(
    a: Any, data: tuple[int, ...], masked: bool
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the shapes of all inputs but the first, and of the output."""
    if len(data) != 4 or len(a.kernel) != 2:
        raise ShapeError(f"data has shape {data} and kernel is {a.kernel}, expected (N, C, H, W) and (h, w)")
    groups = a.num_deformable_group
    if data[1] % a.num_group or a.num_filter % a.num_group or data[1] % groups:
        raise ShapeError(
            f"num_group {a.num_group} must divide the {data[1]} channels of data and num_filter {a.num_filter},"
            f" num_deformable_group {groups} the channels"
        )
    axes = zip(data[2:], a.kernel, *_windows(a), strict=True)
    out_height, out_width = (window_size(x, d * (k - 1) + 1, s, p) for x, k, s, d, p in axes)
    taps = a.kernel[0] * a.kernel[1]
    masks = [(data[0], groups * taps, out_height, out_width)] if masked else []
    weight = (a.num_filter, data[1] // a.num_group, *a.kernel)
    offset = (data[0], 2 * groups * taps, out_height, out_width)
    return [offset, *masks, weight, (a.num_filter,)], (data[0], a.num_filter, out_height, out_width)


def _windows(a: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return stride, dilate and pad per axis."""
    return (
        tuple(per_axis(a.stride, 2, 1, "stride")),
        tuple(per_axis(a.dilate, 2, 1, "dilate")),
        tuple(per_axis(a.pad, 2, 0, "pad")),
    )


def _conv_rule(masked: bool) -> Callable[..., Shapes]:
    names = ["offset", *(["mask"] if masked else []), "weight", "bias"]

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        data = ins[0]
        if data is None or not known(data):
            return ins, outs
        wanted, out = _conv_shapes(a, data, masked)
        rest = [unify_input(name, have, want, data) for name, have, want in zip(names, ins[1:], wanted)]
        return [data, *rest], [output_shape(outs[0], out)]

    return infer


def _inner_corners(position: torch.Tensor, size: int) -> tuple[Corners, torch.Tensor]:
    """Return pixels and weights of points in [0, size); beyond the last pixel, its value is used.

    Shape:
        position: any.
        returns: two of (..., 2), and a mask of the shape of `position`.
    """
    inside = (position >= 0) & (position < size)
    low = position.floor().clamp(0, size - 1)
    edge = low >= size - 1
    fraction = torch.where(edge | ~inside, torch.zeros_like(position), position - low)
    high = torch.where(edge, low, low + 1)
    return (torch.stack([low, high], -1).int(), torch.stack([1 - fraction, fraction], -1)), inside


def _outer_corners(position: torch.Tensor, size: int) -> tuple[Corners, torch.Tensor]:
    """Return pixels and weights of points in (-1, size), for an image surrounded by zeros."""
    inside = (position > -1) & (position < size)
    low = position.floor()
    fraction = position - low
    weight = torch.stack([(1 - fraction) * (low >= 0), fraction * (low + 1 <= size - 1)], -1)
    return (torch.stack([low, low + 1], -1).clamp(0, size - 1).int(), weight), inside


def _taps(count: int, start: int, step: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(count, dtype=like.dtype, device=like.device) * step + start


def _sample_columns(
    a: Any, border: Callable[..., Any], data: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """Return the sampled values (N, positions, groups, taps, C / groups)."""
    count, channels, height, width = data.shape
    high, wide = offset.shape[2:]
    groups, (rows, columns) = a.num_deformable_group, a.kernel
    strides, dilates, pads = _windows(a)
    # (N, groups, rows, columns, 2, high, wide) -> (N, high, wide, groups, rows, columns) each
    moves = offset.reshape(count, groups, rows, columns, 2, high, wide).permute(4, 0, 5, 6, 1, 2, 3)
    down = _taps(high, -pads[0], strides[0], offset).view(-1, 1, 1, 1, 1)
    right = _taps(wide, -pads[1], strides[1], offset).view(-1, 1, 1, 1)
    row, column = _taps(rows, 0, dilates[0], offset).view(-1, 1), _taps(columns, 0, dilates[1], offset)
    (at_y, weight_y), inside_y = border(moves[0] + (down + row), height)
    (at_x, weight_x), inside_x = border(moves[1] + (right + column), width)
    share = (inside_y & inside_x).to(data.dtype)
    if mask is not None:
        share = share * mask.reshape(count, groups, rows, columns, high, wide).permute(0, 4, 5, 1, 2, 3)
    weight = weight_y[..., :, None] * (weight_x * share[..., None])[..., None, :]
    plane = torch.arange(count * groups, dtype=torch.int32, device=data.device) * (height * width)
    base = plane.view(count, 1, 1, groups, 1, 1, 1, 1)
    index = base + (at_y * width)[..., :, None] + at_x[..., None, :]
    table = pixel_table(data.reshape(count * groups, channels // groups, height, width))
    starts = equal_bag_starts(index.numel() // 4, 4, index.device)
    sums = weighted_bags(table, weight.flatten(), index.flatten(), starts)
    return sums.view(count, high * wide, groups, rows * columns, channels // groups)


def _product(a: Any, columns: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the product of weight and columns, (N, filters, positions)."""
    count, positions, groups, taps, depth = columns.shape
    filters = weight.shape[0]
    if a.num_group == 1:
        flat = weight.reshape(filters, groups, depth, taps).transpose(2, 3).reshape(filters, -1)
        return torch.matmul(flat, columns.reshape(count, positions, -1).transpose(1, 2))
    by_channel = columns.transpose(3, 4).reshape(count, positions, a.num_group, -1).permute(0, 2, 3, 1)
    parts = weight.reshape(1, a.num_group, filters // a.num_group, -1)
    return torch.matmul(parts, by_channel).reshape(count, filters, positions)


def _bind_convolution(a: Any, border: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """Return ``(data, offset, mask or None, weight, bias or None) -> output``."""

    def convolve_chunk(
        data: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None, weight: torch.Tensor
    ) -> torch.Tensor:
        return _product(a, _sample_columns(a, border, data, offset, mask), weight)

    def convolve(
        data: torch.Tensor,
        offset: torch.Tensor,
        mask: torch.Tensor | None,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        high, wide = offset.shape[2:]
        size = data.shape[1] * a.kernel[0] * a.kernel[1] * high * wide
        step = max(_COLUMNS // max(size, 1), 1)
        data, offset = data.contiguous(), offset.contiguous()
        mask = None if mask is None else mask.contiguous()
        outs = []
        for start in range(0, max(data.shape[0], 1), step):
            rows = slice(start, start + step)
            inputs = (data[rows], offset[rows], None if mask is None else mask[rows], weight)
            # with several chunks, backward samples again instead of keeping all columns
            if data.shape[0] > step and torch.is_grad_enabled():
                outs.append(
                    checkpoint(convolve_chunk, *inputs, use_reentrant=False, preserve_rng_state=False)
                )
            else:
                outs.append(convolve_chunk(*inputs))
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        if bias is not None:
            out = out + bias[:, None]
        return out.view(data.shape[0], a.num_filter, high, wide)

    return convolve


def _conv_attrs(**more: Attr) -> dict[str, Attr]:
    return {
        "kernel": Attr(shape, "window size: (h, w)"),
        "stride": Attr(shape, "step of the window; 1 on both axes if empty", ()),
        "dilate": Attr(shape, "distance between the window's elements; 1 on both axes if empty", ()),
        "pad": Attr(shape, "zeros added at both ends of each axis; none if empty", ()),
        "num_filter": Attr(integer(low=1), "number of output channels"),
        "num_group": Attr(integer(low=1), "number of groups the channels are split into", 1),
        "num_deformable_group": Attr(integer(low=1), "number of channel groups with their own offsets", 1),
        "workspace": Attr(integer(low=0), "accepted and ignored", 1024),
        "no_bias": Attr(boolean, "omit the bias", False),
        **more,
        "layout": Attr(optional(choice("NCDHW", "NCHW", "NCW")), "order of the axes; only NCHW", None),
    }


@pure(
    "_contrib_DeformableConvolution",
    [
        arg("data", ROWS),
        arg("offset", ROWS),
        param("weight"),
        param("bias", when=lambda a: not a.no_bias),
    ],
    _conv_attrs(),
    infer=_conv_rule(masked=False),
    onnx=Onnx(builder="deformable_convolution"),
)
def deformable_convolution(
    a: Any,
    data: torch.Tensor,
    offset: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Convolve over points that offsets move away from the window's grid, with bilinear interpolation.

    Points outside the image are 0; points between the last pixel and the border have its value.

    Shape:
        data: (N, C, H, W).
        offset: (N, 2 * num_deformable_group * kh * kw, OH, OW): per group and window element, vertical then horizontal.
        weight: (num_filter, C / num_group, kh, kw).
        bias: (num_filter,).
        returns: (N, num_filter, OH, OW), with the sizes of `Convolution`.

    Source: Dai et al., "Deformable convolutional networks", 2017; MXNet 1.9.1 `_contrib_DeformableConvolution`.
    """
    convolve = _bind_convolution(a, _inner_corners)
    return convolve(data, offset, None, weight, bias)


@pure(
    "_contrib_ModulatedDeformableConvolution",
    [
        arg("data", ROWS),
        arg("offset", ROWS),
        arg("mask", ROWS),
        param("weight"),
        param("bias", when=lambda a: not a.no_bias),
    ],
    _conv_attrs(im2col_step=Attr(integer(low=1), "accepted and ignored", 64)),
    infer=_conv_rule(masked=True),
    onnx=Onnx(builder="deformable_convolution"),
)
def modulated_deformable_convolution(
    a: Any,
    data: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Convolve over moved points, each multiplied by a mask.

    The image is surrounded by zeros: a point less than a pixel outside interpolates with the border.

    Shape:
        data: (N, C, H, W).
        offset: (N, 2 * num_deformable_group * kh * kw, OH, OW): per group and window element, vertical then horizontal.
        mask: (N, num_deformable_group * kh * kw, OH, OW).
        weight: (num_filter, C / num_group, kh, kw).
        bias: (num_filter,).
        returns: (N, num_filter, OH, OW), with the sizes of `Convolution`.

    Source: Zhu et al., "Deformable ConvNets v2", 2019; MXNet 1.9.1 `_contrib_ModulatedDeformableConvolution`, whose
    CPU build has no gradient.
    """
    convolve = _bind_convolution(a, _outer_corners)
    return convolve(data, offset, mask, weight, bias)


def _ps_corners(position: torch.Tensor, size: int) -> tuple[Corners, torch.Tensor]:
    """Return pixels and weights of points in [-0.5, size - 0.5], clamped to the outermost pixels."""
    inside = (position >= -0.5) & (position <= size - 0.5)
    clipped = position.clamp(0, size - 1)
    low, high = clipped.detach().floor(), clipped.detach().ceil()
    fraction = clipped - low
    # at an integer both corners are the same pixel, so the gradient is 0
    return (torch.stack([low, high], -1).int(), torch.stack([1 - fraction, fraction], -1)), inside


def _offset_index(parts: int, part_size: int, like: torch.Tensor) -> torch.Tensor:
    """Return the index of the offset, of `part_size`, for each bin along an axis."""
    fraction = divide(torch.arange(parts, dtype=like.dtype, device=like.device), parts)
    return (fraction * part_size).floor().long()


def _bin_offsets(a: Any, trans: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return each bin's horizontal and vertical offsets relative to its region: (R, classes, parts, parts) each."""
    if trans is None:
        return None, None
    at = _offset_index(a.pooled_size, a.part_size or a.pooled_size, trans)
    pairs = trans.reshape(trans.shape[0], trans.shape[1] // 2, 2, *trans.shape[2:])
    across, down = (pairs[..., at[:, None], at] * as_float32(a.trans_std)).unbind(2)
    return across, down


def _sample_points(
    a: Any, low: torch.Tensor, high: torch.Tensor, axis: int, moves: torch.Tensor | None
) -> torch.Tensor:
    """Return the coordinates of each bin's samples along one axis, 0 for rows or 1 for columns.

    Shape:
        low, high: (R,), edges of the regions.
        moves: (R, classes, parts, parts), relative to the region's size; None for no offsets.
        returns: (R, classes, parts, parts, samples).
    """
    parts, samples = a.pooled_size, a.sample_per_part
    size = (high - low).clamp(min=0.1)
    step = divide(size, parts)
    start = torch.arange(parts, dtype=low.dtype, device=low.device) * step[:, None] + low[:, None]
    start = start[:, None, :, None] if axis == 0 else start[:, None, None, :]
    start = start.expand(-1, 1, parts, parts) if moves is None else start + moves * size.view(-1, 1, 1, 1)
    inner = torch.arange(samples, dtype=low.dtype, device=low.device)
    points: torch.Tensor = start[..., None] + inner * (step / samples).view(-1, 1, 1, 1, 1)
    return points


def _plane_index(image: torch.Tensor, classes: int, parts: int, group: int) -> torch.Tensor:
    """Return the index of the feature plane that each bin reads: (R, classes, parts, parts)."""
    bin_group = bins_of_group(parts, group, image.device)
    class_index = torch.arange(classes, dtype=torch.int32, device=image.device).view(-1, 1, 1)
    return (
        (image.view(-1, 1, 1, 1) * classes + class_index) * group * group
        + bin_group[:, None] * group
        + bin_group
    )


def _ps_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if len(ins) > 2 and ins[2] is not None and len(ins[2]) != 4:
        raise ShapeError(f"trans has shape {ins[2]}, expected (number of regions, 2 * classes, parts, parts)")
    two, outs = region_shape_rule((5,), lambda a, _: (a.output_dim, a.pooled_size, a.pooled_size))(
        a, ins[:2], outs
    )
    return [*two, *ins[2:]], outs


@pure(
    "_contrib_DeformablePSROIPooling",
    [arg("data"), arg("rois"), arg("trans", when=lambda a: not a.no_trans)],
    {
        "spatial_scale": Attr(real, "size of the feature map divided by that of the image"),
        "output_dim": Attr(integer(low=1), "number of output channels"),
        "group_size": Attr(integer(low=1), "channel groups along each axis"),
        "pooled_size": Attr(integer(low=1), "height and width of the output"),
        "part_size": Attr(integer(low=0), "offsets along each axis; 0 means pooled_size", 0),
        "sample_per_part": Attr(integer(low=1), "samples per bin and axis", 1),
        "trans_std": Attr(real, "factor of the offsets, relative to the region's size", 0.0),
        "no_trans": Attr(boolean, "omit the offsets", False),
    },
    hidden=1,
    infer=_ps_infer,
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no deformable pooling"),
)
def deformable_psroi_pooling(
    a: Any, data: torch.Tensor, rois: torch.Tensor, trans: torch.Tensor | None = None
) -> torch.Tensor:
    """Average samples over the bins of regions of interest; each bin has an offset and its own channels.

    Samples outside the image are ignored; a bin without samples is 0. Regions get no gradient.

    Shape:
        data: (N, output_dim * group_size ** 2, H, W).
        rois: (R, 5): image index, then left, top, right, bottom in image pixels.
        trans: (R, 2 * classes, part_size, part_size): per class, horizontal then vertical; the channels are split
            evenly over the classes.
        returns: (R, output_dim, pooled_size, pooled_size).

    Raises:
        BoundsError: an image index exceeds the batch.

    Source: Dai et al., "Deformable convolutional networks", 2017; MXNet 1.9.1 `_contrib_DeformablePSROIPooling`.
    """
    parts, group, samples = a.pooled_size, a.group_size, a.sample_per_part
    scale = as_float32(a.spatial_scale)
    rois = rois.detach()
    regions, (count, _, height, width) = rois.shape[0], data.shape
    image = image_indices("_contrib_DeformablePSROIPooling", rois, count)
    classes = 1 if trans is None else trans.shape[1] // 2
    whole = round_half_away(rois[:, 1:])
    left, top = (whole[:, :2] * scale - 0.5).unbind(1)
    right, bottom = ((whole[:, 2:] + 1.0) * scale - 0.5).unbind(1)
    across, down = _bin_offsets(a, trans)
    (at_x, weight_x), inside_x = _ps_corners(_sample_points(a, left, right, 1, across), width)
    (at_y, weight_y), inside_y = _ps_corners(_sample_points(a, top, bottom, 0, down), height)
    inside = inside_y[..., :, None] & inside_x[..., None, :]
    share = inside / inside.sum((-1, -2), keepdim=True).clamp(min=1)
    weight = weight_y[..., :, None, :, None] * weight_x[..., None, :, None, :] * share[..., None, None]
    plane = _plane_index(image, classes, parts, group)
    index = (
        plane.view(*plane.shape, 1, 1, 1, 1) * (height * width)
        + (at_y * width)[..., :, None, :, None]
        + at_x[..., None, :, None, :]
    )
    depth = a.output_dim // classes
    table = pixel_table(data.reshape(count * classes, depth * group * group, height, width), group * group)
    starts = equal_bag_starts(regions * classes * parts * parts, 4 * samples * samples, data.device)
    maps = weighted_bags(table, weight.flatten(), index.flatten(), starts, parts * parts)
    return maps.view(regions, a.output_dim, parts, parts)
