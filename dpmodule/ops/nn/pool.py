"""Pooling over one, two or three spatial axes, and the first pooling operator, for old saved graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ..._devices.device_transfer import tensor_like
from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, integer, optional, shape
from ..dtypes import HALF
from ..math.pointwise import operand_for
from ..registry import bound
from ..shapes import prod
from ..spec import ROWS, Attr, Infer, Onnx, Shapes, arg
from ..tracing import is_jit_tracing, is_tracing
from .image_layers import NO_FUNCTION, layer_row
from .layer_shapes import channels_last, layer, per_axis, through_first, to_first, to_last, window_size
from .linear import is_float32_cpu, kernels
from .relayout import in_channels_last


class _MaxPool2d(torch.autograd.Function):
    """Max pooling of channels-first data on the CPU, where torch's forward is slow but its backward is fast.

    Forward runs in channels_last; its indices are used by the channels-first backward.
    """

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, options: tuple[Any, ...]) -> torch.Tensor:
        out: torch.Tensor
        out, indices = torch.ops.aten.max_pool2d_with_indices(in_channels_last(data), *options)
        ctx.options = options
        ctx.save_for_backward(data, indices.contiguous())
        return out.contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        data, indices = ctx.saved_tensors
        back = torch.ops.aten.max_pool2d_with_indices_backward
        return back(grads[0].contiguous(), data, *ctx.options, indices), None


_apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_MaxPool2d)
_MIN_COMPARED = {False: 2**13, True: 2**16}
"""Numbers in all windows from which channels_last is faster, the copies included: without and with a gradient."""


def _max_pool2d(
    data: torch.Tensor,
    kernel_size: tuple[int, ...],
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """Run `torch.max_pool2d`, in channels_last if its CPU kernel is several times as fast."""
    is_other = is_jit_tracing() or torch_private.is_transformed(data)
    if data.device.type != "cpu" or data.dim() != 4 or is_other:
        return torch.max_pool2d(data, kernel_size, stride, padding, dilation, ceil_mode)
    pairs = [v if isinstance(v, tuple) else (v, v) for v in (stride, padding, dilation)]
    recorded = data.requires_grad and torch.is_grad_enabled()
    if pairs[2] == (1, 1) and not recorded and _fits_native(data):
        result = _native_pool("max", data, tuple(kernel_size), pairs[0], pairs[1], ceil_mode)
        if result is not None:
            return result
    is_large = data.numel() * prod(kernel_size) >= _MIN_COMPARED[recorded] * prod(pairs[0])
    if is_large and data.shape[1] > 1 and data.is_contiguous():
        if recorded:
            return _apply(data, (tuple(kernel_size), *pairs, ceil_mode))
        data = in_channels_last(data)
    return torch.max_pool2d(data, kernel_size, stride, padding, dilation, ceil_mode)


_MAX: dict[int, Callable[..., torch.Tensor]] = {1: torch.max_pool1d, 2: _max_pool2d, 3: torch.max_pool3d}


def _avg_pool3d(data: torch.Tensor, *options: Any, **named: Any) -> torch.Tensor:
    """Average windows of volumes; torch has no half-precision kernel for them on the CPU."""
    if data.dtype in HALF and data.device.type == "cpu":
        return F.avg_pool3d(data.float(), *options, **named).to(data.dtype)
    return F.avg_pool3d(data, *options, **named)


_AVG: dict[int, Callable[..., torch.Tensor]] = {2: F.avg_pool2d, 3: _avg_pool3d}


def _sizes(a: Any, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """Return the output's spatial shape; unknown dimensions (0) stay unknown."""
    if a.global_pool:
        return (1,) * len(spatial)
    rank = len(spatial)
    if len(a.kernel) != rank:
        raise ShapeError(f"kernel is {a.kernel}, expected {rank} values: one per spatial axis of the data")
    # MXNet ignores values beyond the kernel's number of axes
    stride, pad = per_axis(a.stride[:rank], rank, 1, "stride"), per_axis(a.pad[:rank], rank, 0, "pad")
    axes = zip(spatial, a.kernel, stride, pad, strict=True)
    if a.pooling_convention == "same":
        if any(pad):
            raise ShapeError(f"pad is {a.pad}, expected none with pooling_convention='same'")
        return tuple(-(-x // s) for x, _, s, _ in axes)
    return tuple(window_size(x, k, s, p, a.pooling_convention == "full") for x, k, s, p in axes)


def _output(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    last = channels_last(a.layout)
    if len(data) not in (3, 4, 5):
        raise ShapeError(f"data has shape {data}, expected 3, 4 or 5 axes")
    moved = to_first(data, last)
    return to_last((*moved[:2], *_sizes(a, moved[2:])), last)


def _infer() -> Infer:
    """Return the shape rule, which also checks the consistency of the attributes."""
    rule = layer((), lambda a, data: [], _output)

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        if a.pool_type == "lp" and a.p_value not in (1, 2, 3):
            raise OpError(f"p_value is {a.p_value}, expected 1, 2 or 3 for pool_type='lp'")
        return rule(a, ins, outs)

    return infer


class PoolWindows:
    """Pooling windows of given attributes over a spatial shape.

    Attributes:
        kernel, stride, pad: one value per axis.
        out: number of windows per axis.
        extra: elements to add after the padded axis for the last window; negative if "same" needs fewer windows
            than fit.
    """

    __slots__ = ("convention", "extra", "kernel", "out", "pad", "spatial", "stride")

    def __init__(self, a: Any, spatial: tuple[int, ...]) -> None:
        rank = len(spatial)
        self.convention = a.pooling_convention
        self.spatial = spatial
        self.kernel = a.kernel
        self.out = _sizes(a, spatial)
        self.stride = a.stride[:rank] or (1,) * rank
        self.pad = a.pad[:rank] or (0,) * rank
        axes = zip(self.out, self.stride, self.kernel, spatial, self.pad, strict=True)
        extra = [(o - 1) * s + k - x - 2 * p for o, s, k, x, p in axes]
        self.extra = extra if self.convention == "same" else [max(e, 0) for e in extra]

    def supported_by_torch(self) -> bool:
        """Return True if torch's own padding and ceil mode give these windows.

        torch allows padding up to half the kernel; its ceil mode drops a window that starts after the data.
        """
        if self.convention == "same" or any(2 * p > k for p, k in zip(self.pad, self.kernel, strict=True)):
            return False
        axes = zip(self.out, self.stride, self.spatial, self.pad, strict=True)
        return self.convention == "valid" or all((o - 1) * s < x + p for o, s, x, p in axes)

    def padded(self, data: torch.Tensor, value: float) -> torch.Tensor:
        """Return the data padded with `value`, so that all windows are inside."""
        sides: list[int] = []
        for p, e in zip(reversed(self.pad), reversed(self.extra), strict=True):
            sides += [p, p + e]
        return F.pad(data, sides, value=value) if any(sides) else data

    def counts(self, with_padding: bool, like: torch.Tensor) -> torch.Tensor:
        """Return the number of elements that each window averages."""
        total = like.new_ones(())
        axes = zip(self.out, self.stride, self.kernel, self.spatial, self.pad, strict=True)
        for o, s, k, x, p in axes:
            starts = [i * s - p for i in range(o)]
            if with_padding:
                lengths = [min(b + k, x + p) - b for b in starts]
            else:
                lengths = [min(b + k, x) - max(b, 0) for b in starts]
            total = total.unsqueeze(-1) * tensor_like(like, [max(n, 0) for n in lengths])
        return total.clamp_(min=1)


_cached_windows = lru_cache(maxsize=256)(PoolWindows)


def pool_windows(a: Any, spatial: tuple[int, ...]) -> PoolWindows:
    """Return the windows over a spatial shape, cached except under a compiler, where sizes may be symbolic."""
    return PoolWindows(a, spatial) if is_tracing() else _cached_windows(a, spatial)


def _global_pool(a: Any, data: torch.Tensor) -> torch.Tensor:
    axes = tuple(range(2, data.dim()))
    if a.pool_type == "max":
        return _MAX[len(axes)](data, data.shape[2:])
    if a.pool_type == "avg":
        if data.dtype in HALF:  # a sum might overflow
            return data.mean(axes, keepdim=True)
        # unlike the mean's, this gradient is an expanded small tensor, without a memory layout that could mismatch
        return data.sum(axes, keepdim=True) / operand_for(data, prod(data.shape[2:]))
    p = _exponent(a)
    return _root(_power(data, p).sum(axes, keepdim=True), p)


def _torch_has_windows(a: Any) -> bool:
    """Return True if torch supports the windows for any data size."""
    small = all(2 * p <= k for p, k in zip(a.pad, a.kernel, strict=False))
    return a.pooling_convention == "valid" and len(a.kernel) in _MAX and small


def _max(a: Any, data: torch.Tensor) -> torch.Tensor:
    window = pool_windows(a, data.shape[2:])
    pool = _MAX[len(window.kernel)]
    if window.supported_by_torch():
        return pool(data, window.kernel, window.stride, window.pad, 1, any(window.extra))
    return pool(window.padded(data, torch.finfo(data.dtype).min), window.kernel, window.stride)


def _sum(window: PoolWindows, data: torch.Tensor) -> torch.Tensor:
    """Return the sum of every window."""
    data = window.padded(data, 0.0)
    if len(window.kernel) == 1:
        out = F.avg_pool2d(data.unsqueeze(2), (1, *window.kernel), (1, *window.stride), divisor_override=1)
        return out.squeeze(2)
    return _AVG[len(window.kernel)](data, window.kernel, window.stride, divisor_override=1)


def _average(a: Any, data: torch.Tensor) -> torch.Tensor:
    window = pool_windows(a, data.shape[2:])
    with_padding = a.count_include_pad is not False
    pool = _AVG.get(len(window.kernel))
    if len(window.kernel) == 3 and any(k > x for k, x in zip(window.kernel, window.spatial, strict=True)):
        pool = None  # torch requires unpadded data at least as long as the window
    if pool is not None and window.supported_by_torch():
        options = window.kernel, window.stride, window.pad, any(window.extra), with_padding
        result = _native_average(data, options) if len(window.kernel) == 2 and _fits_native(data) else None
        return pool(data, *options) if result is None else result
    return _sum(window, data) / window.counts(with_padding, data)


def _exponent(a: Any) -> int:
    """Return the exponent of the p-norm; a sum is the norm for 1 without absolute values."""
    return 1 if a.pool_type == "sum" else int(a.p_value)


def _power(data: torch.Tensor, p: int) -> torch.Tensor:
    return data if p == 1 else data.pow(p)


def _root(total: torch.Tensor, p: int) -> torch.Tensor:
    """Return the p-th root; the cube root keeps the sign."""
    if p == 1:
        return total
    return total.sqrt() if p == 2 else total.sign() * total.abs().pow(1 / 3)


def _windows(a: Any, data: torch.Tensor) -> torch.Tensor:
    """Return the sum or p-norm of every window."""
    window, p = pool_windows(a, data.shape[2:]), _exponent(a)
    return _root(_sum(window, _power(data, p)), p)


@bound(
    "Pooling",
    [arg("data", ROWS)],
    {
        "kernel": Attr(shape, "window size: (w,), (h, w) or (d, h, w); not needed with global_pool", ()),
        "pool_type": Attr(choice("avg", "lp", "max", "sum"), "reduction of each window", "max"),
        "global_pool": Attr(boolean, "one window over all; kernel, stride and pad are ignored", False),
        "cudnn_off": Attr(boolean, "accepted and ignored", False),
        "pooling_convention": Attr(
            choice("full", "same", "valid"),
            "number of windows: those that fit (valid), with a partial last window (full), or one per stride (same)",
            "valid",
        ),
        "stride": Attr(shape, "step of the window; 1 on every axis if empty", ()),
        "pad": Attr(shape, "elements added at both ends of each axis; 0 if empty", ()),
        "p_value": Attr(optional(integer()), "exponent of lp: 1, 2 or 3", None),
        "count_include_pad": Attr(optional(boolean), "avg: count the padding; None means True", None),
        "layout": Attr(
            optional(choice("NCDHW", "NCHW", "NCW", "NDHWC", "NHWC", "NWC")),
            "order of the data's axes; channels second if None",
            None,
        ),
    },
    hidden=lambda a: int(a.pool_type == "max" and bool(a.kernel) and not channels_last(a.layout)),
    infer=_infer(),
    onnx=Onnx(builder="pooling"),
)
def pooling(a: Any) -> Callable[..., torch.Tensor]:
    """Return the maximum, average, sum or p-norm of each window.

    The p-norm is ``sum(x ** p) ** (1 / p)``, without absolute values. Padding is the lowest number for the
    maximum and zero otherwise; an average counts the padding, but not the part of a window beyond it.

    Shape:
        data: (N, C, *spatial) with one, two or three spatial axes; channels-last layouts have C last.
        output: (N, C, *sizes), each ``floor((x + 2 * pad - kernel) / stride) + 1``, with ``ceil`` for "full",
            ``ceil(x / stride)`` for "same", 1 for global_pool.

    Source: MXNet 1.9.1 `Pooling`, whose "same" convention raises for every input.
    """
    if a.global_pool:
        call = partial(_global_pool, a)
    elif a.pool_type == "max" and _torch_has_windows(a):
        rank = len(a.kernel)
        stride, pad = a.stride[:rank] or 1, a.pad[:rank] or 0
        call = partial(_MAX[rank], kernel_size=a.kernel, stride=stride, padding=pad)
    else:
        call = partial({"max": _max, "avg": _average}.get(a.pool_type, _windows), a)
    return through_first(call, 1) if channels_last(a.layout) else call


# Pooling of images by the native extension: averages, and maxima without gradient.
#
# torch's averages take ten times as long, and its maxima three to five times, since it always records their indices.

Pair = tuple[int, ...]

_MIN_CHANNELS = 8
"""Channels below which vectors of data in channels_last are too empty."""
_MIN_NUMBERS = 2**13
"""Numbers of the images below which torch's overhead is smaller."""
_MIN_COLUMNS = 4
"""Windows in a row below which vectors of data in the usual layout are too empty."""
_MAX_LINE = 2048
"""Most numbers in the kernel's line of memory."""


def _fits_native(data: torch.Tensor) -> bool:
    """Return True if the kernel exists for these images, and they are large enough."""
    return (
        not is_tracing()
        and is_float32_cpu(data)
        and data.dim() == 4
        and data.numel() >= _MIN_NUMBERS
        and hasattr(kernels(), "run_layers")
        and not torch_private.is_transformed(data)
    )


def _native_pool(
    kind: str,
    data: torch.Tensor,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    full: bool,
    with_padding: bool = False,
) -> torch.Tensor | None:
    """Return the maximum, propagating NaN, or the average of each window; None where torch's kernel is as fast.

    Shape:
        data: (N, C, H, W), float32 on the CPU, any strides.
        returns: (N, C, H', W'), in the layout of the data.

    Args:
        kind: "max" or "mean".
        pad: at most half of the kernel.
        full: allow a partial window at the end, if it starts inside the image or the padding before it.
        with_padding: averages count the padding.
    """
    is_usual = data.is_contiguous() or not data.is_contiguous(memory_format=torch.channels_last)
    found = _pooling_row(kind, data.shape, kernel, stride, pad, full, with_padding, is_usual)
    if found is None:
        return None
    row, shape, layout = found
    data, result = (
        data.contiguous(memory_format=layout),
        torch.empty(shape, dtype=torch.float32, memory_format=layout),
    )
    kernels().run_layers(row, torch.get_num_threads(), 0, data.data_ptr(), result.data_ptr())
    return result


@lru_cache(maxsize=256)
def _pooling_row(
    kind: str,
    shape: Pair,
    kernel: Pair,
    stride: Pair,
    pad: Pair,
    full: bool,
    with_padding: bool,
    is_usual: bool,
) -> tuple[bytes, Pair, torch.memory_format] | None:
    """Return the kernel's arguments, shape and layout of the result for a shape of the data; None as `_native_pool`."""
    images, channels, *sizes = shape
    axes = []
    for x, k, step, p in zip(sizes, kernel, stride, pad, strict=True):
        count = window_size(x, k, step, p, full)
        axes.append((x, count - (full and (count - 1) * step >= x + p), k, step, 1, p))
    rows, columns = axes[0][1], axes[1][1]
    counts, gaps = (images, channels, channels, 1), (channels, 0, channels)
    layout = torch.channels_last
    if channels < _MIN_CHANNELS or is_usual:
        x, _, k, step, _, p = axes[1]
        if columns < _MIN_COLUMNS or max((columns + k // step + 9) * step, x + p + 16) > _MAX_LINE:
            return None
        kind, counts, gaps = f"{kind}_rows", (images * channels, 1, 1, 1), (1, 0, 1)
        layout = torch.contiguous_format
    elif kind == "mean":
        return None
    row = layer_row(kind, counts, axes, int(with_padding), NO_FUNCTION, gaps, (1, 0, 0, 0, 2))
    return row, (images, channels, rows, columns), layout


_MIN_AVERAGED = 2**15
"""Numbers in all windows below which torch is faster in training, since its gradient needs no Python."""


_MAX_PARTS = 4
"""Numbers of a window up to which writing each of its positions in all images is faster than repeating numbers."""


def _spread(parts: torch.Tensor, shape: Pair, kernel: Pair) -> torch.Tensor | None:
    """Return images of windows side by side, each of equal numbers, with zeros after them; None if they do not fit."""
    height, width = (count * k for count, k in zip(parts.shape[2:], kernel, strict=True))
    below, right = shape[2] - height, shape[3] - width
    if min(below, right) < 0:
        return None
    if prod(kernel) > _MAX_PARTS:
        found = parts.repeat_interleave(kernel[1], 3).repeat_interleave(kernel[0], 2)
        return F.pad(found, (0, right, 0, below)) if below or right else found
    found = parts.new_zeros(shape)
    for row, column in product(*map(range, kernel)):
        found[:, :, row : height : kernel[0], column : width : kernel[1]] = parts
    return found


class _AvgPool2d(torch.autograd.Function):
    """Autograd function of the finished averages of windows, with the options of `_native_pool`, and the data.

    Only the shape of the data is kept. Where windows of a gradient, or equal parts, make up the data's gradient, it is
    not computed by torch, whose kernel is as slow as that of the averages.
    """

    @staticmethod
    def forward(ctx: Any, done: tuple[torch.Tensor, tuple[Any, ...]], data: torch.Tensor) -> torch.Tensor:
        out, ctx.options = done
        ctx.shape = data.shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad, shape = grads[0].contiguous(), ctx.shape
        kernel, stride, pad, full, with_padding = ctx.options
        found = None
        if _fits_native(grad) and not torch.is_grad_enabled():
            if stride == (1, 1) and not full and (with_padding or not any(pad)):
                rest = tuple(k - 1 - p for k, p in zip(kernel, pad, strict=True))
                if all(2 * p <= k for p, k in zip(rest, kernel, strict=True)):
                    found = _native_pool("mean", grad, kernel, stride, rest, False, True)
            elif stride == kernel and not any(pad):
                found = _spread(grad / prod(kernel), shape, kernel)
        if found is None:
            data = grad.new_empty(shape)  # of which torch reads the shape alone
            found = torch.ops.aten.avg_pool2d_backward(grad, data, *ctx.options, None)
        return None, found


_apply_average: Callable[..., torch.Tensor] = torch_private.autograd_apply(_AvgPool2d)


def _native_average(data: torch.Tensor, options: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the average of each window; None where torch is as fast.

    Args:
        options: those of `_native_pool`.
    """
    if not (data.requires_grad and torch.is_grad_enabled()):
        return _native_pool("mean", data, *options)
    kernel, stride = options[:2]
    if data.numel() * prod(kernel) < _MIN_AVERAGED * prod(stride):
        return None
    result = _native_pool("mean", data.detach(), *options)
    return None if result is None else _apply_average((result, options), data)


def _windows_v1(a: Any, spatial: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Return (windows, kernel, stride, pad) for each axis; 0 windows where the size is unknown."""
    rank = len(spatial)
    if a.global_pool:
        return [(1, x, 1, 0) for x in spatial]
    if len(a.kernel) != rank:
        raise ShapeError(f"kernel is {a.kernel}, expected {rank} values: one per spatial axis of the data")
    strides, pads = per_axis(a.stride, rank, 1, "stride"), per_axis(a.pad, rank, 0, "pad")
    axes = zip(spatial, a.kernel, strides, pads, strict=True)
    return [(window_size(x, k, s, p, a.pooling_convention == "full"), k, s, p) for x, k, s, p in axes]


def _output_v1(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    if len(data) not in (4, 5):
        raise ShapeError(f"data has shape {data}, expected 4 or 5 axes")
    return (*data[:2], *(windows for windows, *_ in _windows_v1(a, data[2:])))


def _pool_v1(a: Any, data: torch.Tensor) -> torch.Tensor:
    axes = _windows_v1(a, tuple(data.shape[2:]))
    kernel, stride = [k for _, k, _, _ in axes], [s for _, _, s, _ in axes]
    pads, extra = [], []
    for x, (o, k, s, p) in zip(reversed(data.shape[2:]), reversed(axes), strict=True):
        pads += [p, p]
        extra += [0, max((o - 1) * s + k - x - 2 * p, 0)]
    data = F.pad(data, pads)
    if a.pool_type == "max":
        data = F.pad(data, extra, value=-float("inf"))
        return (torch.max_pool2d if len(axes) == 2 else torch.max_pool3d)(data, kernel, stride)
    average = F.avg_pool2d if len(axes) == 2 else F.avg_pool3d
    size = 1 if a.pool_type == "sum" else prod(kernel)
    return average(F.pad(data, extra), kernel, stride, divisor_override=size)


@bound(
    "Pooling_v1",
    [arg("data", ROWS)],
    {
        "kernel": Attr(shape, "window size: (h, w) or (d, h, w); not needed with global_pool", ()),
        "pool_type": Attr(choice("avg", "max", "sum"), "reduction of each window", "max"),
        "global_pool": Attr(boolean, "one window over all; kernel, stride and pad are ignored", False),
        "pooling_convention": Attr(
            choice("full", "valid"),
            "number of windows: those that fit (valid), or with a partial last window (full)",
            "valid",
        ),
        "stride": Attr(shape, "step of the window; 1 on every axis if empty", ()),
        "pad": Attr(shape, "zeros added at both ends of each axis; 0 if empty", ()),
    },
    infer=layer((), lambda a, data: [], _output_v1),
    onnx=Onnx(builder="pooling_v1"),
)
def pooling_v1(a: Any) -> Callable[..., torch.Tensor]:
    """Return the maximum, average or sum of each window, with zero padding.

    Unlike `Pooling`, the maximum includes the padding's zeros, and an average always divides by the whole window.

    Shape:
        data: (N, C, H, W) or (N, C, D, H, W).
        output: (N, C, *sizes).

    Source: MXNet 1.9.1 `Pooling_v1`.
    """
    return partial(_pool_v1, a)
