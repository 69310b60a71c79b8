"""Distances and losses between two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .binary import MINUS, equal, reduced
from .kernels import chain, unary
from .native_numbers import BINARY, OP, UNARY, Attrs, Machine, Maker, Nodes
from .reduce import SUM_ELEMS
from .spec import BatchCall, Dim, Dims, Grads, Operation, declare, fail, same_batch, wide
from .unary import UNARY as UNARIES

Tensor = torch.Tensor


def _total(x: Tensor) -> Tensor:
    return x.flatten(2).sum(2, keepdim=True)


def _distance(
    name: str, kernel: str, value: Callable[..., Tensor], slope: Callable[..., Tensor]
) -> Operation:
    """Declare the sum of a function of differences, and of the attribute if there is one."""

    def run(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
        return _total(value(x - y, *call.attrs))

    def grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
        part = slope(x - y, *call.attrs) * wide(g, x)
        return [reduced(part, x), reduced(-part, y)]

    return declare(name, equal(name, "both operands", True), run, grad, kernel=_of_difference(kernel))


def _huber(apart: Tensor, bound: float) -> Tensor:
    size = apart.abs()
    return torch.where(size < bound, size.square() / 2, bound * (size - bound / 2))


def _log_loss(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return -_total(torch.xlogy(y, x) + torch.xlogy(1 - y, 1 - x))


def _log_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    dx = torch.where(y == 1, -1 / x, torch.where(y == 0, 1 / (1 - x), (x - y) / (x * (1 - x))))
    dy = torch.log1p(-x) - torch.log(x)
    return [reduced(wide(g, x) * dx, x), reduced(wide(g, x) * dy, y)]


def _rank_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[0].d != dims[1].d or dims[0].d[0] != 1:
        needed = "rows of equal dimensions are needed"
        fail("pairwise_rank_loss", dims, f"Bad input dimensions in PairwiseRankLoss: {needed}")
    return Dim(dims[0].d, same_batch("pairwise_rank_loss", dims))


def _rank(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(call.attrs[0] - x + y)


def _rank_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    part = g * (call.attrs[0] - x + y > 0)
    return [reduced(-part, x), reduced(part, y)]


def _poisson_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[0].size != 1:
        fail("poisson_loss", dims, "one number is needed")
    return dims[0]


def _poisson(call: BatchCall, x: Tensor) -> Tensor:
    count = call.aux.to(x.dtype).view(-1, *[1] * (x.dim() - 1))
    answer: Tensor = torch.exp(x) - count * x + torch.lgamma(count + 1)
    return answer


def _of_difference(name: str) -> Maker:
    """Return the maker of the sum of a function of differences."""
    op, kind = OP["unary"], UNARY[name]

    def make(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        if engine.dim(args[0])[0] != engine.dim(args[1])[0]:
            return -1
        apart = chain(engine, args[0], (MINUS, args[1]))
        if apart < 0:
            return -1
        apart = engine.kernel(op, kind, (apart,), attrs[0] if attrs else 0.0)
        return chain(engine, apart, (SUM_ELEMS, None))

    return make


def _log_kernel(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    losses = engine.kernel(OP["binary"], BINARY["binary_log_loss"], args)
    return chain(engine, losses, (SUM_ELEMS, None))


def _rank_kernel(engine: Machine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    left, right = [engine.dim(arg)[0] for arg in args]
    apart = chain(engine, args[1], (MINUS, args[0])) if left == right and left[0] == 1 else -1
    if apart < 0:
        return -1
    return chain(engine, _SHIFTED(engine, (), (apart,), attrs[0]), (UNARIES["rectify"], None))


_SHIFTED = unary("shift")

SQUARED_DISTANCE = _distance("squared_distance", "square", torch.square, lambda apart: 2 * apart)
L1 = _distance("l1_distance", "abs", torch.abs, torch.sign)
HUBER = _distance("huber_distance", "huber", _huber, lambda apart, bound: apart.clamp(-bound, bound))
BINARY_LOG = declare(
    "binary_log_loss",
    equal("binary_log_loss", "both operands", True),
    _log_loss,
    _log_grad,
    kernel=_log_kernel,
)
RANK = declare("pairwise_rank_loss", _rank_shape, _rank, _rank_grad, kernel=_rank_kernel)
POISSON = declare(
    "poisson_loss", _poisson_shape, _poisson, aux="int", expand=True, kernel=unary("poisson_loss")
)
