"""Elementwise operations on two operands, and sums, means and maxima of many.

Broadcasting aligns first dimensions, as in DyNet: with a matrix (3, 4), a vector of 3 is one column.
"""

from __future__ import annotations

from typing import Any

import torch

from .native_kernels import OP, REDUCTION, Attrs, NodeEngine, Nodes, binary, plain, unary
from .spec import (
    BatchCall,
    Dim,
    Dims,
    Grads,
    ShapeRule,
    common_batch,
    declare,
    fail,
    scalar,
    target,
    unsqueeze_as,
)
from .unary import same_shape

Tensor = torch.Tensor


def broadcast(name: str, dims: Dims) -> Dim:
    """Return the common shape of operands whose dimensions agree or are 1."""
    rank = max(len(dim.d) for dim in dims)
    common_sizes = [1] * rank
    for dim in dims:
        for axis, size in enumerate(dim.d):
            if size != 1 and size != common_sizes[axis]:
                if common_sizes[axis] != 1:
                    fail(name, dims, "for each dimension, the sizes need to match or equal 1")
                common_sizes[axis] = size
    return Dim(tuple(common_sizes), common_batch(name, dims))


def aligned(x: Tensor, dim: Dim, rank: int) -> Tensor:
    """Append axes of size 1 until the tensor of an operand has `rank` dimensions."""
    missing = rank - len(dim.d)
    return x.reshape(*x.shape, *[1] * missing) if missing else x


def reduced(g: Tensor, x: Tensor) -> Tensor:
    """Sum a gradient over the axes along which the operand `x` was broadcast."""
    if g.shape == x.shape:
        return g
    shape = [*x.shape, *[1] * (g.dim() - x.dim())]
    axes = [axis for axis, (big, small) in enumerate(zip(g.shape, shape)) if small == 1 and big != 1]
    return (g.sum(axes, keepdim=True) if axes else g).reshape(x.shape)


def _shape(name: str) -> ShapeRule:
    def shape(attrs: Attrs, dims: Dims) -> Dim:
        if dims[0] == dims[-1] and len(dims) == 2:
            return dims[0]
        return broadcast(name, dims)

    return shape


def _both(call: BatchCall, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    rank = len(call.out.d)
    return aligned(x, call.dims[0], rank), aligned(y, call.dims[1], rank)


def _sum(call: BatchCall, *xs: Tensor) -> Tensor:
    rank = len(call.out.d)
    total = aligned(xs[0], call.dims[0], rank)
    if len(xs) == 1:
        return total
    if len(xs) == 2:
        return torch.add(total, aligned(xs[1], call.dims[1], rank), out=target(call))
    total = total + aligned(xs[1], call.dims[1], rank)
    for x, dim in zip(xs[2:], call.dims[2:]):
        x = aligned(x, dim, rank)
        total = (
            total.add_(x)
            if total.shape[1:] == call_shape(call) and total.shape[0] >= x.shape[0]
            else total + x
        )
    return total


def call_shape(call: BatchCall) -> tuple[int, ...]:
    """Return the shape of the result without the axis of nodes."""
    return (call.out.batch, *call.out.d)


def _sum_grad(call: BatchCall, g: Tensor, *xs: Tensor) -> Grads:
    return [reduced(g, x) for x in xs]


def _minus(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    x, y = _both(call, x, y)
    return x - y


def _minus_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    return [reduced(g, x), reduced(-g, y)]


def _cmult(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    x, y = _both(call, x, y)
    return torch.mul(x, y, out=target(call))


def _cmult_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    left, right = _both(call, x, y)
    grads = []
    for place, (factor, operand) in enumerate(((right, x), (left, y))):
        if g.shape == operand.shape:
            grads.append(torch.mul(g, factor, out=target(call, place)))
        else:
            grads.append(reduced(g * factor, operand))
    return list(grads)


def _cdiv_shape(attrs: Attrs, dims: Dims) -> Dim:
    found = broadcast("cdiv", dims)
    left = (*dims[0].d, *[1] * (len(found.d) - len(dims[0].d)))
    if left != found.d:
        fail("cdiv", dims, "for each dimension, the sizes need to match or the right one equal 1")
    return found


def _cdiv(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    x, y = _both(call, x, y)
    return x / y


def _cdiv_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    left, right = _both(call, x, y)
    part = g / right
    return [reduced(part, x), reduced(-part * (left / right), y)]


def scalar_operand(name: str, what: str) -> ShapeRule:
    """Return the shape rule of an operand and a scalar, called `what` in errors."""

    def shape(attrs: Attrs, dims: Dims) -> Dim:
        if dims[1].size != 1:
            fail(name, dims, f"the {what} needs to be one number")
        return Dim(dims[0].d, common_batch(name, dims))

    return shape


def _power(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x, unsqueeze_as(y, x))


def equal(name: str, subject: str = "all operands", is_number: bool = False) -> ShapeRule:
    """Return the shape rule of operands of the same dimensions.

    Args:
        is_number: True if the result is a scalar, False if it has the shape of the operands.
    """

    def shape(attrs: Attrs, dims: Dims) -> Dim:
        if any(dim.d != dims[0].d for dim in dims):
            fail(name, dims, f"{subject} need the same dimensions")
        batch = common_batch(name, dims)
        return scalar(batch) if is_number else Dim(dims[0].d, batch)

    return shape


def _maximum(call: BatchCall, *xs: Tensor) -> Tensor:
    best = xs[0]
    for x in xs[1:]:
        best = torch.maximum(best, x)
    return best


def _maximum_grad(call: BatchCall, g: Tensor, *xs: Tensor) -> Grads:
    """Give the gradient to the first of several equal maxima, as DyNet does."""
    left, grads = torch.ones_like(g, dtype=torch.bool), []
    best = call.result
    for x in xs:
        mine = left & (x == best)
        left = left & ~mine
        grads.append(reduced(g * mine, x))
    return list(grads)


def _minimum(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return torch.minimum(x, y)


def _minimum_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    mine = (x < y).expand_as(g)
    return [reduced(g * mine, x), reduced(g * ~mine, y)]


def _logsumexp(call: BatchCall, *xs: Tensor) -> Tensor:
    shape = [max(sizes) for sizes in zip(*(x.shape for x in xs))]
    return torch.logsumexp(torch.stack([x.expand(shape) for x in xs]), 0)


def _logsumexp_grad(call: BatchCall, g: Tensor, *xs: Tensor) -> Grads:
    return [reduced(g * torch.exp(x - call.result), x) for x in xs]


def _colwise_shape(attrs: Attrs, dims: Dims) -> Dim:
    if len(dims[1].d) > 1 and dims[1].d[1] != 1 or dims[0].d[0] != dims[1].d[0]:
        fail("colwise_add", dims, "a matrix and a column of its height are needed")
    return Dim(dims[0].d, common_batch("colwise_add", dims))


def _colwise(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return x + aligned(y, call.dims[1], len(call.dims[0].d))


def _sum_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return engine.kernel(OP["binary" if len(args) == 2 else "sum"], 0, args)


def max_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    """Add a node of the maxima of operands; see `native_kernels.NodeMaker`."""
    if len(args) == 2:
        return _TWO_MAXIMA(engine, attrs, args, aux)
    return engine.kernel(OP["sum"], REDUCTION["max_dim"], args)


_TWO_MAXIMA = binary("max")


SUM = declare("sum", _shape("sum"), _sum, _sum_grad, kernel=_sum_kernel)
MINUS = declare("subtract", _shape("subtract"), _minus, _minus_grad, kernel=binary("sub"))
CMULT = declare("cmult", _shape("cmult"), _cmult, _cmult_grad, kernel=binary("mul"))
CDIV = declare("cdiv", _cdiv_shape, _cdiv, _cdiv_grad, kernel=binary("div"))
POW = declare("pow", scalar_operand("pow", "exponent"), _power, kernel=binary("pow"))
MAX = declare("max", equal("max"), _maximum, _maximum_grad, kernel=max_kernel)
MIN = declare("min", equal("min"), _minimum, _minimum_grad, kernel=binary("min"))
LOGSUMEXP = declare(
    "logsumexp",
    equal("logsumexp"),
    _logsumexp,
    _logsumexp_grad,
    kernel=plain("sum", REDUCTION["logsumexp_dim"]),
)
COLWISE_ADD = declare("colwise_add", _colwise_shape, _colwise, kernel=plain("colwise_add"))


def _segments(call: BatchCall) -> Tensor:
    """Return the index of the node of every operand."""
    counts = torch.tensor(call.counts, device=call.device)
    return torch.repeat_interleave(torch.arange(call.count, device=call.device), counts)


def _sum_many(call: BatchCall, x: Tensor) -> Tensor:
    if call.count == 1:
        return x.sum(0, keepdim=True)
    call.saved = _segments(call)
    found = torch.zeros(call.count, *x.shape[1:], dtype=x.dtype, device=x.device)
    return found.index_add_(0, call.saved, x)


def _sum_many_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g.expand_as(x) if call.count == 1 else g.index_select(0, call.saved)]


def _weights(call: BatchCall, like: Tensor) -> Tensor:
    counts = torch.tensor(call.counts, device=like.device, dtype=like.dtype)
    return counts.view(-1, *[1] * (like.dim() - 1))


def _average(call: BatchCall, x: Tensor) -> Tensor:
    return _sum_many(call, x) / _weights(call, x)


def _max(call: BatchCall, x: Tensor) -> Tensor:
    return x.reshape(call.count, -1, *x.shape[1:]).max(1)[0]


def _average_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    total = engine.kernel(OP["sum"], 0, args)
    return -1 if total < 0 else _SCALED(engine, (), (total,), 1.0 / len(args))


_SCALED = unary("scale")

SUM_MANY = declare(
    "sum_many", same_shape, _sum_many, _sum_many_grad, many=True, ragged=True, kernel=plain("sum")
)
AVERAGE_MANY = declare("average", same_shape, _average, many=True, ragged=True, kernel=_average_kernel)
MAX_MANY = declare("max_many", same_shape, _max, many=True, kernel=max_kernel)
