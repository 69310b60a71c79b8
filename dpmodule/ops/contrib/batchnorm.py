"""Relatives of batch normalisation: across devices, and with a rectifier."""

from __future__ import annotations

from typing import Any

import torch

from ..attrs import boolean, integer, optional, real, string
from ..nn.batchnorm import ATTRS, FIELDS, INPUTS, normalize, with_variance
from ..registry import op
from ..spec import Attr, Env, Onnx


@op(
    "_contrib_SyncBatchNorm",
    INPUTS,
    {
        **ATTRS,
        "ndev": Attr(integer(low=1), "number of devices; accepted and ignored", 1),
        "key": Attr(string, "name by which the layer's copies find each other; accepted and ignored"),
    },
    **FIELDS,
)
def sync_batch_norm(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Normalise as `BatchNorm` does; each device uses the statistics of its own part of the batch.

    Shape:
        data, output: (N, C, ...).
        gamma, beta, moving_mean, moving_var: (C,).
        mean, var: (C,), if output_mean_var: mean and variance, without gradient.

    Source: Zhang et al., "Context encoding for semantic segmentation", 2018; MXNet 1.9.1 `SyncBatchNorm`, which
    shares the statistics between ndev devices of one process.
    """
    outs, states = normalize(a, env, data, *vectors)
    return *with_variance(a, outs), *states


@op(
    "_contrib_BatchNormWithReLU",
    INPUTS,
    {
        **ATTRS,
        "axis": Attr(integer(), "axis of the channels", 1),
        "cudnn_off": Attr(boolean, "accepted and ignored", False),
        "min_calib_range": Attr(optional(real), "accepted and ignored", None),
        "max_calib_range": Attr(optional(real), "accepted and ignored", None),
    },
    **{
        **FIELDS,
        "hidden": lambda a: 1 if a.output_mean_var else 3,
        "onnx": Onnx(builder="batch_norm_with_relu"),
    },
)
def batch_norm_with_relu(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Normalise as `BatchNorm` does, then set what is below zero to zero.

    Shape:
        data, output: any with C channels on `axis`.
        gamma, beta, moving_mean, moving_var: (C,).
        mean, var: (C,), if output_mean_var: the mean, and 1 / sqrt(variance + eps), without gradient.

    Source: MXNet 1.9.1 `BatchNormWithReLU`, which takes float32 with four axes only.
    """
    (out, *statistics), states = normalize(a, env, data, *vectors)
    return torch.relu(out), *statistics, *states
