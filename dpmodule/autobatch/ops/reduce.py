"""Reductions over elements, dimensions and minibatches: sums, means, moments and extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..arguments import TOO_LARGE
from .native_kernels import Attrs, NodeEngine, NodeMaker, Nodes, along, plain, reduced
from .pick import without
from .spec import (
    BatchCall,
    Dim,
    Dims,
    Grads,
    Operation,
    Run,
    ShapeRule,
    declare,
    fail,
    scalar,
    unsqueeze_as,
    zeros_for,
)
from .unary import raise_kernel

Tensor = torch.Tensor


def _elements(attrs: Attrs, dims: Dims) -> Dim:
    return scalar(dims[0].batch)


def _batches(attrs: Attrs, dims: Dims) -> Dim:
    return Dim(dims[0].d)


def _checked(name: str, axes: Sequence[int], dims: Dims) -> None:
    if any(not 0 <= axis < len(dims[0].d) for axis in axes) or len(set(axes)) != len(axes):
        fail(name, dims, f"reduction dimensions {list(axes)} must be < number of dimensions, each once")


def _over(name: str) -> ShapeRule:
    """Return the shape rule for attributes that begin with (axes, include the minibatch)."""

    def shape(attrs: Attrs, dims: Dims) -> Dim:
        _checked(name, attrs[0], dims)
        return Dim(without(dims[0].d, attrs[0]), 1 if attrs[1] else dims[0].batch)

    return shape


def _axes(call: BatchCall) -> list[int]:
    """Return the tensor axes for the attributes (axes, include the minibatch)."""
    return [axis + 2 for axis in call.attrs[0]] + [1] * bool(call.attrs[1])


def _spread(g: Tensor, call: BatchCall, x: Tensor) -> Tensor:
    """Restore reduced axes of a result's gradient, with size 1."""
    shape = [*x.shape]
    shape[0] = g.shape[0]
    for axis in _axes(call):
        shape[axis] = 1
    return g.reshape(shape)


def _done(found: Tensor, call: BatchCall) -> Tensor:
    return found.reshape(found.shape[0], call.out.batch, *call.out.d)


def _sum_elems(call: BatchCall, x: Tensor) -> Tensor:
    return x.flatten(2).sum(2, keepdim=True)


def _sum_elems_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [unsqueeze_as(g, x).expand(g.shape[0], *x.shape[1:])]


def _batch_sum(call: BatchCall, x: Tensor) -> Tensor:
    return x.sum(1, keepdim=True)


def _batches_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g.expand(g.shape[0], *x.shape[1:])]


def _sum_dim(call: BatchCall, x: Tensor) -> Tensor:
    axes = _axes(call)
    return _done(x.sum(axes) if axes else x, call)


def _sum_dim_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [_spread(g, call, x).expand(g.shape[0], *x.shape[1:])]


def _count(call: BatchCall, x: Tensor) -> float:
    """Return the divisor of means: attribute n, or the number of elements."""
    given = call.attrs[-1]
    if given > 0:
        return float(given)
    total = 1
    for axis in _axes(call):
        total *= x.shape[axis]
    return float(total)


def _moment(call: BatchCall, x: Tensor) -> Tensor:
    power = call.attrs[2]
    axes = _axes(call)
    raised = x if power == 1 else x**power
    return _done(raised.sum(axes) if axes else raised, call) / _count(call, x)


def _moment_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    power = call.attrs[2]
    part = _spread(g / _count(call, x), call, x)
    return [(part if power == 1 else part * power * x ** (power - 1)).expand(g.shape[0], *x.shape[1:])]


def _std(call: BatchCall, x: Tensor) -> Tensor:
    axes = _axes(call)
    if not axes:
        return torch.zeros_like(x)
    count = _count(call, x)
    mean = x.sum(axes, keepdim=True) / count
    return _done(((x - mean) ** 2).sum(axes), call).div_(count).sqrt_()


def _std_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    """Ignore the effect of n on the mean, as DyNet does; exact without n."""
    axes = _axes(call)
    if not axes:
        return [None]
    count = _count(call, x)
    mean = x.sum(axes, keepdim=True) / count
    size = _spread(call.result, call, x)
    return [torch.where(size > 0, _spread(g, call, x) * (x - mean) / (count * size), 0.0)]


def _without(name: str, is_flat: bool = False) -> ShapeRule:
    """Return the shape rule for a dimension as the only attribute; with `is_flat`, for vectors and matrices only."""

    def shape(attrs: Attrs, dims: Dims) -> Dim:
        if is_flat and len(dims[0].d) > 2:
            fail(name, dims, "a vector or a matrix is needed")
        _checked(name, attrs, dims)
        return Dim(without(dims[0].d, attrs), dims[0].batch)

    return shape


def _extreme(find: Callable[..., Any]) -> Callable[[BatchCall, Tensor], Tensor]:
    def run(call: BatchCall, x: Tensor) -> Tensor:
        found, call.saved = find(x, call.attrs[0] + 2, keepdim=True)
        return _done(found, call)

    return run


def _extreme_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    found = zeros_for(g, x)
    indices = call.saved.expand(g.shape[0], *call.saved.shape[1:])
    return [found.scatter_(call.attrs[0] + 2, indices, g.reshape(indices.shape))]


def _logsumexp(call: BatchCall, x: Tensor) -> Tensor:
    return _done(torch.logsumexp(x, call.attrs[0] + 2), call)


def _logsumexp_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    axis = call.attrs[0] + 2
    shape = [*x.shape]
    shape[axis] = 1
    whole = call.result.reshape(-1, *shape[1:])
    return [g.reshape(-1, *shape[1:]) * torch.exp(x - whole)]


def _cumsum_shape(attrs: Attrs, dims: Dims) -> Dim:
    _checked("cumsum", attrs, dims)
    return dims[0]


def _cumsum(call: BatchCall, x: Tensor) -> Tensor:
    return x.cumsum(call.attrs[0] + 2)


def _norm(call: BatchCall, x: Tensor) -> Tensor:
    return x.flatten(2).square().sum(2, keepdim=True)


def _norm_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [2 * x * unsqueeze_as(g, x)]


def _length(call: BatchCall, x: Tensor) -> Tensor:
    return _norm(call, x).sqrt_()


def _length_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    size = unsqueeze_as(call.result, x)
    return [torch.where(size > 0, x * unsqueeze_as(g, x) / size, 0.0)]


def _sum_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return reduced(engine, "sum_dim", args[0], *attrs)


def _batches_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return reduced(engine, "sum_dim", args[0], (), True)


def _moment_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    axes, is_batch, power, divisor = attrs
    (x,) = args
    is_large = divisor >= TOO_LARGE or abs(power) >= TOO_LARGE
    if is_large or any(not 0 <= axis < len(engine.dim(x)[0]) for axis in axes):
        return -1
    if power != 1:
        x = raise_kernel(engine, (), args, float(power))
    return reduced(engine, "mean_dim", x, axes, is_batch, max(divisor, 0))


def _std_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    axes, is_batch, divisor = attrs
    if divisor >= TOO_LARGE:
        return -1
    return reduced(engine, "std_dim", args[0], axes, is_batch, max(divisor, 0))


def _l2_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return reduced(engine, "l2_norm", args[0], range(len(engine.dim(args[0])[0])), False)


def _along(name: str, run: Run, grad: Run, is_flat: bool = False) -> Operation:
    """Declare a reduction along a dimension, the only attribute; with `is_flat`, for vectors and matrices only."""

    def kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        return reduced(engine, name, args[0], attrs, False)

    return declare(name, _without(name, is_flat), run, grad, kernel=kernel)


def _whole(
    name: str, text: str, run: Run, grad: Run, kernel: NodeMaker | None = None, shape: ShapeRule = _elements
) -> Operation:
    """Declare a reduction of all elements; the native kernel has the same name by default."""
    return declare(name, shape, run, grad, kernel=kernel or plain(name), text=text)


SUM_ELEMS = _whole(
    "sum_elems", "Sum all elements, separately for each element of a minibatch.", _sum_elems, _sum_elems_grad
)
SUM_BATCHES = _whole(
    "sum_batches", "Sum the elements of the minibatch.", _batch_sum, _batches_grad, _batches_kernel, _batches
)
SQUARED_NORM = _whole("squared_norm", "Compute the sum of squares of all elements.", _norm, _norm_grad)
L2_NORM = _whole(
    "l2_norm", "Compute the root of the sum of squares of all elements.", _length, _length_grad, _l2_kernel
)
SUM_DIM = declare("sum_dim", _over("sum_dim"), _sum_dim, _sum_dim_grad, kernel=_sum_kernel)
MOMENT = declare("moment_dim", _over("moment_dim"), _moment, _moment_grad, kernel=_moment_kernel)
STD = declare("std_dim", _over("std_dim"), _std, _std_grad, kernel=_std_kernel)
MAX_DIM = _along("max_dim", _extreme(torch.max), _extreme_grad)
MIN_DIM = _along("min_dim", _extreme(torch.min), _extreme_grad)
LOGSUMEXP_DIM = _along("logsumexp_dim", _logsumexp, _logsumexp_grad, is_flat=True)
CUMSUM = declare("cumsum", _cumsum_shape, _cumsum, kernel=along("cumsum"))
