"""Builders of pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...ops.contrib.resize import pooled_size
from ...ops.nn.layer_shapes import channels_last, window_size
from ...ops.nn.pool import pool_windows
from ...ops.shapes import prod
from .call import Dims, OperatorCall, Value
from .common import in_floats, move_axis


@dataclass(frozen=True)
class _PoolWindow:
    """Windows of a pooling, with one number for each spatial axis.

    Attributes:
        counts: number of elements in each window's average, (1, 1, *windows); None if sizes are unknown.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    extra: tuple[int, ...]
    up: bool
    empty: bool
    counts: np.ndarray[Any, Any] | None

    @property
    def ends(self) -> list[int]:
        """Padding at the end of each axis."""
        return [p + e for p, e in zip(self.pad, self.extra)]

    @property
    def fits(self) -> bool:
        """True if the padding is not negative, and shorter than the window on every axis, as runtimes require."""
        axes = zip(self.kernel, self.pad, self.ends)
        return min(self.extra) >= 0 and all(p < k and e < k for k, p, e in axes)


@in_floats()
def pooling(c: OperatorCall) -> Value:
    """MaxPool or AveragePool with MXNet's windows; sums are averages times the number of elements."""
    rank, last = len(c.shapes[0]), channels_last(c.a.layout)
    x = move_axis(c, c.inputs[0], rank, -1, 1) if last else c.inputs[0]
    shape = (c.shapes[0][0], c.shapes[0][-1], *c.shapes[0][1:-1]) if last else c.shapes[0]
    output = _whole(c, x, rank) if c.a.global_pool else _pooled(c, x, shape)
    return move_axis(c, output, rank, 1, -1) if last else output


def _pooled(c: OperatorCall, x: Value, shape: Dims) -> Value:
    w = _window(c, shape[2:])
    if c.a.pool_type == "max":
        return _max(c, x, w)
    if c.a.pool_type == "avg":
        return _average(c, x, w, c.a.count_include_pad is not False)
    return _root(c, _sum(c, _power(c, x), w))


def _whole(c: OperatorCall, x: Value, rank: int) -> Value:
    """Pool whole images."""
    if c.a.pool_type in ("max", "avg"):
        return c.emit("GlobalMaxPool" if c.a.pool_type == "max" else "GlobalAveragePool", x)
    return _root(c, _power(c, x).reduce("ReduceSum", *range(2, rank), keepdims=True))


def _power(c: OperatorCall, x: Value) -> Value:
    """Return the summed values: the data, or their powers for the p-norm."""
    output = x
    for _ in range(1, c.a.p_value if c.a.pool_type == "lp" else 1):
        output = output * x
    return output


def _root(c: OperatorCall, total: Value) -> Value:
    """Return the p-th root of a sum of powers; the cube root keeps the sign."""
    p = c.a.p_value if c.a.pool_type == "lp" else 1
    if p == 1:
        return total
    size = c.emit("Pow", abs(total), c.const(1 / 3)) if p == 3 else c.emit("Sqrt", total)
    return c.emit("Sign", total) * size if p == 3 else size


def _window(c: OperatorCall, spatial: Dims) -> _PoolWindow:
    a, rank = c.a, len(spatial)
    stride, pad = tuple(a.stride[:rank]) or (1,) * rank, tuple(a.pad[:rank]) or (0,) * rank
    if any(isinstance(n, str) for n in spatial):
        return _open_window(c, spatial, stride, pad)
    w = pool_windows(a, c.numbers(spatial))
    with_padding = a.count_include_pad is not False
    axes = zip(w.out, stride, w.spatial, pad)
    outside = any((o - 1) * s >= x + p * (1 + with_padding) for o, s, x, p in axes)
    counts = w.counts(with_padding, torch.ones(())).numpy()[None, None]
    return _PoolWindow(w.kernel, stride, pad, tuple(w.extra), False, outside, counts)


def _open_window(
    c: OperatorCall, spatial: Dims, stride: tuple[int, ...], pad: tuple[int, ...]
) -> _PoolWindow:
    """Return windows whose number depends on the input."""
    a = c.a
    up = a.pooling_convention == "full"
    if a.pooling_convention == "same":
        c.refuse(f"pooling_convention 'same' requires fixed sizes, but those of the data are {spatial}")
    if up and any(s > k for s, k in zip(stride, a.kernel)):
        c.refuse(
            f"pooling_convention 'full' with a stride {stride} above the kernel {a.kernel} requires fixed sizes, "
            f"but those of the data are {spatial}"
        )
    if a.pool_type == "avg" and a.count_include_pad is False and any(p >= k for p, k in zip(pad, a.kernel)):
        c.refuse(
            f"padding {pad} as long as the kernel {a.kernel} requires fixed sizes, but those of the data are {spatial}"
        )
    if up and a.pool_type in ("sum", "lp"):
        c.refuse(
            f"sums with pooling_convention 'full' require fixed sizes, but those of the data are {spatial}"
        )
    return _PoolWindow(a.kernel, stride, pad, (0,) * len(spatial), up, False, None)


def _padded(c: OperatorCall, x: Value, begins: Sequence[int], ends: Sequence[int], value: float) -> Value:
    """Pad the spatial axes, or crop their ends.

    A temporary axis keeps ONNX Runtime from fusing the Pad into the following operator, whose padding must be shorter
    than the window, and which would count or compare other elements.
    """
    if not any(begins) and not any(ends):
        return x
    pads = c.ints(0, 0, 0, *begins, 0, 0, 0, *ends)
    return c.emit("Pad", x.unsqueeze(0), pads, c.const(value)).squeeze(0)


def _max(c: OperatorCall, x: Value, w: _PoolWindow) -> Value:
    begins, ends = list(w.pad), w.ends
    drops = w.up and any(s > k - p for s, k, p in zip(w.stride, w.kernel, w.pad))
    if not w.fits or drops:
        x = _padded(c, x, begins, ends, float(np.finfo(c.dtypes[0]).min))
        begins = ends = [0] * len(w.kernel)
    return c.emit(
        "MaxPool", x, kernel_shape=w.kernel, strides=w.stride, pads=[*begins, *ends], ceil_mode=int(w.up)
    )


def _averaged(
    c: OperatorCall, x: Value, w: _PoolWindow, pads: Sequence[int], count_include_pad: bool
) -> Value:
    return c.emit(
        "AveragePool",
        x,
        kernel_shape=w.kernel,
        strides=w.stride,
        pads=pads,
        ceil_mode=int(w.up),
        count_include_pad=int(count_include_pad),
    )


def _sum(c: OperatorCall, x: Value, w: _PoolWindow) -> Value:
    """Return the sum of every window."""
    x = _padded(c, x, w.pad, w.ends, 0.0)
    return _averaged(c, x, w, [0] * 2 * len(w.kernel), False) * c.const(float(prod(w.kernel)))


def _average(c: OperatorCall, x: Value, w: _PoolWindow, with_padding: bool) -> Value:
    """Return the average of every window, not counting elements beyond the padding."""
    if w.counts is not None and (w.empty or not w.fits):
        return _sum(c, x, w) / c.const(w.counts)
    if not with_padding or not any(w.pad):
        return _averaged(c, x, w, [*w.pad, *w.ends], False)
    if not any(w.extra) and not w.up and w.fits:
        return _averaged(c, x, w, [*w.pad, *w.ends], True)
    x = _padded(c, x, w.pad, w.pad, 0.0)
    return _averaged(c, x, w, [*[0] * len(w.pad), *w.extra], False)


@in_floats()
def pooling_v1(c: OperatorCall) -> Value:
    """Old pooling: the maximum includes the padding's zeros, the average divides by the whole window."""
    x, rank = c.inputs[0], len(c.shapes[0]) - 2
    if c.a.global_pool:
        return _whole(c, x, rank + 2)
    w = _old_window(c, c.shapes[0][2:])
    if c.a.pool_type == "max":
        if any(e >= k for e, k in zip(w.extra, w.kernel)):
            c.refuse(
                "its last window is beyond the padding, where its maximum is minus infinity; ONNX has no such window"
            )
        x = _padded(c, x, w.pad, w.pad, 0.0)
        x = _padded(c, x, [0] * rank, w.extra, float(np.finfo(c.dtypes[0]).min))
        return _max(c, x, _PoolWindow(w.kernel, w.stride, (0,) * rank, (0,) * rank, False, False, None))
    if c.a.pool_type == "sum":
        return _sum(c, x, w)
    return _averaged(c, _padded(c, x, w.pad, w.ends, 0.0), w, [0] * 2 * rank, False)


def _old_window(c: OperatorCall, spatial: Dims) -> _PoolWindow:
    a, rank = c.a, len(spatial)
    stride, pad = tuple(a.stride) or (1,) * rank, tuple(a.pad) or (0,) * rank
    extra = (0,) * rank
    if a.pooling_convention == "full":
        axes = list(zip(c.numbers(spatial), a.kernel, stride, pad))
        counts = [window_size(x, k, s, p, True) for x, k, s, p in axes]
        extra = tuple(max((o - 1) * s + k - x - 2 * p, 0) for o, (x, k, s, p) in zip(counts, axes))
    return _PoolWindow(a.kernel, stride, pad, extra, False, False, None)


@in_floats()
def adaptive_avg_pooling(c: OperatorCall) -> Value:
    """GlobalAveragePool, AveragePool of equal windows, or products with the windows' shares."""
    x, size = c.inputs[0], pooled_size(c.a)
    if size == (1, 1):
        return c.emit("GlobalAveragePool", x)
    spatial = c.numbers(c.shapes[0][2:])
    if all(n % k == 0 for n, k in zip(spatial, size)):
        kernel = [n // k for n, k in zip(spatial, size)]
        return c.emit("AveragePool", x, kernel_shape=kernel, strides=kernel)
    rows, columns = (_shares(n, k) for n, k in zip(spatial, size))
    return c.emit("MatMul", c.emit("MatMul", c.const(rows), x), c.const(columns.T))


def _shares(length: int, parts: int) -> np.ndarray[Any, Any]:
    """Return the share of each element of an axis in the averages over nearly equal parts: (parts, length)."""
    output = np.zeros((parts, length))
    for i in range(parts):
        begin, end = i * length // parts, -(-(i + 1) * length // parts)
        output[i, begin:end] = 1 / (end - begin)
    return output
