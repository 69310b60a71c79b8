"""Activation functions and dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ...base import Shape
from ..attrs import boolean, choice, fraction, optional, real, shape
from ..registry import bound, op
from ..shapes import same, unify
from ..spec import ROWS, Attr, Env, Onnx, Shapes, arg, param
from ..tracing import is_jit_tracing
from .layer_shapes import unify_input

_ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softrelu": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
}


@bound(
    "Activation",
    [arg("data", ROWS)],
    {"act_type": Attr(choice(*_ACTIVATIONS), "name of the function")},
    infer=same,
    onnx=Onnx(builder="activation"),
)
def activation(a: Any) -> Callable[..., torch.Tensor]:
    """Apply an activation function to each element.

    relu: ``max(x, 0)``; sigmoid: ``1 / (1 + exp(-x))``; softrelu: ``log(1 + exp(x))``;
    softsign: ``x / (1 + |x|)``; tanh.

    Shape:
        data, output: any.

    Source: MXNet 1.9.1 `Activation`.
    """
    return _ACTIVATIONS[a.act_type]


def _prelu(data: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    if gamma.dim() > 1:
        gamma = gamma.reshape(gamma.shape + (1,) * (data.dim() - gamma.dim()))
    elif data.dim() > 1 and data.dtype == gamma.dtype:
        return torch.prelu(data, gamma)
    return torch.where(data > 0, data, data * gamma)


def activation_name(op: str, a: Any) -> str:
    """Return the name of an operator's activation: that of its attribute, or else the operator's own."""
    return str(a.act_type) if op in ("Activation", "LeakyReLU") else op


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


class _Selu(torch.autograd.Function):
    """selu with MXNet's gradient below zero; see `leaky_relu`."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor) -> torch.Tensor:
        out = torch.selu(data)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> torch.Tensor:
        (out,) = ctx.saved_tensors
        return heads[0] * torch.where(out > 0, _SELU_SCALE, _SELU_SCALE * (_SELU_ALPHA + out))


def _selu(data: torch.Tensor) -> torch.Tensor:
    if is_jit_tracing():
        return torch.selu(data)
    result: torch.Tensor = _Selu.apply(data)  # type: ignore[no-untyped-call]
    return result


_OTHERS: dict[str, Callable[..., torch.Tensor]] = {"selu": _selu, "gelu": F.gelu, "prelu": _prelu}


def _leaky_function(a: Any) -> Callable[..., torch.Tensor] | None:
    """Return the torch function of a deterministic activation, else None."""
    if a.act_type == "leaky":
        return partial(F.leaky_relu, negative_slope=a.slope)
    if a.act_type == "elu":
        return partial(F.elu, alpha=a.slope)
    return _OTHERS.get(a.act_type)


def _leaky_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for data and outputs; gamma has one value per channel, or a single value."""
    shape: Shape = None
    for other in (ins[0], *outs):
        shape = unify(shape, other, "data and output")
    rest = ins[1:]
    gamma = rest[0] if rest else None
    if gamma is not None and len(gamma) > 1 and shape is not None:
        rest = [unify(gamma, shape[: len(gamma)], "gamma and the first axes of data")]
    elif rest and shape is not None and gamma != (1,):
        rest = [unify_input("gamma", rest[0], (shape[1 if len(shape) > 1 else 0],), shape)]
    return [shape, *rest], [shape] * len(outs)


@op(
    "LeakyReLU",
    [
        arg("data", ROWS),
        param("gamma", when=lambda a: a.act_type == "prelu", init='["Constant", {"value": 0.25}]'),
    ],
    {
        "act_type": Attr(
            choice("elu", "gelu", "leaky", "prelu", "rrelu", "selu"), "name of the function", "leaky"
        ),
        "slope": Attr(real, "negative slope of leaky, scale of elu", 0.25),
        "lower_bound": Attr(real, "lower bound of rrelu's random slopes", 0.125),
        "upper_bound": Attr(real, "upper bound of rrelu's random slopes", 0.334),
    },
    outputs=lambda a: ("output", "mask") if a.act_type == "rrelu" else ("output",),
    bind=_leaky_function,
    infer=_leaky_infer,
    random=lambda a, is_train: is_train and a.act_type == "rrelu",
    onnx=Onnx(builder="leaky_relu"),
)
def leaky_relu(
    a: Any, env: Env, data: torch.Tensor, gamma: torch.Tensor | None = None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Apply a rectifier that does not set negative values to zero.

    For negative x: leaky: ``slope * x``; elu: ``slope * (exp(x) - 1)``; selu: elu with the self-normalising
    constants; prelu: ``gamma * x`` with learned gamma; rrelu: a uniformly random slope for each element in training,
    else the mean slope. gelu: ``x`` times the normal distribution function of ``x``.

    Shape:
        data: (N, C, ...) for prelu, else any.
        gamma: (C,), (1,), or the first axes of data, (N, C, ...); only for prelu.
        output: like data. rrelu has a second output, mask: the slope applied to each element.

    Source: MXNet 1.9.1 `LeakyReLU`, including selu's gradient below zero: ``scale * (alpha + output)`` instead of the
    derivative ``scale * alpha + output``.
    """
    function = _leaky_function(a)
    if function is not None:
        return function(data) if gamma is None else function(data, gamma)
    if env.is_train:
        slope = torch.empty_like(data, requires_grad=False)
        slope.uniform_(a.lower_bound, a.upper_bound, generator=env.generator)
    else:
        slope = torch.full_like(data, (a.lower_bound + a.upper_bound) / 2, requires_grad=False)
    mask = slope.masked_fill_(data > 0, 1.0)
    return data * mask, mask


def bernoulli_mask(
    keep: float, dims: list[int], like: torch.Tensor, generator: torch.Generator | None
) -> torch.Tensor:
    """Return a mask of 1 with probability `keep`, else 0, in the type and memory order of `like`.

    On the CPU 32 random bits are compared with a bound, which takes a fifth of the time of `bernoulli_`; the
    probability differs from `keep` by less than 2 ** -32.
    """
    mask = torch.empty_like(like) if list(like.shape) == dims else like.new_empty(dims)
    count = mask.numel()
    if like.device.type != "cpu" or not count:
        return mask.bernoulli_(keep, generator=generator)
    pairs = torch.empty((count + 1) // 2, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    bound = min(round(keep * 2**32), 2**32 - 1) - 2**31
    drawn = torch.lt(pairs.view(torch.int32)[:count], bound, out=mask.new_empty(count)).view(mask.shape)
    return drawn if mask.is_contiguous() else mask.copy_(drawn)


def _drops(a: Any, is_train: bool) -> bool:
    """Return True if Dropout sets elements to zero."""
    return bool(a.p > 0) and (is_train or a.mode == "always")


@op(
    "Dropout",
    [arg("data", ROWS)],
    {
        "p": Attr(fraction, "fraction of the elements set to zero", 0.5),
        "mode": Attr(choice("training", "always"), "when to drop", "training"),
        "axes": Attr(shape, "axes along which all elements are dropped or kept together", ()),
        "cudnn_off": Attr(optional(boolean), "accepted and ignored", False),
    },
    hidden=1,
    infer=same,
    view=True,
    random=_drops,
    onnx=Onnx("Dropout", builder="dropout"),
)
def dropout(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Randomly set elements to zero and scale the others by ``1 / (1 - p)``, in training or always.

    Shape:
        data: any.
        output: like data; data itself if nothing is dropped.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014;
    MXNet 1.9.1 `Dropout`. With p = 1 the output is NaN, as 0 / 0, in both.
    """
    if not _drops(a, env.is_train):
        return data
    keep = 1.0 - a.p
    if a.axes:
        axes = {axis % data.dim() for axis in a.axes}
        dims = [1 if i in axes else n for i, n in enumerate(data.shape)]
    else:
        dims = list(data.shape)
    mask = bernoulli_mask(keep, dims, data, env.generator)
    return data * mask.div_(keep)
