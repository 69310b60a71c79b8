"""Enlarging of images."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...base import Shape, ShapeError
from ..attrs import choice, integer
from ..registry import op
from ..shapes import unify
from ..spec import ROWS, Attr, Env, Onnx, Shapes, Variadic, arg, param


def _bilinear_weight(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    size = 2 * a.scale - a.scale % 2
    return (data[1], 1, size, size)


def _channels(a: Any, ins: list[Shape]) -> int:
    """Return the output's channels; 0 where an input's are unknown."""
    if a.sample_type == "bilinear" or a.multi_input_mode == "sum":
        return next((s[1] for s in ins[:1] if s), 0)
    found = [s[1] if s else 0 for s in ins]
    return sum(found) if all(found) else 0


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    first = ins[0]
    if first is None:
        return ins, outs
    if len(first) != 4:
        raise ShapeError(f"the first input has shape {first}, expected 4 axes: (N, C, H, W)")
    if outs[0] and not first[0]:
        first = (outs[0][0], *first[1:])
    ins = [first, *ins[1:]]
    if a.sample_type == "bilinear":
        ins = [first, unify(ins[1], _bilinear_weight(a, first), "weight")]
    size = (first[0], _channels(a, ins), first[2] * a.scale, first[3] * a.scale)
    return ins, [unify(outs[0], size, "output")]


def _enlarge(data: torch.Tensor, factor: int) -> torch.Tensor:
    return data if factor == 1 else data.repeat_interleave(factor, 2).repeat_interleave(factor, 3)


def _bilinear(scale: int, data: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    pad = scale // 2
    return F.conv_transpose2d(data, weight, stride=scale, padding=pad, groups=data.shape[1])


@op(
    "UpSampling",
    attrs={
        "scale": Attr(integer(low=1), "factor by which the first input grows"),
        "num_filter": Attr(integer(low=0), "number of channels, for bilinear", 0),
        "sample_type": Attr(choice("bilinear", "nearest"), "interpolation"),
        "multi_input_mode": Attr(choice("concat", "sum"), "nearest: how several inputs become one", "concat"),
        "num_args": Attr(integer(low=1), "number of inputs, filled in by the call", 1),
        "workspace": Attr(integer(low=0), "accepted and ignored", 512),
    },
    variadic=Variadic(
        "arg",
        "num_args",
        ROWS,
        instead=(arg("data", ROWS), param("weight")),
        fixed=lambda a: a.sample_type == "bilinear",
    ),
    infer=_infer,
    view=True,
    onnx=Onnx(builder="upsampling"),
)
def upsampling(a: Any, env: Env, *inputs: torch.Tensor) -> torch.Tensor:
    """Enlarge images by repeating pixels, or by a transposed convolution with a bilinear weight.

    Shape:
        inputs: nearest: (N, C, H, W), brought to one size by whole factors, then joined along channels or
            summed. bilinear: data (N, C, H, W) and weight (C, 1, K, K) with ``K = 2 * scale - scale % 2``.
        output: (N, C, scale * H, scale * W); C the sum of all channels for "concat".

    Source: MXNet 1.9.1 `UpSampling`.
    """
    if a.sample_type == "bilinear":
        return _bilinear(a.scale, *inputs)
    height = inputs[0].shape[2] * a.scale
    images = [_enlarge(x, height // x.shape[2]) for x in inputs]
    if len(images) == 1:
        return images[0]
    return torch.cat(images, 1) if a.multi_input_mode == "concat" else torch.stack(images).sum(0)
