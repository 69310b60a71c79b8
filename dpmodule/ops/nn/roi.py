"""Max pooling of regions of interest, and helpers of operators on regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..._devices.device_transfer import extremes
from ...base import BoundsError, Shape, ShapeError
from ..attrs import AttrType, fraction, shape
from ..dtypes import as_float32
from ..math.pointwise import round_half_away
from ..registry import bound
from ..shapes import output_shape
from ..spec import NEVER, Attr, Onnx, Shapes, arg

_CHUNK = 1 << 16
"""Size of a chunk of bins, a fraction of a core's cache."""
_MAX_MASKED_PIXELS = 1 << 16
"""Total pixels of all bins and channels up to which a masked maximum is faster than preparing windows."""


def image_indices(name: str, rois: torch.Tensor, count: int, low: int = 0) -> torch.Tensor:
    """Return the image index of each region, int32.

    Args:
        rois: (R, columns), the image index first.
    """
    image = rois[:, 0].int()
    if image.numel():
        least, most = extremes(image)
        if least < low or most >= count:
            wrong = least if least < low else most
            raise BoundsError(
                f"{name}: rois has image {wrong} in its first column, expected 0 to {count - 1}"
                f" as data has {count} images"
            )
    return image


def _to_pair(value: Any) -> tuple[int, ...]:
    pair: tuple[int, ...] = shape.parse(value)
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(value)
    return pair


POOLED_SIZE = AttrType(_to_pair, "two positive integers", "tuple[int, int]")


def region_shape_rule(
    columns: tuple[int, ...], size: Callable[[Any, tuple[int, ...]], tuple[int, ...]]
) -> Callable[..., Shapes]:
    """Return the shape rule of an operator on data (N, C, H, W) and rois (R, columns).

    Args:
        size: ``(a, data) -> (channels, height, width)`` of the output.
    """

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        data, rois = ins[0], ins[1]
        if data is not None and len(data) != 4:
            raise ShapeError(f"data has shape {data}, expected 4 axes: (N, C, H, W)")
        if rois is not None and (len(rois) != 2 or rois[1] and rois[1] not in columns):
            wanted = " or ".join(map(str, columns))
            raise ShapeError(f"rois has shape {rois}, expected 2 axes: (number of regions, {wanted})")
        if data is None:
            return ins, outs
        shape = (rois[0] if rois else 0, *size(a, data))
        return ins, [output_shape(out, shape) for out in outs]

    return infer


def _keys(pixels: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Return integer keys in the order of the numbers; of equal numbers, the first has the largest key.

    The upper half of a key is the number, the lower half its pixel, counted down. One maximum yields both.

    Args:
        pixels: (R, C), one row per pixel.

    Returns:
        (R, C) int64, and a function that returns the numbers of keys.
    """
    if pixels.dtype == torch.float32:
        # adding zero turns negative zero into positive zero, which compares equal
        bits = (pixels + 0.0).view(torch.int32)
        rank = bits ^ ((bits >> 31) & 0x7FFFFFFF)

        def values(key: torch.Tensor) -> torch.Tensor:
            upper = (key >> 32).int()
            return (upper ^ ((upper >> 31) & 0x7FFFFFFF)).view(torch.float32)

    else:
        distinct, rank = torch.unique(pixels, return_inverse=True)

        def values(key: torch.Tensor) -> torch.Tensor:
            numbers: torch.Tensor = distinct[key >> 32]
            return numbers

    down = torch.arange(pixels.shape[0] - 1, -1, -1, device=pixels.device)
    return (rank.long() << 32) | down[:, None], values


def _power(length: torch.Tensor) -> torch.Tensor:
    """Return the largest i with 2**i <= length."""
    exponent: torch.Tensor = torch.frexp(length.clamp(min=1).double())[1]
    return exponent - 1


class _Bins:
    """Bins of all regions: image, range of rows and columns, and a mask of empty bins."""

    def __init__(self, image: torch.Tensor, rows: Any, columns: Any, pooled: tuple[int, int]) -> None:
        count, (high, wide) = image.numel(), pooled

        def spread(x: torch.Tensor, rows_axis: bool) -> torch.Tensor:
            x = x.view(count, high, 1) if rows_axis else x.view(count, 1, wide)
            return x.expand(count, high, wide).reshape(-1)

        self.image = image.view(-1, 1, 1).expand(count, high, wide).reshape(-1).long()
        self.top, self.bottom = (spread(x, True).long() for x in rows)
        self.left, self.right = (spread(x, False).long() for x in columns)
        self.empty = (self.bottom <= self.top) | (self.right <= self.left)

    def windows(self, level: torch.Tensor, chosen: torch.Tensor, i: int, j: int) -> list[torch.Tensor]:
        """Return the rows of the four windows whose union is the bin, for the chosen bins."""
        _, height, width, _ = level.shape
        base = self.image[chosen] * height
        top, bottom = self.top[chosen], self.bottom[chosen] - (1 << i)
        left, right = self.left[chosen], self.right[chosen] - (1 << j)
        return [(base + y) * width + x for y in (top, bottom) for x in (left, right)]


def _double_windows(level: torch.Tensor, axis: int, step: int) -> torch.Tensor:
    """Return the maxima of windows twice as long along an axis, where `step` is the current length."""
    size = level.shape[axis] - step
    return torch.maximum(level.narrow(axis, 0, size), level.narrow(axis, step, size))


def _levels(
    pixels: torch.Tensor, code: torch.Tensor
) -> Iterator[tuple[torch.Tensor, int, int, torch.Tensor]]:
    """Yield the maxima of all windows of 2**i by 2**j pixels and their bins, for each (i, j) that bins need.

    Args:
        code: (bins,) 64 * i + j; negative for empty bins.
    """
    tall, tall_level = pixels, 0
    wide, wide_level = pixels, 0
    for key in torch.unique(code).tolist():
        i, j = divmod(key, 64)
        if key < 0:
            continue
        if i > tall_level:
            for step in range(tall_level, i):
                tall = _double_windows(tall, 1, 1 << step)
            tall_level, wide, wide_level = i, tall, 0
        for step in range(wide_level, j):
            wide = _double_windows(wide, 2, 1 << step)
        wide_level = j
        yield wide, i, j, (code == key).nonzero().view(-1)


def _masked_pool(
    data: torch.Tensor, bins: _Bins, want_places: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the result of `_max_pool` by a masked maximum over all pixels; fast for few pixels and bins."""
    count, depth, height, width = data.shape
    rows, columns = torch.arange(height, device=data.device), torch.arange(width, device=data.device)
    tall = (rows >= bins.top[:, None]) & (rows < bins.bottom[:, None])
    wide = (columns >= bins.left[:, None]) & (columns < bins.right[:, None])
    inside = (tall[:, :, None] & wide[:, None, :]).flatten(1)[:, None]
    pixels = data.reshape(count, depth, -1)[bins.image]
    best, at = pixels.masked_fill(~inside, -torch.inf).max(-1)
    empty = bins.empty[:, None]
    out = best.masked_fill(empty, 0.0)
    if not want_places:
        return out, None
    # if all pixels are minus infinity, the maximum may be a masked pixel
    first = (bins.top * width + bins.left)[:, None]
    at = torch.where(inside.expand_as(pixels).gather(2, at[:, :, None])[:, :, 0], at, first)
    return out, (at + bins.image[:, None] * height * width).masked_fill(empty, -1).int()


def _max_pool(data: torch.Tensor, bins: _Bins, want_places: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the maximum of each bin (bins, C), 0 if empty, and its pixel, -1 if empty.

    Each bin is the union of four windows whose sides are powers of two. Bins are processed in chunks that fit the
    cache.
    """
    count, depth, height, width = data.shape
    if bins.empty.numel() * depth * height * width <= _MAX_MASKED_PIXELS:
        return _masked_pool(data, bins, want_places)
    pixels = data.permute(0, 2, 3, 1).contiguous()
    out = data.new_zeros((bins.empty.numel(), depth))
    arg = torch.full(out.shape, -1, dtype=torch.int32, device=data.device) if want_places else None
    values: Callable[[torch.Tensor], torch.Tensor] | None = None
    if arg is not None:
        keys, values = _keys(pixels.view(-1, depth))
        pixels = keys.view(pixels.shape)
    code = _power(bins.bottom - bins.top) * 64 + _power(bins.right - bins.left)
    last, step = count * height * width - 1, max(_CHUNK // max(depth, 1), 1)
    for level, i, j, chosen in _levels(pixels, code.masked_fill(bins.empty, -1)):
        rows, windows = level.reshape(-1, depth), bins.windows(level, chosen, i, j)
        for start in range(0, chosen.numel(), step):
            bins_of_chunk = slice(start, start + step)
            best = rows[windows[0][bins_of_chunk]]
            for window in windows[1:]:
                torch.maximum(best, rows[window[bins_of_chunk]], out=best)
            if arg is not None and values is not None:
                arg[chosen[bins_of_chunk]] = last - best.int()
                best = values(best)
            out[chosen[bins_of_chunk]] = best
    return out, arg


class _MaxPool(torch.autograd.Function):
    """Max pooling of bins; the gradient goes to the first maximum."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, bins: _Bins) -> torch.Tensor:
        out, arg = _max_pool(data, bins, True)
        ctx.shape = data.shape
        ctx.save_for_backward(arg)
        return out

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (arg,) = ctx.saved_tensors
        count, depth, height, width = ctx.shape
        grad = heads[0]
        table = grad.new_zeros((count * height * width, depth))
        step = max(16 * _CHUNK // max(depth, 1), 1)
        for start in range(0, arg.shape[0], step):
            at, grad_chunk = arg[start : start + step], grad[start : start + step]
            table.scatter_add_(0, at.clamp(min=0).long(), grad_chunk.masked_fill(at < 0, 0.0))
        return table.view(count, height, width, depth).permute(0, 3, 1, 2), None


_apply: Callable[..., torch.Tensor] = _MaxPool.apply


def divide(length: torch.Tensor, parts: int) -> torch.Tensor:
    """Return a length divided by a number, correctly rounded: CUDA multiplies by the number's rounded reciprocal."""
    return length / torch.full_like(length, parts)


def _bin_edges(
    start: torch.Tensor, size: torch.Tensor, parts: int, limit: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the range of pixels of each bin of each region within the image, as first and last + 1."""
    steps = torch.arange(parts + 1, dtype=size.dtype, device=size.device)
    step = divide(size, parts)[:, None]
    low = (steps[:-1] * step).floor() + start[:, None]
    high = (steps[1:] * step).ceil() + start[:, None]
    return low.clamp(0, limit), high.clamp(0, limit)


@bound(
    "ROIPooling",
    [arg("data"), arg("rois")],
    {
        "pooled_size": Attr(POOLED_SIZE, "height and width of the output"),
        "spatial_scale": Attr(fraction, "size of the feature map divided by that of the image"),
    },
    hidden=1,
    infer=region_shape_rule((5,), lambda a, data: (data[1], *a.pooled_size)),
    batch=NEVER,
    onnx=Onnx("MaxRoiPool", builder="roi_pooling"),
)
def roi_pooling(a: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Divide each region of interest into a fixed number of bins and take each bin's maximum.

    Corners are rounded to pixels and are inclusive. An empty bin is 0. The gradient of each output goes to the first
    maximum; rois have none.

    Shape:
        data: (N, C, H, W).
        rois: (R, 5): image index, then left, top, right, bottom in image pixels.
        returns: (R, C, *pooled_size).

    Raises:
        BoundsError: an image index exceeds the batch.

    Source: Girshick, "Fast R-CNN", 2015; MXNet 1.9.1 `ROIPooling`.
    """
    high, wide = a.pooled_size
    scale = as_float32(a.spatial_scale)

    def roi_pooling(data: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        image = image_indices("ROIPooling", rois, data.shape[0])
        left, top, right, bottom = round_half_away(rois[:, 1:].detach() * scale).unbind(1)
        rows = _bin_edges(top, (bottom - top + 1).clamp(min=1), high, data.shape[2])
        columns = _bin_edges(left, (right - left + 1).clamp(min=1), wide, data.shape[3])
        bins = _Bins(image, rows, columns, (high, wide))
        differentiated = torch.is_grad_enabled() and data.requires_grad
        out = _apply(data, bins) if differentiated else _max_pool(data, bins, False)[0]
        return out.view(rois.shape[0], high, wide, data.shape[1]).permute(0, 3, 1, 2).contiguous()

    return roi_pooling
