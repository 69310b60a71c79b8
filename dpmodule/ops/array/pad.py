"""Padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...base import OpError, Shape
from ..attrs import choice, real, shape
from ..bound import bound
from ..shapes import output_shape
from ..spec import ROWS, Attr, Onnx, Shapes, arg


def _check(a: Any, dims: tuple[int, ...]) -> None:
    width, expected = a.pad_width, 2 * len(dims)
    if len(width) != expected or min(width) < 0 or any(width[:4]) or len(dims) < 3:
        raise OpError(
            f"Pad: pad_width is {width} for data {dims}, expected {expected} numbers from 0, a pair for each "
            "of at least 3 axes, the pairs of the first two axes (0, 0)"
        )
    if a.mode == "reflect" and any(max(width[2 * i : 2 * i + 2]) >= d > 0 for i, d in enumerate(dims)):
        raise OpError(
            f"Pad: pad_width is {width}, but reflection reaches at most one less than the size of data {dims}"
        )


def _infer_pad(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None:
        return ins, outs
    _check(a, ins[0])
    found = tuple(d and d + a.pad_width[2 * i] + a.pad_width[2 * i + 1] for i, d in enumerate(ins[0]))
    return ins, [output_shape(outs[0], found)]


@bound(
    "Pad",
    [arg("data", ROWS)],
    {
        "mode": Attr(choice("constant", "edge", "reflect"), "what to put there"),
        "pad_width": Attr(
            shape, "elements before and after, a pair for each axis; the first two pairs are 0"
        ),
        "constant_value": Attr(real, "value for mode constant", 0.0),
    },
    aliases=("pad",),
    infer=_infer_pad,
    onnx=Onnx(builder="pad"),
)
def pad(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Put elements around an array: a constant, the edge repeated, or the inside reflected.

    Shape:
        data: (N, C, ...).
        returns: each dimension with its two widths added.

    Raises:
        OpError: widths that do not fit.

    Source: MXNet 1.9.1 `Pad`, which takes four and five dimensions only.
    """
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}[a.mode]
    pairs = [a.pad_width[i : i + 2] for i in range(0, len(a.pad_width), 2)]
    # torch wants the pair of the last axis first, without those of N and C
    widths = [n for pair in reversed(pairs[2:]) for n in pair]
    value = a.constant_value if mode == "constant" else None

    def pad(x: torch.Tensor) -> torch.Tensor:
        _check(a, tuple(x.shape))
        return F.pad(x, widths, mode, value)

    return pad
