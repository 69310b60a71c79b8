"""Convolution and transposed convolution over one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, choice, integer, optional, shape
from ..registry import bound
from ..spec import ROWS, Attr, Onnx, Shapes, arg, param
from .layer_shapes import (
    channels_last,
    grouped_channels,
    kernel_rank,
    layer,
    per_axis,
    through_first,
    to_first,
    to_last,
    window_size,
)
from .linear import is_float32_cpu
from .unfold import WINDOW, WindowGrid, uses_onednn, window_grid

FEW_CHANNELS = 16
"""Elements of the widest vector."""


def _params(a: Any, data: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes of weight and bias."""
    channels, last = grouped_channels(a, data), channels_last(a.layout)
    return [to_last((a.num_filter, channels // a.num_group, *a.kernel), last), (a.num_filter,)]


def _windows(a: Any, data: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Return length, step and padding of the windows along each axis."""
    rank = kernel_rank(a, data)
    lengths = [d * (k - 1) + 1 for k, d in zip(a.kernel, per_axis(a.dilate, rank, 1, "dilate"), strict=True)]
    return zip(lengths, per_axis(a.stride, rank, 1, "stride"), per_axis(a.pad, rank, 0, "pad"), strict=True)


def _output(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    last = channels_last(a.layout)
    axes = zip(to_first(data, last)[2:], _windows(a, data), strict=True)
    return to_last((data[0], a.num_filter, *(window_size(x, *window) for x, window in axes)), last)


_forward = layer(("weight", "bias"), _params, _output)


def _input_size(size: int, out: int, window: int, step: int, pad: int) -> int:
    """Return the data's size along an axis, inferred from the output if unknown and the stride is 1."""
    if size or not out or step > 1:
        return size
    if out + window - 1 < 2 * pad:
        raise ShapeError(f"an output of size {out} is too small for pad {pad} and window size {window}")
    return out + window - 1 - 2 * pad


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer layer shapes, and unknown spatial sizes of the data from the output if the stride is 1."""
    data, out = ins[0], outs[0]
    if data and out and 0 in data and len(out) == len(data):
        last = channels_last(a.layout)
        first = to_first(data, last)
        axes = zip(first[2:], to_first(out, last)[2:], _windows(a, data), strict=True)
        sizes = [_input_size(size, made, *window) for size, made, window in axes]
        ins = [to_last((*first[:2], *sizes), last), *ins[1:]]
    return _forward(a, ins, outs)


def _attributes(rows: str, workspace: int, no_bias: bool) -> dict[str, Attr]:
    """Return the attributes of both layers that follow those of windows; `rows` are the first axis of the weight."""
    return {
        "num_filter": Attr(integer(low=1), "number of output channels"),
        "num_group": Attr(integer(low=1), "number of groups the channels are split into", 1),
        "workspace": Attr(integer(low=0), "accepted and ignored", workspace),
        "no_bias": Attr(boolean, "omit the bias", no_bias),
        "cudnn_tune": Attr(
            optional(choice("fastest", "limited_workspace", "off")), "accepted and ignored", None
        ),
        "cudnn_off": Attr(boolean, "accepted and ignored", False),
        "layout": Attr(
            optional(choice("NCDHW", "NCHW", "NCW", "NDHWC", "NHWC", "NWC")),
            f"order of the axes of data and weight, where N means the {rows} of weight; channels second if None",
            None,
        ),
    }


@bound(
    "Convolution",
    [arg("data", ROWS), param("weight"), param("bias", when=lambda a: not a.no_bias)],
    {**WINDOW, **_attributes("filters", workspace=1024, no_bias=False)},
    aliases=["Convolution_v1"],
    infer=_infer,
    onnx=Onnx("Conv", builder="convolution"),
)
def convolution(a: Any) -> Callable[..., torch.Tensor]:
    """Convolve the data with `num_filter` filters (cross-correlation).

    Shape:
        data: (N, C, *spatial) with one, two or three spatial axes, as many as `kernel` has; channels-last
            layouts have C last.
        weight: (num_filter, C / num_group, *kernel); (num_filter, *kernel, C / num_group) in channels-last
            layouts.
        bias: (num_filter,).
        output: (N, num_filter, *sizes), each ``(x + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1``.

    Source: MXNet 1.9.1 `Convolution`, whose CPU build has no channels-last layouts.
    """
    call = partial(
        getattr(torch, f"conv{kernel_rank(a)}d"),
        stride=a.stride or 1,
        padding=a.pad or 0,
        dilation=a.dilate or 1,
        groups=a.num_group,
    )
    if a.kernel == (1, 1) and prod(a.stride) > 1 and not any(a.pad):
        call = partial(_strided_1x1, call, window_grid(a))
    return through_first(call, 2) if channels_last(a.layout) else call


def _strided_1x1(
    call: Callable[..., torch.Tensor], grid: WindowGrid, x: torch.Tensor, *rest: torch.Tensor
) -> torch.Tensor:
    """Apply filters of 1x1 with a stride.

    The values that are read are picked first in the usual layout, where oneDNN takes up to five times as long, and of
    few channels: the gradient of the weight that oneDNN of torch 2.13 computes for less than a vector of them in
    channels_last writes outside of its memory. For single small images torch does not use oneDNN.
    """
    if x.shape[1] >= FEW_CHANNELS and not (x.is_cpu and x.is_contiguous()):
        return call(x, *rest)
    is_grouped = rest[0].shape[1] != x.shape[1]
    if is_float32_cpu(x) and not is_grouped and not uses_onednn(x.shape, grid, torch.get_num_threads()):
        return call(x, *rest)
    rows, columns = grid.stride
    return call(x[:, :, ::rows, ::columns], *rest, stride=1)


def _deconv_params(a: Any, data: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the shapes of weight and bias."""
    channels, last = grouped_channels(a, data), channels_last(a.layout)
    return [to_last((channels, a.num_filter // a.num_group, *a.kernel), last), (a.num_filter,)]


def _full_sizes(a: Any, spatial: tuple[int, ...]) -> list[int]:
    """Return the output's sizes before cropping; unknown dimensions (0) stay unknown."""
    rank = len(spatial)
    steps, dilate = per_axis(a.stride, rank, 1, "stride"), per_axis(a.dilate, rank, 1, "dilate")
    axes = zip(spatial, a.kernel, steps, dilate, strict=True)
    return [x and s * (x - 1) + d * (k - 1) + 1 for x, k, s, d in axes]


def pads_and_adds(a: Any, spatial: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding to crop from both ends of each axis, and the size to add at its end.

    A target shape determines both: half of the surplus is cropped, rounded up.
    """
    rank = len(spatial)
    pads, adds = per_axis(a.pad, rank, 0, "pad"), per_axis(a.adj, rank, 0, "adj")
    if any(a.target_shape):
        target = per_axis(a.target_shape, rank, 0, "target_shape")
        surplus = [w - t if w else 0 for w, t in zip(_full_sizes(a, spatial), target, strict=True)]
        if min(surplus) < 0 or min(target) < 1:
            raise ShapeError(
                f"target_shape is {target}, expected 1 to {tuple(_full_sizes(a, spatial))} for data {spatial}"
            )
        pads, adds = tuple((s + 1) // 2 for s in surplus), tuple(s % 2 for s in surplus)
    steps = per_axis(a.stride, rank, 1, "stride")
    if any(n >= s for n, s in zip(adds, steps, strict=True)):
        raise ShapeError(f"adj is {adds}, expected less than the stride {steps} on every axis")
    return pads, adds


def deconvolved(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the output for data of a shape."""
    last = channels_last(a.layout)
    spatial = to_first(data, last)[2:]
    pads, adds = pads_and_adds(a, spatial)
    whole = _full_sizes(a, spatial)
    sizes = [w and w - 2 * p + n for w, p, n in zip(whole, pads, adds, strict=True)]
    if any(w and size < 1 for w, size in zip(whole, sizes, strict=True)):
        raise ShapeError(f"pad is {pads}, which makes the output of data {data} empty")
    return to_last((data[0], a.num_filter, *sizes), last)


def _conv_transpose(
    function: Callable[..., torch.Tensor], a: Any, data: torch.Tensor, *rest: torch.Tensor
) -> torch.Tensor:
    """Run torch's transposed convolution with the sizes of `pads_and_adds`, which satisfy torch's restrictions."""
    pads, adds = pads_and_adds(a, tuple(data.shape[2:]))
    sizes = {"stride": a.stride or 1, "padding": pads, "output_padding": adds, "dilation": a.dilate or 1}
    return function(data, *rest, groups=a.num_group, **sizes)


@bound(
    "Deconvolution",
    [arg("data", ROWS), param("weight"), param("bias", when=lambda a: not a.no_bias)],
    {
        "kernel": WINDOW["kernel"],
        "stride": Attr(shape, "distance between the windows in the output; 1 on every axis if empty", ()),
        "dilate": WINDOW["dilate"],
        "pad": Attr(shape, "elements cropped from both ends of each axis; 0 if empty", ()),
        "adj": Attr(shape, "elements added at the end of each axis, less than stride; 0 if empty", ()),
        "target_shape": Attr(shape, "spatial shape of the output, which determines pad and adj", ()),
        **_attributes("channels", workspace=512, no_bias=True),
    },
    infer=layer(("weight", "bias"), _deconv_params, deconvolved),
    onnx=Onnx("ConvTranspose", builder="deconvolution"),
)
def deconvolution(a: Any) -> Callable[..., torch.Tensor]:
    """Apply a transposed convolution with `num_filter` filters.

    Shape:
        data: (N, C, *spatial) with one, two or three spatial axes, as many as `kernel` has; channels-last
            layouts have C last.
        weight: (C, num_filter / num_group, *kernel); (C, *kernel, num_filter / num_group) in channels-last
            layouts.
        bias: (num_filter,), only with no_bias=False.
        output: (N, num_filter, *sizes), each ``stride * (x - 1) + dilate * (kernel - 1) + 1 - 2 * pad + adj``,
            or target_shape.

    Raises:
        ShapeError: the target shape is impossible, or adj is not below stride.

    Source: Zeiler et al., "Deconvolutional networks", 2010; MXNet 1.9.1 `Deconvolution`, whose CPU build has
    neither channels-last layouts nor dilation in three dimensions.
    """
    call = partial(_conv_transpose, getattr(torch, f"conv_transpose{kernel_rank(a)}d"), a)
    return through_first(call, 2) if channels_last(a.layout) else call
