"""Concatenation, reshape and transpose."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..arguments import TOO_LARGE
from .native_kernels import OP, Attrs, NodeEngine, NodeLayout, Nodes, arranged, plain
from .spec import BatchCall, Dim, Dims, Grads, common_batch, declare, fail, target

Tensor = torch.Tensor
_MAX_DIMENSIONS = 7  # DyNet's limit of dimensions


def _padded(d: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*d, *[1] * (rank - len(d)))


def _check_axis(axis: int, dims: Dims) -> None:
    if not 0 <= axis < _MAX_DIMENSIONS:
        fail("concatenate", dims, f"the dimension is {axis}, expected 0 ... {_MAX_DIMENSIONS - 1}")


def _concatenate_shape(attrs: Attrs, dims: Dims) -> Dim:
    (axis,) = attrs
    _check_axis(axis, dims)
    rank = max(axis + 1, *(len(dim.d) for dim in dims))
    first = _padded(dims[0].d, rank)
    total = 0
    for dim in dims:
        d = _padded(dim.d, rank)
        if d[:axis] + d[axis + 1 :] != first[:axis] + first[axis + 1 :]:
            what = f"all but dimension {axis} need to agree"
            fail("concatenate", dims, f"Bad input dimensions in Concatenate: {what}")
        total += d[axis]
    return Dim((*first[:axis], total, *first[axis + 1 :]), common_batch("concatenate", dims))


def _concatenate(call: BatchCall, *xs: Tensor) -> Tensor:
    (axis,) = call.attrs
    rank, batch = len(call.out.d), call.out.batch
    count = max(x.shape[0] for x in xs)
    parts = []
    for x, dim in zip(xs, call.dims):
        if len(dim.d) != rank:
            x = x.reshape(*x.shape[:2], *_padded(dim.d, rank))
        if x.shape[0] != count or x.shape[1] != batch:
            x = x.expand(count, batch, *x.shape[2:])
        parts.append(x)
    return torch.cat(parts, axis + 2, out=target(call))


def _concatenate_grad(call: BatchCall, g: Tensor, *xs: Tensor) -> Grads:
    (axis,) = call.attrs
    rank = len(call.out.d)
    sizes = [_padded(dim.d, rank)[axis] for dim in call.dims]
    found: Grads = []
    for part, x in zip(torch.split(g, sizes, axis + 2), xs):
        found.append(_batch_sum(part, x).reshape(-1, *x.shape[1:]))
    return found


def _batch_sum(g: Tensor, x: Tensor) -> Tensor:
    return g.sum(1, keepdim=True) if x.shape[1] != g.shape[1] else g


def _many_shape(attrs: Attrs, dims: Dims) -> Dim:
    axis, count = attrs
    _check_axis(axis, dims)
    d = _padded(dims[0].d, axis + 1)
    return Dim((*d[:axis], d[axis] * count, *d[axis + 1 :]), dims[0].batch)


def _many(call: BatchCall, x: Tensor) -> Tensor:
    """Concatenate (nodes * k, batch, *d) along a dimension."""
    axis, count = call.attrs
    d = _padded(call.dims[0].d, axis + 1)
    x = x.reshape(call.count, count, call.out.batch, *d)
    return x.movedim(1, axis + 2).reshape(call.count, call.out.batch, *call.out.d)


def _many_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    axis, count = call.attrs
    d = _padded(call.dims[0].d, axis + 1)
    g = g.reshape(call.count, call.out.batch, *d[:axis], count, *d[axis:])
    return [g.movedim(axis + 2, 1).reshape(x.shape)]


def _to_batch_shape(attrs: Attrs, dims: Dims) -> Dim:
    if any(dim.d != dims[0].d for dim in dims):
        fail("concatenate_to_batch", dims, "all operands need the same dimensions")
    return Dim(dims[0].d, sum(dim.batch for dim in dims))


def _to_batch(call: BatchCall, *xs: Tensor) -> Tensor:
    count = max(x.shape[0] for x in xs)
    return torch.cat([x.expand(count, *x.shape[1:]) for x in xs], 1)


def _to_batch_grad(call: BatchCall, g: Tensor, *xs: Tensor) -> Grads:
    return list(torch.split(g, [dim.batch for dim in call.dims], 1))


def _backwards(x: Tensor) -> Tensor:
    """Reverse the dimensions, so that row-major order becomes DyNet's column-major order."""
    return x.permute(0, 1, *range(x.dim() - 1, 1, -1))


def _reshape_shape(attrs: Attrs, dims: Dims) -> Dim:
    target: Dim = attrs[0]
    size = dims[0].size
    if target.batch == 1 and target.size == size:
        return Dim(target.d, dims[0].batch)
    if target.size * target.batch != size * dims[0].batch:
        fail("reshape", [target, *dims], "Bad arguments to Reshape: the numbers of elements differ")
    return target


def _reshape(call: BatchCall, x: Tensor) -> Tensor:
    out = call.out
    if len(out.d) <= 1 and x.dim() <= 3:
        return x.reshape(x.shape[0], out.batch, *out.d)
    return _backwards(_backwards(x).reshape(x.shape[0], out.batch, *out.d[::-1]))


def _reshape_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [_backwards(_backwards(g).reshape(g.shape[0], *x.shape[1:2], *x.shape[:1:-1]))]


def _transpose_shape(attrs: Attrs, dims: Dims) -> Dim:
    (order,) = attrs
    d = _padded(dims[0].d, len(order))
    if sorted(order) != list(range(len(d))):
        fail("transpose", dims, f"dims={list(order)} needs to contain each of the {len(d)} dimensions once")
    found = [d[axis] for axis in order]
    while len(found) > len(dims[0].d) and found[-1] == 1:
        found.pop()
    return Dim(tuple(found), dims[0].batch)


def _transpose(call: BatchCall, x: Tensor) -> Tensor:
    (order,) = call.attrs
    x = x.reshape(*x.shape[:2], *_padded(call.dims[0].d, len(order)))
    return x.permute(0, 1, *(axis + 2 for axis in order)).reshape(*x.shape[:2], *call.out.d)


def _transpose_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    (order,) = call.attrs
    g = g.reshape(*g.shape[:2], *_padded(call.out.d, len(order)))
    back = sorted(range(len(order)), key=order.__getitem__)
    return [g.permute(0, 1, *(axis + 2 for axis in back)).reshape(g.shape[0], *x.shape[1:])]


def _concatenate_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return engine.kernel(OP["concat"], attrs[0], args) if 0 <= attrs[0] < TOO_LARGE else -1


def _reshape_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    dims, batch = engine.dim(args[0])
    target = attrs[0]
    size = math.prod(dims)
    if target.size * target.batch not in (size, size * batch):  # the minibatch may be omitted
        return -1
    return engine.kernel(OP["arrangement"], engine.shape(target.d, target.batch), args)


def _transpose_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    (order,) = attrs
    if order == (1, 0):
        return engine.kernel(OP["arrangement"], -1, args)
    x = NodeLayout(engine, args[0])
    if len(order) < len(x.d) or sorted(order) != list(range(len(order))):
        return -1
    loops = [(x.d[axis], x.steps[axis]) if axis < len(x.d) else (1, 1) for axis in order]
    dims = [size for size, _ in loops]
    while len(dims) > len(x.d) and dims[-1] == 1:
        dims.pop()
    return arranged(engine, "transpose", args[0], [(x.batch, x.size), *loops], (dims, x.batch))


CONCATENATE = declare(
    "concatenate", _concatenate_shape, _concatenate, _concatenate_grad, kernel=_concatenate_kernel
)
CONCATENATE_MANY = declare(
    "concatenate_many", _many_shape, _many, _many_grad, many=True, kernel=_concatenate_kernel
)
TO_BATCH = declare(
    "concatenate_to_batch", _to_batch_shape, _to_batch, _to_batch_grad, kernel=plain("concat", -1)
)
TO_BATCH_MANY = declare(
    "concatenate_to_batch_many",
    lambda attrs, dims: Dim(dims[0].d, dims[0].batch * attrs[0]),
    lambda call, x: x.reshape(call.count, call.out.batch, *call.out.d),
    lambda call, g, x: [g.reshape(x.shape)],
    many=True,
    kernel=plain("concat", -1),
)
RESHAPE = declare("reshape", _reshape_shape, _reshape, _reshape_grad, kernel=_reshape_kernel)
TRANSPOSE = declare("transpose", _transpose_shape, _transpose, _transpose_grad, kernel=_transpose_kernel)
