"""Distances and losses between two operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .binary import reduced
from .spec import Call, Dim, declare, fail, same_batch, scalar

__all__ = ["BINARY_LOG", "HUBER", "L1", "POISSON", "RANK", "SQUARED_DISTANCE"]

Tensor = torch.Tensor


def _pair(name: str) -> Callable[[tuple[Any, ...], Sequence[Dim]], Dim]:
    def shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> Dim:
        if dims[0].d != dims[1].d:
            fail(name, dims, "both operands need the same dimensions")
        return scalar(same_batch(name, dims))

    return shape


def _total(x: Tensor) -> Tensor:
    return x.flatten(2).sum(2, keepdim=True)


def _wide(g: Tensor, x: Tensor) -> Tensor:
    return g.reshape(*g.shape[:2], *[1] * (x.dim() - 2))


def _squared(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return _total((x - y).square())


def _squared_grad(call: Call, g: Tensor, x: Tensor, y: Tensor) -> list[Tensor | None]:
    part = 2 * (x - y) * _wide(g, x)
    return [reduced(part, x), reduced(-part, y)]


def _l1(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return _total((x - y).abs())


def _l1_grad(call: Call, g: Tensor, x: Tensor, y: Tensor) -> list[Tensor | None]:
    part = torch.sign(x - y) * _wide(g, x)
    return [reduced(part, x), reduced(-part, y)]


def _huber(call: Call, x: Tensor, y: Tensor) -> Tensor:
    bound = call.attrs[0]
    size = (x - y).abs()
    return _total(torch.where(size < bound, size.square() / 2, bound * (size - bound / 2)))


def _huber_grad(call: Call, g: Tensor, x: Tensor, y: Tensor) -> list[Tensor | None]:
    bound = call.attrs[0]
    part = (x - y).clamp(-bound, bound) * _wide(g, x)
    return [reduced(part, x), reduced(-part, y)]


def _binary_log(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return -_total(torch.xlogy(y, x) + torch.xlogy(1 - y, 1 - x))


def _binary_log_grad(call: Call, g: Tensor, x: Tensor, y: Tensor) -> list[Tensor | None]:
    wide = _wide(g, x)
    dx = torch.where(y == 1, -1 / x, torch.where(y == 0, 1 / (1 - x), (x - y) / (x * (1 - x))))
    dy = torch.log1p(-x) - torch.log(x)
    return [reduced(wide * dx, x), reduced(wide * dy, y)]


def _rank_shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> Dim:
    if dims[0].d != dims[1].d or dims[0].d[0] != 1:
        fail(
            "pairwise_rank_loss",
            dims,
            "Bad input dimensions in PairwiseRankLoss: rows of equal dimensions are needed",
        )
    return Dim(dims[0].d, same_batch("pairwise_rank_loss", dims))


def _rank(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(call.attrs[0] - x + y)


def _rank_grad(call: Call, g: Tensor, x: Tensor, y: Tensor) -> list[Tensor | None]:
    part = g * (call.attrs[0] - x + y > 0)
    return [reduced(-part, x), reduced(part, y)]


def _poisson_shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> Dim:
    if dims[0].size != 1:
        fail("poisson_loss", dims, "one number is needed")
    return dims[0]


def _poisson(call: Call, x: Tensor) -> Tensor:
    count = call.aux.to(x.dtype).view(-1, *[1] * (x.dim() - 1))
    answer: Tensor = torch.exp(x) - count * x + torch.lgamma(count + 1)
    return answer


SQUARED_DISTANCE = declare("squared_distance", _pair("squared_distance"), _squared, _squared_grad)
L1 = declare("l1_distance", _pair("l1_distance"), _l1, _l1_grad)
HUBER = declare("huber_distance", _pair("huber_distance"), _huber, _huber_grad)
BINARY_LOG = declare("binary_log_loss", _pair("binary_log_loss"), _binary_log, _binary_log_grad)
RANK = declare("pairwise_rank_loss", _rank_shape, _rank, _rank_grad)
POISSON = declare("poisson_loss", _poisson_shape, _poisson, aux="int", expand=True)
