"""A penalty on activations that are not sparse."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import fraction, real
from ..registry import op
from ..shapes import unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes, arg, aux
from .rules import agree


class _Penalty(torch.autograd.Function):
    """The identity whose gradient has a constant added for each column."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slope)
        return data.clone()

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slope,) = ctx.saved_tensors
        return heads[0] + slope, None


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    if data is None:
        return ins, outs
    if len(data) != 2:
        raise ShapeError(f"data has shape {data}, expected 2 axes: batch and units; flatten it before")
    return [data, agree("moving_avg", ins[1], data[1:], data)], [data]


@op(
    "IdentityAttachKLSparseReg",
    [arg("data"), aux("moving_avg", '["zero", {}]')],
    {
        "sparseness_target": Attr(fraction, "wanted mean activation", 0.1),
        "penalty": Attr(real, "factor of the penalty", 0.001),
        "momentum": Attr(fraction, "share of the old moving average that stays", 0.9),
    },
    mutates=("moving_avg",),
    infer=_infer,
    batch=NEVER,
    onnx=Onnx("Identity", drop=("sparseness_target", "penalty", "momentum")),
)
def identity_attach_kl_sparse_reg(
    a: Any, env: Env, data: torch.Tensor, moving_avg: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the data; the gradient pulls the mean activation of each unit towards a target.

    The penalty is the Kullback-Leibler divergence of the moving average m from the target t: the gradient of each
    element gets ``penalty * ((1 - t) / (1 - m) - t / m)`` added. Backward moves the average:
    ``m = momentum * m + (1 - momentum) * mean over the batch``. Meant for the outputs of a sigmoid.

    Shape:
        data, output: (N, D), values between 0 and 1.
        moving_avg: (D,).

    Source: Hinton, "A practical guide to training restricted Boltzmann machines", 2010; MXNet 1.9.1
    `IdentityAttachKLSparseReg`.
    """
    if not env.is_train:
        return data.clone(), None
    with torch.no_grad():
        moved = a.momentum * moving_avg + (1.0 - a.momentum) * data.mean(0)
        target = a.sparseness_target
        slope = a.penalty * ((1.0 - target) / (1.0 - moved) - target / moved)
    out: torch.Tensor = _Penalty.apply(data, slope)  # type: ignore[no-untyped-call]
    return out, moved
