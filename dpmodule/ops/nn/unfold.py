"""Windows of images as rows of a matrix, one per window position, for multiplication with weights.

torch arranges windows as columns, from which rows have to be copied, and is slow for small images with many channels.
The native extension writes the rows directly, and sums their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import sqrt
from typing import Any

import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer, shape
from ..registry import bound, pure
from ..shapes import prod, unify
from ..spec import ROWS, Attr, Onnx, Shapes, arg
from ..tracing import is_tracing
from .layer_shapes import layer, per_axis, unify_input, window_size
from .linear import kernel_beats_mkl, kernels, mkl_is_fastest

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Grid of windows over the height and width of images.

    Attributes:
        kernel: sizes of the window.
        stride: steps between windows.
        pad: zeros added at both ends of an axis.
        dilate: distances between a window's elements.
    """

    kernel: Pair
    stride: Pair
    pad: Pair
    dilate: Pair

    def counts(self, sizes: Sequence[int]) -> Pair:
        """Return the numbers of windows along height and width."""
        axes = zip(sizes, self.kernel, self.stride, self.pad, self.dilate, strict=True)
        height, width = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]
        return height, width


_POINTS = WindowGrid((1, 1), (1, 1), (0, 0), (1, 1))


def window_grid(a: Any) -> WindowGrid:
    """Return the windows of a convolution with the attributes `a`; with one axis, it convolves images of one row."""
    rank = len(a.kernel)

    def pair(values: Sequence[int], default: int) -> Pair:
        first, last = (*[default] * (2 - rank), *values)
        return first, last

    return WindowGrid(
        pair(a.kernel, 1),
        pair(per_axis(a.stride, rank, 1, "stride"), 1),
        pair(per_axis(a.pad, rank, 0, "pad"), 0),
        pair(per_axis(a.dilate, rank, 1, "dilate"), 1),
    )


_MIN_WEIGHT, _MIN_PLAIN_WEIGHT, _MIN_LONE_WEIGHT = 2**16, 2**17, 2**18
"""Elements of a weight from which oneDNN is slow if it has more filters than positions, the same for torch's own
convolution, and for that of a single image where MKL is not the fastest."""
_MIN_POINTS = 2**18
"""Elements of data from which a 1x1 convolution is a faster product than torch's own convolution."""
_MIN_CHANNELS, _MAX_WEIGHT = 24, 16
"""Channels and filters from which it is the fastest where the extension beats MKL, and elements of a weight, for each
position, up to which `_MIN_WORK` holds."""
_MIN_WORK, _LARGE_WORK = 2**23, 2**26
"""Multiplications from which it is the fastest there, and the same for larger weights."""
_MAX_POSITIONS, _MAX_WIDE_POSITIONS = 0.5, 2.0
"""Positions for each filter, times the square root of the number of copies of a pixel in the windows, up to which
windows as rows are faster than oneDNN's convolution where MKL is not the fastest: with AVX2, and with AVX-512."""
_FEW_IMAGES, _SMALL_IMAGE, _LARGE_WINDOW = 16, 20480, 4
"""Limits up to which torch convolves without oneDNN: images of 1x1 convolutions, elements of a single image, and sides
of its windows."""


def uses_onednn(data: Sequence[int], grid: WindowGrid, threads: int) -> bool:
    """Return True if torch convolves data of a shape by oneDNN, which it does not for the smallest."""
    images, channels, height, width = data
    is_small = grid.kernel == grid.stride == grid.dilate == (1, 1) and images < _FEW_IMAGES and threads == 1
    has_many = images > 1 or channels * height * width > _SMALL_IMAGE
    return not is_small and (has_many or min(grid.kernel) >= _LARGE_WINDOW)


def is_fast_product(data: Sequence[int], filters: int, grid: WindowGrid) -> bool:
    """Return True if windows of one pixel are the fastest to train as products with the data in channels_last."""
    images, channels, height, width = data
    positions, weight = images * height * width, channels * filters
    least = _MIN_WORK if weight <= _MAX_WEIGHT * positions else _LARGE_WORK
    is_large = positions * weight >= least and min(channels, filters) >= _MIN_CHANNELS
    return is_large and grid == _POINTS and kernel_beats_mkl()


def is_fast_as_rows(
    data: Sequence[int], filters: int, grid: WindowGrid, threads: int, is_last: bool = True
) -> bool:
    """Return True if products with windows as rows are the fastest to train a convolution without groups.

    Args:
        data: shape of the images.
        is_last: True if the images are in channels_last.
    """
    height, width = grid.counts(data[2:])
    positions, depth = data[0] * height * width, data[1] * prod(grid.kernel)
    by_onednn, are_points = uses_onednn(data, grid, threads), is_last and grid == _POINTS
    by_mkl = mkl_is_fastest()
    least = _MIN_WEIGHT if by_onednn else _MIN_PLAIN_WEIGHT if data[0] > 1 or by_mkl else _MIN_LONE_WEIGHT
    are_few = positions <= filters
    if by_onednn and grid != _POINTS and not by_mkl:
        copies = prod(grid.kernel) / prod(grid.stride)
        is_wide = getattr(kernels(), "vector_width", 0) == 16
        most = _MAX_WIDE_POSITIONS if is_wide else _MAX_POSITIONS
        are_few = are_few and positions * sqrt(copies) <= most * filters
    if are_few and filters * depth >= least and (by_onednn or data[0] > 1 or not are_points):
        return positions > 0
    if are_points and is_fast_product(data, filters, grid):
        return True
    return are_points and not by_onednn and positions * depth >= _MIN_POINTS and not kernel_beats_mkl()


def _arguments(images: torch.Tensor, grid: WindowGrid, rows: torch.Tensor) -> tuple[int, ...]:
    """Return the arguments of the extension's functions."""
    shape, counts = images.shape, grid.counts(images.shape[2:])
    where = (*counts, *grid.kernel, *grid.stride, *grid.pad, *grid.dilate)
    return images.data_ptr(), *images.stride(), *shape, *where, rows.data_ptr()


def pixel_rows(images: torch.Tensor) -> torch.Tensor:
    """Return images (N, C, H, W) as a matrix (N * H * W, C), which shares their memory in channels_last."""
    return images.permute(0, 2, 3, 1).reshape(-1, images.shape[1])


def images_of_pixels(pixels: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return images of a shape (N, C, H, W) whose pixels are the rows of a matrix, in channels_last."""
    return pixels.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)


def window_rows(images: torch.Tensor, grid: WindowGrid) -> torch.Tensor:
    """Return the windows of images as a matrix (N * windows, C * kernel height * kernel width)."""
    if grid == _POINTS:
        return pixel_rows(images)
    windows = images.shape[0] * prod(grid.counts(images.shape[2:]))
    rows = images.new_empty(windows, images.shape[1] * prod(grid.kernel))
    kernels().unfold(*_arguments(images, grid, rows))
    return rows


def images_of_windows(rows: torch.Tensor, shape: Sequence[int], grid: WindowGrid) -> torch.Tensor:
    """Return images of a shape (N, C, H, W) that are the sums of windows, in channels_last."""
    if grid == _POINTS:
        return images_of_pixels(rows, shape)
    images = images_of_pixels(rows.new_zeros(shape[0] * shape[2] * shape[3], shape[1]), shape)
    kernels().fold(*_arguments(images, grid, rows))
    return images


WINDOW = {
    "kernel": Attr(shape, "window size: (w,), (h, w) or (d, h, w)"),
    "stride": Attr(shape, "step of the window; 1 on every axis if empty", ()),
    "dilate": Attr(shape, "distance between the window's elements; 1 on every axis if empty", ()),
    "pad": Attr(shape, "zeros added at both ends of each axis; 0 if empty", ()),
}
"""Attributes of windows."""


class _UnfoldWindows:
    """Windows over a spatial shape."""

    __slots__ = ("counts", "dilate", "kernel", "pad", "spatial", "stride")

    def __init__(self, a: Any, spatial: tuple[int, ...]) -> None:
        rank = len(a.kernel)
        if not 1 <= rank <= 3 or len(spatial) != rank:
            raise ShapeError(
                f"kernel is {a.kernel} over the axes {spatial}, expected 1, 2 or 3 values, one per axis"
            )
        self.spatial, self.kernel = spatial, a.kernel
        self.stride = per_axis(a.stride, rank, 1, "stride")
        self.dilate = per_axis(a.dilate, rank, 1, "dilate")
        self.pad = per_axis(a.pad, rank, 0, "pad")
        axes = zip(spatial, a.kernel, self.stride, self.dilate, self.pad, strict=True)
        self.counts = [window_size(x, d * (k - 1) + 1, s, p) for x, k, s, d, p in axes]

    def padded(self) -> list[int]:
        """Return the sizes of the axes with their padding."""
        return [x + 2 * p for x, p in zip(self.spatial, self.pad, strict=True)]

    def indices(self, device: torch.device) -> torch.Tensor:
        """Return the index in the flat padded image of each element of each window: (prod(kernel), windows)."""
        flat, rank = torch.zeros((), dtype=torch.int64, device=device), len(self.kernel)
        axes = zip(self.kernel, self.stride, self.dilate, self.counts, self.padded(), strict=True)
        for i, (k, s, d, n, size) in enumerate(axes):
            inside, start = torch.arange(k, device=device) * d, torch.arange(n, device=device) * s
            one = inside.view(-1, *(1,) * (2 * rank - 1 - i)) + start.view(-1, *(1,) * (rank - 1 - i))
            flat = flat * size + one
        return flat.reshape(prod(self.kernel), -1)


_cached_windows = lru_cache(maxsize=256)(_UnfoldWindows)


def _windows(a: Any, spatial: tuple[int, ...]) -> _UnfoldWindows:
    """Return the windows over a spatial shape, cached except under a compiler, where sizes may be symbolic."""
    return _UnfoldWindows(a, spatial) if is_tracing() else _cached_windows(a, spatial)


def _gather_windows(w: _UnfoldWindows, data: torch.Tensor) -> torch.Tensor:
    """Return the windows as columns, for any number of axes."""
    sides = [p for p in reversed(w.pad) for _ in range(2)]
    flat = F.pad(data, sides).flatten(2)
    return flat[:, :, w.indices(data.device)].flatten(1, 2)


def _scatter_windows(w: _UnfoldWindows, columns: torch.Tensor) -> torch.Tensor:
    """Return the image summed from columns, for any number of axes."""
    indices = w.indices(columns.device).flatten()
    rows, channels = columns.shape[0], columns.shape[1] // prod(w.kernel)
    flat = columns.new_zeros((rows, channels, prod(w.padded())))
    windows = columns.reshape(rows, channels, indices.numel())
    out = flat.index_add(2, indices, windows).view(rows, channels, *w.padded())
    for axis, (p, x) in enumerate(zip(w.pad, w.spatial, strict=True)):
        out = out.narrow(2 + axis, p, x)
    return out


def _im2col(a: Any, data: torch.Tensor) -> torch.Tensor:
    w = _windows(a, tuple(data.shape[2:]))
    if len(w.kernel) == 2:
        return F.unfold(data, w.kernel, w.dilate, w.pad, w.stride)
    return _gather_windows(w, data)


def _col2im(a: Any, columns: torch.Tensor) -> torch.Tensor:
    w = _windows(a, a.output_size)
    if len(w.kernel) == 2:
        return F.fold(columns, w.spatial, w.kernel, w.dilate, w.pad, w.stride)
    return _scatter_windows(w, columns)


def _columns_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    counts = _windows(a, data[2:]).counts
    return data[0], data[1] * prod(a.kernel), prod(counts)


def _col2im_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Check the columns against `output_size`; infer the batch size in both directions."""
    columns, out = ins[0], outs[0]
    if columns is None:
        return ins, outs
    if len(columns) != 3:
        raise ShapeError(f"data has shape {columns}, expected 3 axes: (N, C * elements of kernel, windows)")
    area, windows = prod(a.kernel), prod(_windows(a, a.output_size).counts)
    if columns[1] % area or columns[2] not in (0, windows):
        raise ShapeError(
            f"data has shape {columns}, expected (N, a multiple of {area}, {windows}) for output_size"
            f" {a.output_size} and kernel {a.kernel}"
        )
    rows = columns[0] or (out[0] if out else 0)
    columns = (rows, columns[1], windows)
    return [columns], [unify_input("output", out, (rows, columns[1] // area, *a.output_size), columns)]


@bound(
    "im2col",
    [arg("data", ROWS)],
    WINDOW,
    infer=layer((), lambda a, data: [], _columns_shape),
    onnx=Onnx("Conv", builder="im2col"),
)
def im2col(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Arrange the windows of an image as columns.

    Shape:
        data: (N, C, *spatial) with one, two or three spatial axes, as many as `kernel` has.
        output: (N, C * prod(kernel), windows).

    Raises:
        ShapeError: a window is longer than a padded axis.

    Source: MXNet 1.9.1 `im2col`.
    """
    return partial(_im2col, a)


@bound(
    "col2im",
    [arg("data", ROWS)],
    {"output_size": Attr(shape, "spatial shape of the image: (w,), (h, w) or (d, h, w)"), **WINDOW},
    infer=_col2im_infer,
    onnx=Onnx("ConvTranspose", builder="col2im"),
)
def col2im(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Sum columns into an image, adding up overlaps; the transpose of `im2col`.

    Shape:
        data: (N, C * prod(kernel), windows).
        output: (N, C, *output_size).

    Raises:
        ShapeError: the columns are not the windows of an image of that size.

    Source: MXNet 1.9.1 `col2im`.
    """
    return partial(_col2im, a)


def _sizes(a: Any, spatial: tuple[int, ...]) -> list[int]:
    """Return the output's height and width; unknown ones (0) stay unknown."""
    border = a.max_displacement + a.kernel_size // 2
    ranges = [x and x + 2 * (a.pad_size - border) for x in spatial]
    if any(x and size < 1 for x, size in zip(spatial, ranges, strict=True)):
        raise ShapeError(
            f"data of {spatial} padded by {a.pad_size} are too small for max_displacement {a.max_displacement}"
            f" and kernel_size {a.kernel_size}; raise pad_size"
        )
    return [-(-size // a.stride1) for size in ranges]


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for both inputs, and the output's from it."""
    if a.kernel_size % 2 == 0:
        raise OpError(f"kernel_size is {a.kernel_size}, expected an odd number")
    data, out = unify(ins[0], ins[1], "data1 and data2"), outs[0]
    if data is None:
        return ins, outs
    if len(data) != 4:
        raise ShapeError(f"data1 has shape {data}, expected 4 axes: (N, C, H, W)")
    if out and not data[0]:
        data = (out[0], *data[1:])
    reach = 2 * (a.max_displacement // a.stride2) + 1
    out_shape = (data[0], reach * reach, *_sizes(a, data[2:]))
    return [data, data], [unify_input("output", out, out_shape, data)]


def _distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the sum over channels of absolute differences; the derivative at 0 is 1, not 0 as in torch."""
    difference = left - right
    return torch.where(difference >= 0, difference, -difference).sum(1)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left * right).sum(1)


@pure(
    "Correlation",
    [arg("data1", ROWS), arg("data2", ROWS)],
    {
        "kernel_size": Attr(integer(low=1), "side of the compared patches, odd", 1),
        "max_displacement": Attr(integer(low=0), "maximum displacement, in pixels", 1),
        "stride1": Attr(integer(low=1), "step between the patches of data1", 1),
        "stride2": Attr(integer(low=1), "step between displacements", 1),
        "pad_size": Attr(integer(low=0), "zeros added around both inputs", 0),
        "is_multiply": Attr(boolean, "multiply the patches; else use absolute differences", True),
    },
    hidden=2,
    infer=_infer,
    onnx=Onnx(missing="compares patches of two images over all displacements"),
)
def correlation(a: Any, data1: torch.Tensor, data2: torch.Tensor) -> torch.Tensor:
    """Compare each patch of one feature map with the patches around the same position in another.

    Shape:
        data1, data2: (N, C, H, W).
        output: (N, D * D, h, w), ``D = 2 * (max_displacement // stride2) + 1`` displacements along each axis,
            ``h = ceil((H + 2 * pad_size - 2 * (max_displacement + kernel_size // 2)) / stride1)``. Each value is
            the mean over patch and channels.

    Raises:
        ShapeError: the inputs are too small for the displacements.

    Source: Dosovitskiy et al., "FlowNet: learning optical flow with convolutional networks", 2015; MXNet 1.9.1
    `Correlation`.
    """
    reach, step, pad = a.max_displacement, a.stride2, a.pad_size
    # the largest displacement is a multiple of the step
    first = reach - reach // step * step
    shifts = range(first, 2 * reach + 1, step)
    compare = _product if a.is_multiply else _distance
    _infer(a, [tuple(data1.shape), tuple(data2.shape)], [None])
    height, width = (n + 2 * (pad - reach) for n in data1.shape[2:])
    # an unpadded rim of data1 is never compared
    one = F.pad(data1, [pad - reach] * 4)
    other = F.pad(data2, [pad] * 4)
    maps = [compare(one, other[:, :, dy : dy + height, dx : dx + width]) for dy in shifts for dx in shifts]
    elements = data1.shape[1] * a.kernel_size**2
    means = F.avg_pool2d(torch.stack(maps, 1), a.kernel_size, a.stride1, divisor_override=elements)
    return means.to(data1.dtype)  # a sum of integers is int64
