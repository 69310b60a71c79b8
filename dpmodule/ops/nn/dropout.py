"""Dropout."""

from __future__ import annotations

from typing import Any

import torch

from ..attrs import AttrType, boolean, choice, optional, real, shape
from ..registry import op
from ..shapes import same
from ..spec import ROWS, Attr, Env, Onnx, arg

__all__ = ["dropout"]


def _fraction(value: Any) -> float:
    number: float = real.parse(value)
    if not 0 <= number <= 1:
        raise ValueError(value)
    return number


_SHARE = AttrType(_fraction, "a number from 0 to 1", "float")


@op(
    "Dropout",
    [arg("data", ROWS)],
    {
        "p": Attr(_SHARE, "share of the elements set to zero", 0.5),
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
    MXNet 1.9.1 `Dropout`. With p = 1 the output is zero, where MXNet gives NaN.
    """
    if a.p == 0 or not (env.is_train or a.mode == "always"):
        return data
    keep = 1.0 - a.p
    if a.axes:
        axes = {axis % data.dim() for axis in a.axes}
        dims = [1 if i in axes else n for i, n in enumerate(data.shape)]
        mask = data.new_empty(dims)
    else:
        mask = torch.empty_like(data, requires_grad=False)
    mask.bernoulli_(keep, generator=env.generator)
    return data * (mask.div_(keep) if keep else mask)
