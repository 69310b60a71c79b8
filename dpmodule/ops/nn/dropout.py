"""Dropout."""

from __future__ import annotations

from typing import Any

import torch

from ..attrs import boolean, choice, fraction, optional, shape
from ..registry import op
from ..shapes import same
from ..spec import ROWS, Attr, Env, Onnx, arg


def kept(keep: float, dims: list[int], like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Return 1 with the chance `keep`, else 0, in the type and memory order of `like`.

    On the CPU the chance is that of 32 random bits lying below a bound, which takes a fifth of the time of
    `bernoulli_` and differs from `keep` by less than 2 ** -32.
    """
    mask = torch.empty_like(like) if list(like.shape) == dims else like.new_empty(dims)
    count = mask.numel()
    if like.device.type != "cpu" or not count:
        return mask.bernoulli_(keep, generator=generator)
    pairs = torch.empty((count + 1) // 2, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    bound = min(round(keep * 2**32), 2**32 - 1) - 2**31
    drawn = torch.lt(pairs.view(torch.int32)[:count], bound, out=mask.new_empty(count)).view(mask.shape)
    return drawn if mask.is_contiguous() else mask.copy_(drawn)


@op(
    "Dropout",
    [arg("data", ROWS)],
    {
        "p": Attr(fraction, "share of the elements set to zero", 0.5),
        "mode": Attr(choice("training", "always"), "when to drop", "training"),
        "axes": Attr(shape, "axes along which one decision holds for all elements", ()),
        "cudnn_off": Attr(optional(boolean), "accepted and ignored", False),
    },
    hidden=1,
    infer=same,
    view=True,
    random=True,
    onnx=Onnx("Dropout", builder="dropout"),
)
def dropout(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Set elements to zero at random and scale the others by ``1 / (1 - p)``, in training or always.

    Shape:
        data: any.
        output: as data; data itself where nothing is dropped.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014;
    MXNet 1.9.1 `Dropout`. With p = 1 the output is NaN, as 0 / 0, in both.
    """
    if a.p == 0 or not (env.is_train or a.mode == "always"):
        return data
    keep = 1.0 - a.p
    if a.axes:
        axes = {axis % data.dim() for axis in a.axes}
        dims = [1 if i in axes else n for i, n in enumerate(data.shape)]
    else:
        dims = list(data.shape)
    mask = kept(keep, dims, data, env.generator)
    return data * mask.div_(keep)
