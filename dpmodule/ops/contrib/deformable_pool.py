"""Position-sensitive pooling of regions whose bins are moved by offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, integer, real
from ..bound import bound
from ..dtypes import single
from ..math.pointwise import round_away
from ..nn.roi import image_of, region_rule
from ..spec import NEVER, Attr, Onnx, Shapes, arg
from .bags import even, pixel_table, weighted_bags
from .roi import bins_of_group

Corners = tuple[torch.Tensor, torch.Tensor]


def _ps_corners(place: torch.Tensor, size: int) -> tuple[Corners, torch.Tensor]:
    """Return pixels and weights of points in [-0.5, size - 0.5], clipped to the outermost pixels."""
    inside = (place >= -0.5) & (place <= size - 0.5)
    clipped = place.clamp(0, size - 1)
    low, high = clipped.detach().floor(), clipped.detach().ceil()
    part = clipped - low
    # at a whole pixel both corners are that pixel, so the gradient there is 0
    return (torch.stack([low, high], -1).int(), torch.stack([1 - part, part], -1)), inside


def _part_of(parts: int, part_size: int, like: torch.Tensor) -> torch.Tensor:
    """Return for each bin along an axis which of the `part_size` offsets moves it."""
    share = torch.arange(parts, dtype=like.dtype, device=like.device) / parts
    return (share * part_size).floor().long()


def _moves(a: Any, trans: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return how far each bin moves right and down, in sizes of its region: (R, classes, parts, parts) each."""
    if trans is None:
        return None, None
    at = _part_of(a.pooled_size, a.part_size or a.pooled_size, trans)
    pairs = trans.reshape(trans.shape[0], trans.shape[1] // 2, 2, *trans.shape[2:])
    across, down = (pairs[..., at[:, None], at] * single(a.trans_std)).unbind(2)
    return across, down


def _points(
    a: Any, low: torch.Tensor, high: torch.Tensor, axis: int, moves: torch.Tensor | None
) -> torch.Tensor:
    """Return where the samples of each bin lie along one axis, 0 for rows or 1 for columns.

    Shape:
        low, high: (R,), edges of the regions.
        moves: (R, classes, parts, parts), in sizes of the region; None where bins stay.
        returns: (R, classes, parts, parts, samples).
    """
    parts, samples = a.pooled_size, a.sample_per_part
    size = (high - low).clamp(min=0.1)
    step = size / parts
    start = torch.arange(parts, dtype=low.dtype, device=low.device) * step[:, None] + low[:, None]
    start = start[:, None, :, None] if axis == 0 else start[:, None, None, :]
    start = start.expand(-1, 1, parts, parts) if moves is None else start + moves * size.view(-1, 1, 1, 1)
    inner = torch.arange(samples, dtype=low.dtype, device=low.device)
    points: torch.Tensor = start[..., None] + inner * (step / samples).view(-1, 1, 1, 1, 1)
    return points


def _planes(image: torch.Tensor, classes: int, parts: int, group: int) -> torch.Tensor:
    """Return which plane of the features each bin reads: (R, classes, parts, parts)."""
    which = bins_of_group(parts, group, image.device)
    kinds = torch.arange(classes, dtype=torch.int32, device=image.device).view(-1, 1, 1)
    return (image.view(-1, 1, 1, 1) * classes + kinds) * group * group + which[:, None] * group + which


def _ps_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if len(ins) > 2 and ins[2] is not None and len(ins[2]) != 4:
        raise ShapeError(f"trans has shape {ins[2]}, expected (number of regions, 2 * classes, parts, parts)")
    two, outs = region_rule((5,), lambda a, _: (a.output_dim, a.pooled_size, a.pooled_size))(a, ins[:2], outs)
    return [*two, *ins[2:]], outs


@bound(
    "_contrib_DeformablePSROIPooling",
    [arg("data"), arg("rois"), arg("trans", when=lambda a: not a.no_trans)],
    {
        "spatial_scale": Attr(real, "size of the feature map over that of the image"),
        "output_dim": Attr(integer(low=1), "number of output channels"),
        "group_size": Attr(integer(low=1), "channel groups along each axis"),
        "pooled_size": Attr(integer(low=1), "height and width of the output"),
        "part_size": Attr(integer(low=0), "offsets along each axis; 0 means pooled_size", 0),
        "sample_per_part": Attr(integer(low=1), "samples per bin and axis", 1),
        "trans_std": Attr(real, "factor of the offsets, in sizes of the region", 0.0),
        "no_trans": Attr(boolean, "leave the offsets out", False),
    },
    hidden=1,
    infer=_ps_infer,
    batch=NEVER,
    onnx=Onnx(missing="it has no deformable pooling"),
)
def deformable_psroi_pooling(a: Any) -> Callable[..., torch.Tensor]:
    """Average samples over the bins of regions of interest, each bin moved by an offset and reading its own channels.

    Samples outside the image are left out; a bin without samples is 0. Regions get no gradient.

    Shape:
        data: (N, output_dim * group_size ** 2, H, W).
        rois: (R, 5): image number, then left, top, right, bottom in image pixels.
        trans: (R, 2 * classes, part_size, part_size): per class, right then down; the channels are split evenly
            over the classes.
        returns: (R, output_dim, pooled_size, pooled_size).

    Raises:
        BoundsError: a region names an image beyond the batch.

    Source: Dai et al., "Deformable convolutional networks", 2017; MXNet 1.9.1 `_contrib_DeformablePSROIPooling`.
    """
    parts, group, samples = a.pooled_size, a.group_size, a.sample_per_part
    scale = single(a.spatial_scale)

    def deformable_psroi_pooling(
        data: torch.Tensor, rois: torch.Tensor, trans: torch.Tensor | None = None
    ) -> torch.Tensor:
        rois = rois.detach()
        regions, (count, _, height, width) = rois.shape[0], data.shape
        image = image_of("_contrib_DeformablePSROIPooling", rois, count)
        classes = 1 if trans is None else trans.shape[1] // 2
        whole = round_away(rois[:, 1:])
        left, top = (whole[:, :2] * scale - 0.5).unbind(1)
        right, bottom = ((whole[:, 2:] + 1.0) * scale - 0.5).unbind(1)
        across, down = _moves(a, trans)
        (at_x, weight_x), inside_x = _ps_corners(_points(a, left, right, 1, across), width)
        (at_y, weight_y), inside_y = _ps_corners(_points(a, top, bottom, 0, down), height)
        inside = inside_y[..., :, None] & inside_x[..., None, :]
        share = inside / inside.sum((-1, -2), keepdim=True).clamp(min=1)
        weight = weight_y[..., :, None, :, None] * weight_x[..., None, :, None, :] * share[..., None, None]
        plane = _planes(image, classes, parts, group)
        index = (
            plane.view(*plane.shape, 1, 1, 1, 1) * (height * width)
            + (at_y * width)[..., :, None, :, None]
            + at_x[..., None, :, None, :]
        )
        depth = a.output_dim // classes
        table = pixel_table(
            data.reshape(count * classes, depth * group * group, height, width), group * group
        )
        starts = even(regions * classes * parts * parts, 4 * samples * samples, data.device)
        maps = weighted_bags(table, weight.flatten(), index.flatten(), starts, parts * parts)
        return maps.view(regions, a.output_dim, parts, parts)

    return deformable_psroi_pooling
