"""Sums of squares of several arrays, the rates that LARS makes of them, and arrays reset to zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape
from ..attrs import integer, real
from ..dtypes import single
from ..registry import bound
from ..shapes import same
from ..spec import NEVER, Attr, Shapes, Types, Variadic, arg, aux
from .rules import NO_ONNX, RESCALE

Tensor = torch.Tensor


@bound(
    "multi_lars",
    [arg("lrs"), arg("weights_sum_sq"), arg("grads_sum_sq"), arg("wds")],
    {
        "eta": Attr(real, "LARS's trust coefficient"),
        "eps": Attr(real, "keeps the quotient finite"),
        **RESCALE,
    },
    infer=same,
    batch=NEVER,
    onnx=NO_ONNX,
)
def multi_lars(a: Any) -> Callable[..., Tensor]:
    """Return the learning rates of LARS: ``lr * eta * |w| / (rescale_grad * |g| + wd * |w| + eps)``.

    Where a norm is 0 the rate stays.

    Shape:
        lrs, weights_sum_sq, grads_sum_sq, wds: one number for each weight, all (weights,) and of one type.
        returns: (weights,).

    Source: MXNet 1.9.1 `multi_lars`; You et al., "Large batch training of convolutional networks", 2017.
    """
    eta, eps, rescale = single(a.eta), single(a.eps), single(a.rescale_grad)

    def rates(lrs: Tensor, weights_sum_sq: Tensor, grads_sum_sq: Tensor, wds: Tensor) -> Tensor:
        norms = weights_sum_sq.sqrt()
        scaled = lrs * eta * norms / (grads_sum_sq.sqrt() * rescale + wds * norms + eps)
        return torch.where(norms.gt(0) & grads_sum_sq.gt(0), scaled, lrs)

    return rates


def _one_each(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, [(len(ins),)]


def _single_precision(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = next((t for t in ins if t is not None), None)
    return [t or found for t in ins], ["float32"]


@bound(
    "multi_sum_sq",
    (),
    {"num_arrays": Attr(integer(low=1), "number of arrays")},
    variadic=Variadic(count="num_arrays", group=(arg("array"),)),
    infer=_one_each,
    infer_type=_single_precision,
    batch=NEVER,
    onnx=NO_ONNX,
)
def multi_sum_sq(a: Any) -> Callable[..., Tensor]:
    """Return the sum of squares of each array.

    Shape:
        array_i: any shape.
        returns: (num_arrays,), float32.

    Source: MXNet 1.9.1 `multi_sum_sq`, where a square is rounded to the type of its array.
    """
    return lambda *arrays: torch.stack([x.square().float().sum() for x in arrays])


def _zeros(*arrays: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(x) for x in arrays)


def _as_they_are(a: Any, ins: list[Any], outs: list[Any]) -> tuple[list[Any], list[Any]]:
    return ins, outs


@bound(
    "reset_arrays",
    (),
    {"num_arrays": Attr(integer(low=1), "number of arrays")},
    variadic=Variadic(count="num_arrays", group=(aux("array"),)),
    outputs=(),
    mutates=("array",),
    commit_now=("array",),
    infer=_as_they_are,
    infer_type=_as_they_are,
    batch=NEVER,
    onnx=NO_ONNX,
)
def reset_arrays(a: Any) -> Callable[..., tuple[Tensor, ...]]:
    """Set arrays to zero in place.

    Shape:
        array_i: any shape.
        returns: nothing.

    Source: MXNet 1.9.1 `reset_arrays`.
    """
    return _zeros
