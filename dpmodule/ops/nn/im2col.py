"""Windows of an image as columns, and columns added up to an image."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch.nn import functional as F

from ...base import Shape, ShapeError
from ..attrs import shape
from ..bound import bound
from ..recording import is_recorded
from ..shapes import prod
from ..spec import ROWS, Attr, Onnx, Shapes, arg
from .rules import agree, layer, per_axis, window_size

_WINDOW = {
    "kernel": Attr(shape, "window size: (w,), (h, w) or (d, h, w)"),
    "stride": Attr(shape, "step of the window; 1 on every axis if empty", ()),
    "dilate": Attr(shape, "distance between the window's elements; 1 on every axis if empty", ()),
    "pad": Attr(shape, "zeros added at both ends of each axis; none if empty", ()),
}


class _Windows:
    """The windows over one spatial shape."""

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

    def places(self, device: torch.device) -> torch.Tensor:
        """Return where in the flat padded image each element of each window lies: (prod(kernel), windows)."""
        axes = []
        for k, s, d, n in zip(self.kernel, self.stride, self.dilate, self.counts, strict=True):
            inside, start = torch.arange(k, device=device) * d, torch.arange(n, device=device) * s
            axes.append((inside, start))
        flat = torch.zeros((), dtype=torch.int64, device=device)
        rank = len(axes)
        for i, ((inside, start), size) in enumerate(zip(axes, self.padded(), strict=True)):
            one = inside.view(-1, *(1,) * (2 * rank - 1 - i)) + start.view(-1, *(1,) * (rank - 1 - i))
            flat = flat * size + one
        return flat.reshape(prod(self.kernel), -1)


_kept = lru_cache(maxsize=256)(_Windows)


def _windows(a: Any, spatial: tuple[int, ...]) -> _Windows:
    """Return the windows over a spatial shape; a compiler, which may not know its numbers, gets new ones."""
    return _Windows(a, spatial) if is_recorded() else _kept(a, spatial)


def _gather(w: _Windows, data: torch.Tensor) -> torch.Tensor:
    """Return the columns, for any number of axes."""
    sides = [p for p in reversed(w.pad) for _ in range(2)]
    flat = F.pad(data, sides).flatten(2)
    return flat[:, :, w.places(data.device)].flatten(1, 2)


def _add_up(w: _Windows, columns: torch.Tensor) -> torch.Tensor:
    """Return the image, for any number of axes."""
    places = w.places(columns.device).flatten()
    rows, channels = columns.shape[0], columns.shape[1] // prod(w.kernel)
    flat = columns.new_zeros((rows, channels, prod(w.padded())))
    out = flat.index_add(2, places, columns.reshape(rows, channels, -1)).view(rows, channels, *w.padded())
    for axis, (p, x) in enumerate(zip(w.pad, w.spatial, strict=True)):
        out = out.narrow(2 + axis, p, x)
    return out


def _im2col(a: Any, data: torch.Tensor) -> torch.Tensor:
    w = _windows(a, tuple(data.shape[2:]))
    if len(w.kernel) == 2:
        return F.unfold(data, w.kernel, w.dilate, w.pad, w.stride)
    return _gather(w, data)


def _col2im(a: Any, columns: torch.Tensor) -> torch.Tensor:
    w = _windows(a, a.output_size)
    if len(w.kernel) == 2:
        return F.fold(columns, w.spatial, w.kernel, w.dilate, w.pad, w.stride)
    return _add_up(w, columns)


def _columns_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    counts = _windows(a, data[2:]).counts
    return data[0], data[1] * prod(a.kernel), prod(counts)


def _col2im_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Check the columns against the image that `output_size` tells; both give the batch size."""
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
    return [columns], [agree("output", out, (rows, columns[1] // area, *a.output_size), columns)]


@bound(
    "im2col",
    [arg("data", ROWS)],
    _WINDOW,
    infer=layer((), lambda a, data: [], _columns_shape),
    onnx=Onnx("Conv", builder="im2col"),
)
def im2col(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Lay out the windows of an image as columns.

    Shape:
        data: (N, C, *spatial) with one, two or three spatial axes, as many as `kernel` has.
        output: (N, C * prod(kernel), windows).

    Raises:
        ShapeError: a window longer than a padded axis.

    Source: MXNet 1.9.1 `im2col`.
    """
    return partial(_im2col, a)


@bound(
    "col2im",
    [arg("data", ROWS)],
    {"output_size": Attr(shape, "spatial shape of the image: (w,), (h, w) or (d, h, w)"), **_WINDOW},
    infer=_col2im_infer,
    onnx=Onnx("ConvTranspose", builder="col2im"),
)
def col2im(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Add up columns to an image: what windows share is summed. The transpose of `im2col`.

    Shape:
        data: (N, C * prod(kernel), windows).
        output: (N, C, *output_size).

    Raises:
        ShapeError: columns that are not the windows of an image of that size.

    Source: MXNet 1.9.1 `col2im`.
    """
    return partial(_col2im, a)
