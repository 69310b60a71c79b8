"""Batch normalisation, by torch or the native extension, and its variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ..._core import torch_private
from ...base import Shape, ShapeError
from ..attrs import boolean, integer, optional, real, string
from ..registry import op
from ..shapes import unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg, aux, param
from ..tracing import is_tracing
from .layer_shapes import unify_input
from .linear import address, is_float32_cpu, kernels

# Batch normalisation in training, with a following sum and relu, or SiLU, as one call of the native extension.
#
# torch reads the data three times for statistics and result, and passes over the result again for the sum and relu;
# backward writes relu's gradient and reads it twice. Here both forward and backward read the data twice and write once;
# no intermediate result is kept.

_MIN_CHANNELS = 4
"""Channels of the narrowest vector."""
_MIN_PIXELS = 16
"""Positions of the smallest planes that the kernels read."""

_KINDS = ("", "relu", "silu")
"""Final steps by their numbers in the extension."""

MaybeTensor = torch.Tensor | None


@dataclass(frozen=True, slots=True)
class NormEnd:
    """Final step after the normalisation.

    Attributes:
        kind: "" for none, "relu", or "silu". SiLU only without a summand.
        nan_stays: relu's gradient at NaN is NaN; else it is the result's gradient.
        limit: maximum of the result; if there is one, the gradient is 1 at both ends and 0 at NaN. Only without a
            summand.
    """

    kind: str = ""
    nan_stays: bool = False
    limit: float = inf


def _layout(x: torch.Tensor) -> torch.memory_format | None:
    """Return the layout in which the kernels read data; None if they are not the fastest for it."""
    if x.dim() < 2 or not x.numel() > x.shape[1] > 0 or not is_float32_cpu(x):
        return None
    has_rows = x.shape[1] >= _MIN_CHANNELS
    if has_rows and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    has_planes = has_rows if x.dim() == 2 else _pixels(x) >= _MIN_PIXELS
    return torch.contiguous_format if has_planes and x.is_contiguous() else None


def _pixels(x: torch.Tensor) -> int:
    """Return the number of positions of each row of data."""
    return x.numel() // (x.shape[0] * x.shape[1])


def is_native(x: torch.Tensor, other: MaybeTensor, vectors: Sequence[torch.Tensor]) -> bool:
    """Return True if `native_norm` supports these arguments."""
    tensors = (x, *vectors) if other is None else (x, other, *vectors)
    if torch_private.is_transformed(*tensors):
        return False
    layout = _layout(x)
    if layout is None:
        return False
    if other is not None and not (
        other.shape == x.shape and is_float32_cpu(other) and other.is_contiguous(memory_format=layout)
    ):
        return False
    for vector in vectors:
        if vector.numel() != x.shape[1] or not is_float32_cpu(vector) or not vector.is_contiguous():
            return False
    return (
        not (vectors[2].requires_grad or vectors[3].requires_grad)
        and hasattr(kernels(), "norm_forward")
        and not is_tracing()
    )


def _sizes(x: torch.Tensor, layout: torch.memory_format) -> tuple[int, int, int, int]:
    """Return numbers of positions, channels, adjacent positions, and threads."""
    pixels = 1 if layout is torch.channels_last else _pixels(x)
    return x.numel() // x.shape[1], x.shape[1], pixels, torch.get_num_threads()


class _Norm(torch.autograd.Function):
    """Autograd function of the finished result, data, summand or None, gamma or None, and beta."""

    @staticmethod
    def forward(
        ctx: Any,
        done: tuple[torch.Tensor, torch.Tensor, NormEnd, torch.memory_format],
        x: torch.Tensor,
        other: MaybeTensor,
        gamma: MaybeTensor,
        beta: torch.Tensor,
    ) -> torch.Tensor:
        out, ctx.statistics, ctx.end, ctx.layout = done
        # without a sum, relu's mask follows from the data
        ctx.save_for_backward(x, out if ctx.end.kind and other is not None else None)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[MaybeTensor, ...]:
        # entering and leaving torch.no_grad takes as long as a small kernel
        found: tuple[MaybeTensor, ...] = (_once if torch.is_grad_enabled() else _gradients)(ctx, *grads)
        return found


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[MaybeTensor, ...]:
    (x, out), statistics = ctx.saved_tensors, ctx.statistics
    _, for_data, for_sum, for_factors, for_summands = ctx.needs_input_grad
    end, channels = ctx.end, x.shape[1]
    grad = grad.contiguous(memory_format=ctx.layout)
    for_x = torch.empty_like(grad) if for_data else None
    # SiLU's gradient is worth keeping until the data's is computed
    keeps = (for_sum and end.kind) or (for_data and end.kind == "silu")
    for_other = torch.empty_like(grad) if keeps else None
    for_gamma, for_beta = statistics.new_empty(channels), statistics.new_empty(channels)
    tensors = grad, x, out, statistics, for_other, for_x, for_gamma, for_beta
    kernels().norm_backward(
        *_sizes(x, ctx.layout), _KINDS.index(end.kind), end.limit, end.nan_stays, *map(address, tensors)
    )
    return (
        None,
        for_x,
        (for_other if end.kind else grad) if for_sum else None,
        for_gamma if for_factors else None,
        for_beta if for_summands else None,
    )


_once = once_differentiable(_gradients)
_apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Norm)


def native_norm(
    x: torch.Tensor,
    other: MaybeTensor,
    vectors: Sequence[MaybeTensor],
    eps: float,
    momentum: float,
    end: NormEnd,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalise over the batch; requires `is_native`, and float32 tensors on the CPU.

    Args:
        x: data, (N, C, ...), contiguous or in channels_last, with more than one position.
        other: summand in the layout of the data, or None.
        vectors: gamma (None for 1), beta, moving mean and moving variance, (C,).

    Returns:
        (result, new moving mean, new moving variance)

    Source: Ioffe and Szegedy, "Batch normalization", 2015.
    """
    gamma, beta, *moving = vectors
    channels, layout = x.shape[1], _layout(x) or torch.contiguous_format
    out, statistics = torch.empty_like(x, requires_grad=False), x.new_empty(4, channels)
    new_mean, new_var = statistics.new_empty(channels), statistics.new_empty(channels)
    tensors = x, other, gamma, beta, *moving, out, statistics, new_mean, new_var
    numbers = _KINDS.index(end.kind), end.limit, eps, momentum
    kernels().norm_forward(*_sizes(x, layout), *numbers, *map(address, tensors))
    if torch.is_grad_enabled():
        out = _apply((out, statistics, end, layout), x, other, gamma, beta)
    return out, new_mean, new_var


_VECTORS = ("gamma", "beta", "moving_mean", "moving_var")


def _axis(a: Any) -> int:
    """Return the channel axis; BatchNorm_v1 has no attribute for it."""
    return getattr(a, "axis", 1)


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for data and output, and one value per channel for all others."""
    data = unify(ins[0], outs[0], "data and output")
    if data is None:
        return ins, outs
    axis = _axis(a)
    if not -len(data) <= axis < len(data):
        raise ShapeError(f"axis is {axis}, expected one of the {len(data)} axes of data {data}")
    vector = (data[axis],)
    rest = [unify_input(name, have, vector, data) for name, have in zip(_VECTORS, ins[1:], strict=True)]
    return [data, *rest], [data, *(unify_input("statistics", o, vector, data) for o in outs[1:])]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer types; parameters, states and statistics of half-precision data are float32."""
    data = ins[0] or outs[0]
    if data is None:
        return ins, outs
    vector = "float32" if data in ("float16", "bfloat16") else data
    return [data, *(t or vector for t in ins[1:])], [data, *(t or vector for t in outs[1:])]


def _normalize_by_batch(
    a: Any,
    x: torch.Tensor,
    gamma: torch.Tensor | None,
    beta: torch.Tensor,
    moving_mean: torch.Tensor,
    moving_var: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return the output, the batch's mean and 1 / deviation, and the new moving statistics.

    torch moves its statistics by the unbiased variance and MXNet by the biased one, (n - 1) / n of it.
    """
    count, new = x.numel() // max(x.shape[1], 1), 1.0 - a.momentum
    biased = (count - 1) / count if count > 1 else 1.0
    new_mean, new_var = moving_mean.clone(), moving_var / biased
    out, mean, scale = torch.native_batch_norm(x, gamma, beta, new_mean, new_var, True, new, a.eps)
    new_var = new_var * biased if count > 1 else moving_var * a.momentum  # of one number torch's is NaN
    return out, mean, scale, new_mean, new_var


def normalize(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor | None, ...]]:
    """Return the outputs, with mean and 1 / deviation if requested, and the new values of gamma and the states."""
    moving_mean, moving_var = vectors[2:]
    gamma, beta, dtype = *vectors[:2], moving_mean.dtype
    if not (gamma.dtype is beta.dtype is dtype):  # torch expects one type for all four
        gamma, beta = gamma.to(dtype), beta.to(dtype)
    # torch's gradient for data of two axes ignores strides
    gamma, moving_mean, moving_var = gamma.contiguous(), moving_mean.contiguous(), moving_var.contiguous()
    axis = _axis(a)
    move = axis not in (1, 1 - data.dim())
    x = data.movedim(axis, 1) if move else data
    moved = x.shape
    # by the strides of axes of length 1, torch may take the data for channels-last, and its gradient mixes channels
    flat = x.dim() > 3 and 1 in (x.shape[0], *x.shape[2:]) and torch.is_grad_enabled()
    if flat:
        x = x.flatten(2)
    ones = torch.ones_like(gamma, requires_grad=False) if a.fix_gamma else None
    # without a weight, CUDA's kernels give the bias no gradient
    weight = gamma if ones is None else None if ones.is_cpu else ones
    new_mean = new_var = None
    if env.is_train and not a.use_global_stats:
        out, mean, scale, new_mean, new_var = _normalize_by_batch(a, x, weight, beta, moving_mean, moving_var)
    else:
        out = torch.native_batch_norm(
            x, weight, beta, moving_mean, moving_var, False, 1.0 - a.momentum, a.eps
        )[0]
        mean = scale = moving_mean
    if flat:
        out = out.reshape(moved)
    if move:
        out = out.movedim(1, axis)
    states = ones if env.is_train else None, new_mean, new_var
    if not a.output_mean_var:
        return (out,), states
    if new_mean is None:
        mean, scale = moving_mean.clone(), (moving_var + a.eps).rsqrt()
    return (out, mean.detach(), scale.detach()), states


def with_variance(a: Any, outs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return the outputs with the variance instead of 1 / deviation, as in some variants of BatchNorm."""
    return (*outs[:2], outs[2].pow(-2) - a.eps) if a.output_mean_var else outs


INPUTS = (
    arg("data"),
    param("gamma"),
    param("beta"),
    aux("moving_mean", '["zero", {}]'),
    aux("moving_var", '["one", {}]'),
)
ATTRS = {
    "eps": Attr(real, "added to the variance", 1e-3),
    "momentum": Attr(real, "weight of the old moving statistics", 0.9),
    "fix_gamma": Attr(boolean, "treat gamma as 1, and set it to 1", True),
    "use_global_stats": Attr(boolean, "use the moving statistics also in training", False),
    "output_mean_var": Attr(boolean, "also return the statistics", False),
}
_AXIS_ATTRS = {
    **ATTRS,
    "axis": Attr(integer(), "axis of the channels", 1),
    "cudnn_off": Attr(boolean, "accepted and ignored", False),
    "min_calib_range": Attr(optional(real), "accepted and ignored", None),
    "max_calib_range": Attr(optional(real), "accepted and ignored", None),
}
FIELDS: dict[str, Any] = {
    "outputs": lambda a: ("output", "mean", "var") if a.output_mean_var else ("output",),
    "hidden": lambda a: 0 if a.output_mean_var else 2,
    "mutates": ("gamma", "moving_mean", "moving_var"),
    "commit_in_forward": ("gamma",),
    "infer": _infer,
    "infer_type": _infer_type,
    "batch": NEVER,
    "onnx": Onnx("BatchNormalization", builder="batch_norm"),
}


@op("BatchNorm", INPUTS, _AXIS_ATTRS, **FIELDS)
def batch_norm(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Normalise each channel over the batch to mean 0 and variance 1, then scale by gamma and shift by beta.

    In training the batch statistics are used, and update the moving statistics:
    ``new = momentum * old + (1 - momentum) * batch``, with the biased variance. Otherwise, or with
    use_global_stats, the moving statistics are used and not changed. With fix_gamma, gamma counts as 1, has no
    gradient and is set to 1 by every forward in training.

    Shape:
        data, output: any with C channels on `axis`.
        gamma, beta, moving_mean, moving_var: (C,).
        mean, var: (C,), if output_mean_var: the mean, and 1 / sqrt(variance + eps), without gradient.

    Source: Ioffe and Szegedy, "Batch normalization", 2015; MXNet 1.9.1 `BatchNorm`.
    """
    outs, states = normalize(a, env, data, *vectors)
    return *outs, *states


@op("BatchNorm_v1", INPUTS, ATTRS, **FIELDS)
def batch_norm_v1(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Normalise like `BatchNorm`, with the channels on axis 1; for old saved graphs.

    Shape:
        data, output: (N, C, ...).
        gamma, beta, moving_mean, moving_var: (C,).
        mean, var: (C,), if output_mean_var: mean and variance, without gradient.

    Source: MXNet 1.9.1 `BatchNorm_v1`.
    """
    outs, states = normalize(a, env, data, *vectors)
    return *with_variance(a, outs), *states


@op(
    "_contrib_SyncBatchNorm",
    INPUTS,
    {
        **ATTRS,
        "ndev": Attr(integer(low=1), "number of devices; accepted and ignored", 1),
        "key": Attr(string, "name shared by the layer's copies; accepted and ignored"),
    },
    **FIELDS,
)
def sync_batch_norm(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Normalise like `BatchNorm`; each device uses the statistics of its part of the batch.

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
    _AXIS_ATTRS,
    **{
        **FIELDS,
        "hidden": lambda a: 1 if a.output_mean_var else 3,
        "onnx": Onnx(builder="batch_norm_with_relu"),
    },
)
def batch_norm_with_relu(
    a: Any, env: Env, data: torch.Tensor, *vectors: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """Normalise like `BatchNorm`, then apply relu.

    Shape:
        data, output: any with C channels on `axis`.
        gamma, beta, moving_mean, moving_var: (C,).
        mean, var: (C,), if output_mean_var: the mean, and 1 / sqrt(variance + eps), without gradient.

    Source: MXNet 1.9.1 `BatchNormWithReLU`, which only takes float32 data with four axes.
    """
    (out, *statistics), states = normalize(a, env, data, *vectors)
    return torch.relu(out), *statistics, *states
