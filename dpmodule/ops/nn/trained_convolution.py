"""Convolutions without groups in training, by the native extension.

oneDNN's kernels read each number once per position in the window, and are memory-bound with few channels. The kernels
for 3x3 windows reuse numbers for all columns of the windows. With AVX2, oneDNN computes the gradient of a weight at
half of its other kernels' speed; the extension's tiles accumulate it in registers, for windows of any size. Small
convolutions, and those of a large weight and few windows, are products with the windows as rows. With few channels,
most of a tile would be unused: products then give the gradients of whole windows, whose overlaps are summed. Transposed
convolutions exchange the result and the gradient of the data. The result and the gradients of data and weight are each
computed by the fastest of these. The choice depends only on processor, sizes and threads, see `kernel_choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import torch

from ..._core import torch_private
from ..tracing import is_tracing
from .conv import FEW_CHANNELS
from .kernel_choice import pays, predict, trees_of
from .linear import (
    address,
    fastest_linear,
    gradient_product,
    is_float32_cpu,
    kernels,
    weight_gradients,
)
from .relayout import in_channels_last
from .unfold import (
    Pair,
    WindowGrid,
    images_of_pixels,
    images_of_windows,
    is_fast_as_rows,
    is_fast_product,
    pixel_rows,
    uses_onednn,
    window_rows,
)

MaybeTensor = torch.Tensor | None

_TILE = 8
"""Minimum number of columns of a tile of the result, for which all kernels of 3x3 windows are the fastest."""
_MAX_NUMBERS = 2**16
"""Size of an image up to which it fits the L2 cache."""
_MAX_FILTERS = 96
"""Channels and filters up to which these kernels are faster with wide vectors."""
_MAX_NARROW, _MAX_NARROW_WIDE = 64, 32
"""The same limits with narrow vectors, and with more columns than `_TILE`."""
_MIN_POSITIONS = 256
"""Window positions below which torch prepares less than these kernels."""
_MAX_PAIRS = 2**16
"""Channels times filters up to which the threads' partial sums take little memory."""
_STEP_OF_CHANNELS = 4
"""Required divisor of the number of channels for the gradient of the weight."""
_MAX_WEIGHT, _LARGE_WEIGHT, _SMALL_WEIGHT = 256, 2048, 2**16
"""Elements of a weight, for each window, up to which products with the windows as rows are not faster, and from which
they are: other kernels then spend most of their time on reordering the weight; and elements at all up to which they
are not."""
_MIN_PLAIN_WORK, _MAX_PLAIN_WEIGHT = 2**19, 64
"""Multiplications from which a function of our own is worth its overhead where torch convolves without oneDNN, and
elements of a weight, for each window of one pixel, up to which tiles are faster there than its products."""


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a convolution: images, channels, filters, and height and width of data and result."""

    images: int
    channels: int
    filters: int
    sides: Pair
    counts: Pair
    grid: WindowGrid

    @property
    def data(self) -> tuple[int, ...]:
        """Return the shape of the data."""
        return self.images, self.channels, *self.sides

    @property
    def windows(self) -> int:
        """Return the number of windows of all images."""
        return self.images * prod(self.counts)

    @property
    def weight(self) -> int:
        """Return the number of elements of the weight."""
        return self.channels * self.filters * prod(self.grid.kernel)

    def fill(self, lanes: int) -> bool:
        """Return True if tiles of the result of 3x3 windows overlap only a little."""
        width = self.counts[1]
        if lanes <= _TILE or width <= _TILE:
            return width % _TILE == 0
        return width >= lanes and 8 * width >= 7 * (-(-width // lanes) * lanes)

    def adds(self) -> list[int]:
        """Return the rows and columns of the data that no window reads."""
        grid = self.grid
        axes = zip(self.sides, self.counts, grid.kernel, grid.stride, grid.dilate, grid.pad, strict=True)
        return [n - ((c - 1) * s + d * (k - 1) + 1 - 2 * p) for n, c, k, s, d, p in axes]

    def arguments(self) -> tuple[int, ...]:
        """Return the arguments of the extension's functions for windows of any size."""
        return *self._numbers, torch.get_num_threads()

    @cached_property
    def _numbers(self) -> tuple[int, ...]:
        grid = self.grid
        axes = zip(self.sides, self.counts, grid.kernel, grid.stride, grid.dilate, grid.pad, strict=True)
        return self.images, self.channels, self.filters, *[number for axis in axes for number in axis]

    @cached_property
    def turned(self) -> _Sizes:
        """Sizes of the convolution without a stride whose data's gradient is the result of this one."""
        grid = self.grid
        top, left = [d * (k - 1) - p for k, p, d in zip(grid.kernel, grid.pad, grid.dilate, strict=True)]
        swapped = self.images, self.filters, self.channels, self.counts, self.sides
        return _Sizes(*swapped, replace(grid, pad=(top, left)))


@lru_cache(1024)
def sizes_of(data: Sequence[int], filters: int, grid: WindowGrid) -> _Sizes:
    """Return the sizes of a convolution of data of a shape (N, C, H, W)."""
    images, channels, height, width = data
    return _Sizes(images, channels, filters, (height, width), grid.counts((height, width)), grid)


def _lanes() -> int:
    """Return the number of filters per vector, or 0 on a processor without these kernels."""
    core = kernels()
    return core.conv3x3_lanes() if hasattr(core, "conv3x3_lanes") else 0


_SMALL_GRIDS = [WindowGrid((3, 3), (step, step), (1, 1), (1, 1)) for step in (1, 2)]


def has_tiles() -> bool:
    """Return True if there are tiles, and the processor has their instructions."""
    return hasattr(kernels(), "convolution_gradients") and kernels().vector_width > 4


def may_train(grid: WindowGrid | None = None) -> bool:
    """Return True if the extension may be faster than torch for windows, for some sizes of the data.

    Args:
        grid: the windows; None for those of a transposed convolution.
    """
    return grid in _SMALL_GRIDS or has_tiles()


def _has_tiles_for(sizes: _Sizes) -> bool:
    """Return True if tiles may be faster than torch."""
    data, filters, grid = sizes.data, sizes.filters, sizes.grid
    if not has_tiles() or is_fast_product(data, filters, grid):
        return False
    if uses_onednn(data, grid, torch.get_num_threads()):
        return True
    is_product = grid.kernel == grid.stride == (1, 1) and sizes.weight > _MAX_PLAIN_WEIGHT * sizes.windows
    return sizes.windows * sizes.weight >= _MIN_PLAIN_WORK and not is_product


def _are_rows_for(sizes: _Sizes) -> bool:
    """Return True if products with the windows as rows are faster than tiles."""
    data, grid, threads = sizes.data, sizes.grid, torch.get_num_threads()
    if sizes.weight <= max(_SMALL_WEIGHT, _MAX_WEIGHT * sizes.windows):
        return False
    is_fast = uses_onednn(data, grid, threads) and is_fast_as_rows(data, sizes.filters, grid, threads)
    return is_fast or sizes.weight > _LARGE_WEIGHT * sizes.windows


def features(sizes: _Sizes, with_data: bool = True) -> tuple[int, ...]:
    """Return the numbers that the trees of `kernel_choice` compare: sizes, and the work that follows from them.

    Args:
        with_data: True if the gradient of the data is wanted.
    """
    grid = sizes.grid
    by_onednn = uses_onednn(sizes.data, grid, torch.get_num_threads())
    return (
        sizes.images, sizes.channels, sizes.filters, prod(grid.kernel), prod(sizes.data), sizes.windows,
        sizes.windows * sizes.weight, sizes.windows * sizes.filters, *sizes.sides, prod(grid.stride),
        prod(grid.dilate), by_onednn, with_data,
    )  # fmt: skip


def kernels_of(sizes: _Sizes) -> tuple[set[str], set[str], set[str]]:
    """Return the kernels for windows of any size that can compute the result and the gradients of data and weight."""
    grid = sizes.grid
    # with a stride, several convolutions with parts of the weight compute it
    has_data = all(min(pair) == 1 for pair in zip(grid.stride, grid.dilate, strict=True))
    return (
        {"", "tiles"} | ({"windows"} if _result_by_windows(sizes) else set()),
        {""} | ({"tiles"} if has_data else set()) | ({"windows"} if _data_by_windows(sizes) else set()),
        {"", "tiles"},
    )


def _fastest(sizes: _Sizes) -> Iterator[str]:
    """Yield the fastest of these kernels for the result and each gradient."""
    numbers = features(sizes)
    for part, names in zip(TrainingKernels._fields, kernels_of(sizes)):
        # logarithms of times over that of the tiles
        times = {"": predict(trees_of(part), numbers), "tiles": 0.0}
        if "windows" in names:
            times["windows"] = predict(trees_of(f"{part} windows"), numbers)
        # not a minimum over the set, whose order differs between processes
        yield min(filter(names.__contains__, times), key=times.__getitem__)


def _data_by_windows(sizes: _Sizes) -> bool:
    """Return True if the gradients of whole windows, which are then summed, may be faster than partly empty vectors."""
    grid = sizes.grid
    return sizes.channels < kernels().vector_width and grid.kernel != (1, 1) and grid.dilate[1] == 1


def _result_by_windows(sizes: _Sizes) -> bool:
    """Return True if the result may be faster as the gradient of another convolution's data."""
    if sizes.grid.stride != (1, 1):
        return False
    return min(sizes.turned.grid.pad) >= 0 and _data_by_windows(sizes.turned)


def _result3x3(sizes: _Sizes, computed: int) -> bool:
    """Return True if the kernel of the result of 3x3 windows is the fastest, for the number of its filters."""
    lanes, most = _lanes(), max(sizes.channels, sizes.filters)
    height, width = sizes.counts
    if not lanes or computed % lanes or height < 2 or not sizes.fill(lanes):
        return False
    numbers = height * width * max(sizes.channels * sizes.grid.stride[0] ** 2, sizes.filters)
    narrow = _MAX_NARROW if width == _TILE else _MAX_NARROW_WIDE
    return numbers <= _MAX_NUMBERS and most <= (_MAX_FILTERS if lanes > _TILE else narrow)


def _weight3x3(sizes: _Sizes) -> bool:
    """Return True if the kernel of the weight's gradient of 3x3 windows is the fastest."""
    lanes = _lanes()
    return (
        lanes > 0
        and sizes.filters % lanes == 0
        and sizes.channels % _STEP_OF_CHANNELS == 0
        and sizes.channels * sizes.filters <= _MAX_PAIRS
        and sizes.counts[1] > 1
    )


class TrainingKernels(NamedTuple):
    """Kernels that are the fastest for a convolution and its gradients: "3x3", "tiles", "rows", or "" for torch's.

    A result and the data's gradient may also be sums of overlapping "windows".
    """

    result: str
    for_data: str
    for_weight: str

    @property
    def is_ours(self) -> bool:
        """Return True if one of them is not torch's."""
        return any(self)


_TORCH, ROWS = TrainingKernels("", "", ""), TrainingKernels("rows", "rows", "rows")
"""All by torch, and all as products with windows as rows."""


def kernels3x3(sizes: _Sizes, tiles: bool) -> tuple[bool, bool, bool]:
    """Return True for the result and the gradients of data and weight by the kernels of 3x3 windows.

    Args:
        tiles: True if there are also tiles.
    """
    step = sizes.grid.stride[0]
    if (
        sizes.grid not in _SMALL_GRIDS
        or sizes.sides[0] % step
        or sizes.sides[1] % step
        or sizes.images < torch.get_num_threads()
        or sizes.windows < _MIN_POSITIONS
    ):
        return False, False, False
    by_weight = _weight3x3(sizes) and not (tiles and step > 1)
    return _result3x3(sizes, sizes.filters), _result3x3(sizes, sizes.channels), by_weight


def training_kernels(
    data: Sequence[int], filters: int, grid: WindowGrid, is_last: bool = True, with_data: bool = True
) -> TrainingKernels:
    """Return the fastest kernels for data of a shape (N, C, H, W).

    All are torch's if a function of our own is not worth its overhead.

    Args:
        is_last: True if the data is in channels_last; else it is converted.
        with_data: True if the gradient of the data is wanted.
    """
    sizes = sizes_of(data, filters, grid)
    # oneDNN, which computes gradients of gradients, writes outside of its memory for these; `conv` avoids that
    is_unsafe = sizes.channels < FEW_CHANNELS and grid.kernel == (1, 1) != grid.stride
    if min(*data, *sizes.counts) < 1 or is_unsafe:
        return _TORCH
    tiles = _has_tiles_for(sizes)
    if tiles and _are_rows_for(sizes):
        return ROWS
    by_3x3 = kernels3x3(sizes, tiles)
    if not tiles:
        # neither the gradient of the weight alone, nor one kernel of converted data, is worth a function of our own
        found = TrainingKernels(*("3x3" if is_fast else "" for is_fast in by_3x3))
        return found if found.result and is_last else _TORCH
    threads = "default" if torch.get_num_threads() > 1 else "1"
    if is_last or pays(trees_of(f"train {threads}"), features(sizes, with_data)):
        return TrainingKernels(*("3x3" if fast else name for fast, name in zip(by_3x3, _fastest(sizes))))
    return _TORCH


def transposed_kernels(data: Sequence[int], filters: int, grid: WindowGrid) -> TrainingKernels:
    """Return the fastest kernels for a transposed convolution.

    Args:
        data: shape (N, C, H, W) of the result, over which the windows are.
        filters: channels of the data.
    """
    chosen = training_kernels(data, filters, grid)
    is_matrix = not chosen.is_ours and is_fast_as_rows(data, filters, grid, torch.get_num_threads())
    return ROWS if is_matrix else chosen


def can_train(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: MaybeTensor,
    grid: WindowGrid,
    chosen: TrainingKernels,
    is_transposed: bool = False,
) -> bool:
    """Return True if `train_convolution`, or `train_deconvolution`, supports these arguments.

    Args:
        x: as for these, like the others.
    """
    tensors = (x, weight) if bias is None else (x, weight, bias)
    own, others = weight.shape[is_transposed], weight.shape[not is_transposed]
    return (
        not is_tracing()
        and weight.shape[2:] == grid.kernel
        and x.shape[1] == others
        and (bias is None or (bias.shape == (own,) and bias.is_contiguous()))
        and all(map(is_float32_cpu, tensors))
        and not torch_private.is_transformed(*tensors)
        and (chosen != ROWS or hasattr(kernels(), "unfold"))
    )


def _arguments3x3(sizes: _Sizes) -> tuple[int, ...]:
    step = sizes.grid.stride[0]
    return sizes.images, *sizes.sides, sizes.channels, sizes.filters, step, torch.get_num_threads()


def _result(
    x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, sizes: _Sizes, kernel: str
) -> torch.Tensor:
    if not kernel:
        grid = sizes.grid
        return torch.conv2d(x, in_channels_last(weight), bias, grid.stride, grid.pad, grid.dilate)
    shape = sizes.images, sizes.filters, *sizes.counts
    if kernel == "rows":
        rows = window_rows(x, sizes.grid)
        return images_of_pixels(fastest_linear(rows, weight.reshape(sizes.filters, -1), bias), shape)
    out = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
    tensors = x.data_ptr(), address(bias), out.data_ptr()
    if kernel == "windows":
        kernels().overlapping_data(*sizes.turned.arguments(), *_turned_weight(weight), *tensors)
    elif kernel == "tiles":
        kernels().convolve(*sizes.arguments(), weight.data_ptr(), *weight.stride(), *tensors)
    else:
        kernels().conv3x3(*_arguments3x3(sizes), 1, weight.data_ptr(), *weight.stride(), *tensors)
    return out


def _turned_weight(weight: torch.Tensor) -> tuple[int, ...]:
    """Return address and strides of a weight turned by 180 degrees, with channels and filters exchanged."""
    filter_, channel, row, column = weight.stride()
    height, width = weight.shape[2:]
    last = weight.data_ptr() + weight.element_size() * ((height - 1) * row + (width - 1) * column)
    return last, channel, filter_, -row, -column


def _for_data(
    grad: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, sizes: _Sizes, kernel: str
) -> torch.Tensor:
    """Return the gradient of the data, plus a bias or None."""
    shape = sizes.images, sizes.channels, *sizes.sides
    if kernel == "rows":
        pixels = pixel_rows(grad)
        rows = gradient_product(len(pixels))(pixels, weight.reshape(sizes.filters, -1).t())
        images = images_of_windows(rows, shape, sizes.grid)
        return images if bias is None else images.add_(bias.view(-1, 1, 1))
    out = torch.empty(shape, dtype=torch.float32, memory_format=torch.channels_last)
    tensors = grad.data_ptr(), address(bias), out.data_ptr()
    if kernel == "3x3":  # a convolution of the result's gradient
        arguments = sizes.images, *sizes.counts, sizes.filters, sizes.channels, 1, torch.get_num_threads()
        kernels().conv3x3(*arguments, sizes.grid.stride[0], *_turned_weight(weight), *tensors)
        return out
    compute = kernels().overlapping_data if kernel == "windows" else kernels().convolution_data
    compute(*sizes.arguments(), weight.data_ptr(), *weight.stride(), *tensors)
    return out


def _transposed(
    x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, sizes: _Sizes, kernel: str
) -> torch.Tensor:
    """Return the result of a transposed convolution: the gradient of the data of the one with these sizes."""
    if kernel:
        return _for_data(x, weight, bias, sizes, kernel)
    grid, weight = sizes.grid, in_channels_last(weight)
    return torch.conv_transpose2d(x, weight, bias, grid.stride, grid.pad, sizes.adds(), 1, grid.dilate)


def _for_weight(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, sizes: _Sizes, kernel: str, with_bias: bool
) -> tuple[torch.Tensor, MaybeTensor]:
    """Return the gradients of weight and bias."""
    if kernel == "rows":
        out, bias = weight_gradients(pixel_rows(grad), window_rows(x, sizes.grid), with_bias)
        return out.view(weight.shape), bias
    out, bias = torch.empty_like(weight), weight.new_empty(weight.shape[0]) if with_bias else None
    addresses = out.data_ptr(), *out.stride(), x.data_ptr(), grad.data_ptr(), address(bias)
    if kernel == "tiles":
        kernels().convolution_gradients(*sizes.arguments(), *addresses)
    else:
        kernels().conv3x3_gradients(*_arguments3x3(sizes), *addresses)
    return out, bias


def _in_layout(x: torch.Tensor, chosen: TrainingKernels) -> torch.Tensor:
    """Return data in the layout that the kernels read."""
    return x if chosen == ROWS else in_channels_last(x)


class _Convolution(torch.autograd.Function):
    """Autograd function of `train_convolution` and `train_deconvolution`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: MaybeTensor,
        sizes: _Sizes,
        chosen: TrainingKernels,
        is_transposed: bool,
    ) -> torch.Tensor:
        x = _in_layout(x, chosen)
        ctx.save_for_backward(x, weight)
        ctx.sizes, ctx.chosen, ctx.is_transposed = sizes, chosen, is_transposed
        if is_transposed:
            return _transposed(x, weight, bias, sizes, chosen.for_data)
        return _result(x, weight, bias, sizes, chosen.result)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[MaybeTensor, ...]:
        (grad,), (x, weight), sizes, chosen = grads, ctx.saved_tensors, ctx.sizes, ctx.chosen
        wanted = list(ctx.needs_input_grad[:3])
        gradients: list[MaybeTensor] = [None, None, None]
        if is_float32_cpu(grad) and not (torch.is_grad_enabled() or torch_private.is_transformed(grad)):
            grad, weight = in_channels_last(grad), weight.detach()
            if ctx.is_transposed:
                if wanted[0] and chosen.result:
                    gradients[0], wanted[0] = _result(grad, weight, None, sizes, chosen.result), False
                if wanted[1] and chosen.for_weight:
                    gradients[1], _ = _for_weight(grad, x, weight, sizes, chosen.for_weight, False)
                    wanted[1] = False
            else:
                if wanted[0] and chosen.for_data:
                    gradients[0], wanted[0] = _for_data(grad, weight, None, sizes, chosen.for_data), False
                if wanted[1] and chosen.for_weight:
                    gradients[1:] = _for_weight(x, grad, weight, sizes, chosen.for_weight, wanted[2])
                    wanted[1:] = False, False
            weight = in_channels_last(weight) if wanted[0] else weight
        if any(wanted):
            grid, filters, adds = sizes.grid, sizes.filters, (0, 0)
            if ctx.is_transposed:
                filters, adds = sizes.channels, sizes.adds()
            geometry = grid.stride, grid.pad, grid.dilate, ctx.is_transposed, adds, 1
            computed = torch.ops.aten.convolution_backward(grad, x, weight, [filters], *geometry, wanted)
            gradients = [
                new if is_wanted else old for new, is_wanted, old in zip(computed, wanted, gradients)
            ]
        return *gradients, None, None, None


_apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Convolution)


def train_convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: MaybeTensor, grid: WindowGrid, chosen: TrainingKernels
) -> torch.Tensor:
    """Convolve images; requires `can_train`.

    Shape:
        x: (N, C, H, W), any strides; converted to channels_last unless `chosen` is `ROWS`.
        weight: (F, C, kernel height, kernel width), any strides.
        bias: (F,).
        returns: (N, F, H', W'), in channels_last.

    Args:
        bias: summand of each filter, or None.
        chosen: those of `training_kernels`, or `ROWS`.
    """
    sizes = sizes_of(x.shape, weight.shape[0], grid)
    if torch.is_grad_enabled():
        return _apply(x, weight, bias, sizes, chosen, False)
    return _result(_in_layout(x, chosen), weight, bias, sizes, chosen.result)


def train_deconvolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: MaybeTensor,
    shape: Sequence[int],
    grid: WindowGrid,
    chosen: TrainingKernels,
) -> torch.Tensor:
    """Apply a transposed convolution to images; requires `can_train`.

    Shape:
        x: (N, F, H', W').
        weight: (F, C, kernel height, kernel width), any strides.
        bias: (C,).
        returns: (N, C, H, W), in channels_last.

    Args:
        bias: summand of each channel, or None.
        shape: that of the result.
        grid: windows over the result.
        chosen: those of `transposed_kernels` for data of the result's shape and F filters.
    """
    sizes = sizes_of(shape, weight.shape[0], grid)
    if torch.is_grad_enabled():
        return _apply(x, weight, bias, sizes, chosen, True)
    return _transposed(in_channels_last(x), weight, bias, sizes, chosen.for_data)
