"""Convolutions, pooling, and DyNet's n-gram operations.

Images are (height, width, channels); filters (height, width, channels, filters).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..arguments import TOO_LARGE
from .native_kernels import (
    CONVOLUTION,
    OP,
    Attrs,
    NodeEngine,
    NodeLayout,
    Nodes,
    arranged,
    fits,
    plain,
    reduced,
)
from .spec import BatchCall, Dim, Dims, Grads, Operation, common_batch, declare, fail

Tensor = torch.Tensor


def _length(size: int, window: int, stride: int, is_valid: bool) -> int:
    return (size - window) // stride + 1 if is_valid else -(-size // stride)


def _padding(size: int, window: int, stride: int, is_valid: bool) -> tuple[int, int]:
    """Return the padding before and after, so that every stride has a window."""
    if is_valid:
        return 0, 0
    total = max((_length(size, window, stride, False) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def _image(dim: Dim) -> tuple[int, int, int]:
    return (dim.d[0], dim.d[1], dim.d[2] if len(dim.d) > 2 else 1)


def _conv_shape(attrs: Attrs, dims: Dims) -> Dim:
    stride, is_valid = attrs
    if len(dims[0].d) not in (2, 3) or len(dims[1].d) != 4:
        fail("conv2d", dims, "an image (H, W, C) and filters (h, w, C, F) are needed")
    height, width, channels = _image(dims[0])
    window = dims[1].d
    if window[2] != channels or is_valid and (window[0] > height or window[1] > width):
        fail("conv2d", dims, "the filters need as many channels as the image, and must not be larger than it")
    if len(dims) > 2 and dims[2].d != (window[3],):
        fail("conv2d", dims, f"the bias needs the dimensions ({window[3]},)")
    found = tuple(_length(s, w, t, is_valid) for s, w, t in zip((height, width), window, stride))
    return Dim((*found, window[3]), common_batch("conv2d", dims))


MANY = 2**20
"""Largest total size of windows for `_conv_small`; larger ones use torch's convolution."""


def _conv(call: BatchCall, x: Tensor, f: Tensor, *bias: Tensor) -> Tensor:
    stride, is_valid = call.attrs
    height, width, channels = _image(call.dims[0])
    top, bottom = _padding(height, f.shape[2], stride[0], is_valid)
    left, right = _padding(width, f.shape[3], stride[1], is_valid)
    images = x.reshape(*x.shape[:2], height, width, channels)
    images = F.pad(images, (0, 0, left, right, top, bottom))
    is_small = x.shape[0] * x.shape[1] * call.out.size * f[0, 0, ..., 0].numel() <= MANY * f.shape[-1]
    if is_small and not x.is_cuda and all(each.shape[:2] == (1, 1) for each in (f, *bias)):
        return _conv_small(call, images.flatten(0, 1), f[0, 0], *bias).view(*x.shape[:2], *call.out.d)
    images, filters = images.permute(0, 1, 4, 2, 3), f.permute(0, 1, 5, 4, 2, 3)
    if f.shape[:2] == (1, 1):
        outputs = F.conv2d(images.flatten(0, 1), filters[0, 0], stride=stride)
        outputs = outputs.reshape(*x.shape[:2], *outputs.shape[1:])
    else:
        count = max(x.shape[0], f.shape[0]), call.out.batch
        images, filters = images.expand(*count, -1, -1, -1), filters.expand(*count, -1, -1, -1, -1)
        groups = count[0] * count[1]
        images, filters = images.reshape(1, -1, *images.shape[3:]), filters.reshape(-1, *filters.shape[3:])
        outputs = F.conv2d(images, filters, None, stride, groups=groups)
        outputs = outputs.reshape(*count, -1, *outputs.shape[2:])
    outputs = outputs.permute(0, 1, 3, 4, 2)
    answer: Tensor = outputs + bias[0].reshape(*bias[0].shape[:2], 1, 1, -1) if bias else outputs
    return answer


def _conv_small(call: BatchCall, images: Tensor, f: Tensor, *bias: Tensor) -> Tensor:
    """Multiply all windows with the filters, which is faster than torch for small convolutions."""
    windows = images.unfold(1, f.shape[0], call.attrs[0][0]).unfold(2, f.shape[1], call.attrs[0][1])
    windows = windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, f[..., 0].numel())
    call.saved = windows, images.shape
    found = windows @ f.flatten(0, 2)
    return found.add_(bias[0].view(-1)) if bias else found


def _conv_grad(call: BatchCall, g: Tensor, x: Tensor, f: Tensor, *bias: Tensor) -> Grads | None:
    if call.saved is None:
        return None
    windows, shape = call.saved
    if len(g) != len(x):  # all nodes share their operands, which have one row
        g = g.sum(0, keepdim=True)
    down, right = call.attrs[0]
    rows = g.reshape(-1, f.shape[-1])
    grads = [(windows.t() @ rows).view(f.shape), *(rows.sum(0).view(each.shape) for each in bias)]
    if call.wants and not call.wants[0]:
        return [None, *grads]
    parts = (rows @ f[0, 0].flatten(0, 2).t()).view(shape[0], *call.out.d[:2], *f.shape[2:5])
    images = g.new_zeros(shape)
    for i in range(f.shape[2]):
        for j in range(f.shape[3]):
            images[:, i : i + down * call.out.d[0] : down, j : j + right * call.out.d[1] : right] += parts[
                :, :, :, i, j
            ]
    height, width, channels = _image(call.dims[0])
    top, left = (
        _padding(size, window, stride, call.attrs[1])[0]
        for size, window, stride in zip((height, width), f.shape[2:4], call.attrs[0])
    )
    return [images[:, top : top + height, left : left + width].reshape(x.shape), *grads]


def _pool_shape(attrs: Attrs, dims: Dims) -> Dim:
    window, stride, is_valid = attrs
    d = dims[0].d
    if len(d) not in (2, 3) or is_valid and (window[0] > d[0] or window[1] > d[1]):
        fail("maxpooling2d", dims, "an image (H, W, C) at least as large as the window is needed")
    found = tuple(_length(s, w, t, is_valid) for s, w, t in zip(d, window, stride))
    return Dim((*found, *d[2:]), dims[0].batch)


def _pool(call: BatchCall, x: Tensor) -> Tensor:
    window, stride, is_valid = call.attrs
    height, width, channels = _image(call.dims[0])
    # larger strides and windows have no effect, but could overflow torch's integers or the memory
    stride = [min(step, size) for step, size in zip(stride, (height, width))]
    window = [min(side, 2 * (size + step)) for side, size, step in zip(window, (height, width), stride)]
    top, bottom = _padding(height, window[0], stride[0], is_valid)
    left, right = _padding(width, window[1], stride[1], is_valid)
    images = x.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
    images = F.pad(images, (left, right, top, bottom), value=-torch.inf)
    return F.max_pool2d(images, window, stride).permute(0, 2, 3, 1).reshape(*x.shape[:2], *call.out.d)


def _kmax_shape(attrs: Attrs, dims: Dims) -> Dim:
    count, axis = attrs
    d = dims[0].d
    if not 0 <= axis < len(d) or not 1 <= count <= d[axis]:
        fail("kmax_pooling", dims, f"Bad arguments in KMaxPooling: k={count}, d={axis}")
    return Dim((*d[:axis], count, *d[axis + 1 :]), dims[0].batch)


def _kmax(call: BatchCall, x: Tensor) -> Tensor:
    count, axis = call.attrs
    order = x.sort(dim=axis + 2, descending=True, stable=True)[1]  # stable: equal on every device
    places = order.narrow(axis + 2, 0, count).sort(axis + 2)[0]
    return x.gather(axis + 2, places)


def _fold_shape(attrs: Attrs, dims: Dims) -> Dim:
    d = dims[0].d
    if len(d) > 2 or attrs[0] < 1 or d[0] % attrs[0]:
        fail("fold_rows", dims, f"the number of rows needs to be a positive multiple of {attrs[0]}")
    return Dim((d[0] // attrs[0], *d[1:]), dims[0].batch)


def _fold(call: BatchCall, x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], -1, call.attrs[0], *x.shape[3:]).sum(3)


def _filter_shape(attrs: Attrs, dims: Dims) -> Dim:
    x, f = dims[0].d, dims[1].d
    if len(x) != 2 or len(f) not in (2, 3) or f[0] != x[0] or f[1] > x[1]:
        fail("filter1d_narrow", dims, "a matrix (D, T) and filters (D, w, F) are needed")
    return Dim((f[2] if len(f) == 3 else 1, x[1] - f[1] + 1), common_batch("filter1d_narrow", dims))


def _filter(call: BatchCall, x: Tensor, f: Tensor) -> Tensor:
    f = f if f.dim() == 5 else f.unsqueeze(-1)
    windows = x.unfold(3, f.shape[3], 1)  # (N, B, D, positions, w)
    return torch.matmul(f.permute(0, 1, 4, 2, 3).flatten(3), windows.permute(0, 1, 2, 4, 3).flatten(2, 3))


def _ngram_shape(attrs: Attrs, dims: Dims) -> Dim:
    d = dims[0].d
    if len(d) != 2 or not 1 <= attrs[0] <= d[1]:
        fail("kmh_ngram", dims, f"a matrix of at least {attrs[0]} columns is needed")
    return Dim((d[0], d[1] - attrs[0] + 1), dims[0].batch)


def _ngram(call: BatchCall, x: Tensor) -> Tensor:
    return x.unfold(3, call.attrs[0], 1).sum(4)


def _circular_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[0].d != dims[1].d or len(dims[0].d) != 1:
        fail("circular convolution", dims, "two vectors of one size are needed")
    return Dim(dims[0].d, common_batch("circular convolution", dims))


def _shifted(call: BatchCall, v: Tensor, sign: int) -> Tensor:
    """Return the matrix whose row i holds v[(i + sign * k) mod n] at column k."""
    size = call.out.d[0]
    steps = torch.arange(size, device=call.device)
    return v[..., (steps[:, None] + sign * steps) % size]


def _conv_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    stride, is_valid = attrs
    return engine.slide(OP["conv2d"], args, 1, 1, *stride, is_valid) if max(stride) < TOO_LARGE else -1


def _pool_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    window, stride, is_valid = attrs
    if max(*window, *stride) >= TOO_LARGE:
        return -1
    return engine.slide(OP["maxpooling2d"], args, *window, *stride, is_valid)


def _kmax_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    if not all(0 <= each < TOO_LARGE for each in attrs):
        return -1
    return engine.kernel(OP["kmax_pooling"], attrs[0], args, 0.0, attrs[1])


def _fold_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return engine.kernel(OP["reduction"], -1, args, 0.0, attrs[0]) if 0 < attrs[0] < TOO_LARGE else -1


def _ngram_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    (length,) = attrs
    x = NodeLayout(engine, args[0])
    if len(x.d) != 2 or not 1 <= length <= x.d[1]:
        return -1
    rows, places = x.d[0], x.d[1] - length + 1
    if length * rows * places * x.batch >= TOO_LARGE:
        return -1
    loops = [(x.batch, x.size), (length, 1), (rows, x.steps[0]), (places, 1)]
    windows = arranged(engine, "kmh_ngram", args[0], loops, ((length, rows, places), x.batch))
    return reduced(engine, "sum_dim", windows, (0,), False)


def _circular(name: str, sign: int) -> Operation:
    """Declare the product of a vector and the matrix of another vector's circular shifts."""

    def run(call: BatchCall, u: Tensor, v: Tensor) -> Tensor:
        return torch.matmul(_shifted(call, v, sign), u.unsqueeze(-1)).squeeze(-1)

    def kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        u, v = args
        dims, batch = engine.dim(v)
        size = dims[0]
        is_large = size * size * batch >= TOO_LARGE
        if engine.dim(u)[0] != dims or len(dims) != 1 or not fits(engine, u, v) or is_large:
            return -1
        twice = engine.kernel(OP["concat"], 0, (v, v))
        loops = [(batch, 2 * size), (size, 1), (size, sign)]  # row i: v[i + sign * k] for all k
        table = arranged(engine, name, twice, loops, ((size, size), batch), size if sign < 0 else 0)
        return engine.kernel(OP["multiply"], 0, (table, u))

    return declare(name, _circular_shape, run, kernel=kernel)


CONV2D = declare("conv2d", _conv_shape, _conv, _conv_grad, kernel=_conv_kernel)
MAXPOOL = declare("maxpooling2d", _pool_shape, _pool, kernel=_pool_kernel)
KMAX = declare("kmax_pooling", _kmax_shape, _kmax, kernel=_kmax_kernel)
FOLD_ROWS = declare("fold_rows", _fold_shape, _fold, kernel=_fold_kernel)
FILTER1D = declare(
    "filter1d_narrow", _filter_shape, _filter, kernel=plain("conv2d", CONVOLUTION["filter1d_narrow"])
)
NGRAM = declare("kmh_ngram", _ngram_shape, _ngram, kernel=_ngram_kernel)
CIRC_CONV = _circular("circ_conv", -1)
CIRC_CORR = _circular("circ_corr", 1)
