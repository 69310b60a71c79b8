"""Matrix products, affine maps and other linear algebra."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ..._core import torch_private
from ...ops.nn.linear import onednn_is_faster
from ...ops.nn.linear import product as onednn_product
from ..errors import ArgumentError
from .binary import aligned, equal, reduced
from .native_kernels import BINARY, OP, Attrs, NodeEngine, Nodes, fits, plain, view_as
from .spec import BatchCall, Dim, Dims, Grads, common_batch, declare, fail, scalar, target, unsqueeze_as

Tensor = torch.Tensor

_LARGE = 1_500_000
"""Number of multiplications from which oneDNN is faster."""


def is_large(left: Tensor, right: Tensor) -> bool:
    """Return True if ``left @ right.T`` should use oneDNN."""
    return (
        left.shape[0] * right.numel() >= _LARGE
        and left.dtype is right.dtype is torch.float32
        and left.device.type == "cpu"
        and onednn_is_faster()
    )


def product(left: Tensor, right: Tensor, into: Tensor | None = None) -> Tensor:
    """Return ``left @ right.T``, written to `into` if given."""
    if is_large(left, right):
        found = onednn_product(left, right)
        return found if into is None else into.copy_(found)
    return torch.mm(left, right.t(), out=into)


def affine(x: Tensor, matrix: Tensor, bias: Tensor | None, into: Tensor | None) -> Tensor:
    """Return ``x @ matrix.T + bias``.

    Args:
        x: (N, K).
        matrix: (M, K).
        bias: (M,), or None for zeros.
        into: (N, M), memory for the result, or None for new memory.
    """
    if is_large(x, matrix):
        found = torch_private.onednn_linear(x, matrix, bias, "none", [], "")
        return found if into is None else into.copy_(found)
    if into is None:
        return F.linear(x, matrix, bias)
    if bias is None:
        return torch.mm(x, matrix.t(), out=into)
    return torch.addmm(bias, x, matrix.t(), out=into)


def _product(name: str, x: Dim, y: Dim, dims: Dims) -> tuple[int, ...]:
    if len(x.d) > 2 or len(y.d) > 2:
        fail(name, dims, "tensors of more than 2 dimensions cannot be multiplied")
    inner = x.d[1] if len(x.d) == 2 else 1
    if inner != y.d[0]:
        fail(name, dims, f"the left one has {inner} columns, the right one {y.d[0]} rows")
    return (x.d[0],) if len(y.d) == 1 else (x.d[0], y.d[1])


def _matmul_shape(attrs: Attrs, dims: Dims) -> Dim:
    return Dim(_product("multiply", dims[0], dims[1], dims), common_batch("multiply", dims))


def _matrix(x: Tensor, dim: Dim) -> Tensor:
    """View an operand as matrices, where a vector is one column."""
    return x if len(dim.d) == 2 else x.unsqueeze(-1)


def _is_shared(x: Tensor, dim: Dim) -> bool:
    return x.shape[0] == 1 and dim.batch == 1 and len(dim.d) == 2


def _is_plain(call: BatchCall, at: int, x: Tensor, y: Tensor) -> bool:
    """Return True if operand `at` is one matrix shared by all nodes, and the next operand one vector per node."""
    return y.dim() == 3 and _is_shared(x, call.dims[at]) and y.shape[:2] == (call.count, call.out.batch)


def _plain(call: BatchCall, x: Tensor, y: Tensor, bias: Tensor | None) -> Tensor:
    memory = target(call)
    flat = None if memory is None else memory.flatten(0, 1)
    found = affine(y.flatten(0, 1), x.flatten(0, 2), None if bias is None else bias.flatten(), flat)
    return found.view(*y.shape[:2], -1) if memory is None else memory


def _plain_grads(call: BatchCall, at: int, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    """Return the gradients of the bias, if any, of the matrix and of the vectors."""
    wants = call.wants or (True,) * len(call.dims)
    rows, matrix = g.flatten(0, 1), x.flatten(0, 2)
    grads: Grads = [None] * (at + 2)
    has_bias = at > 0 and wants[0]
    if wants[at] and call.defer is not None:
        call.defer(at, rows, y.flatten(0, 1), 0 if has_bias else -1)
    else:
        if wants[at]:
            grads[at] = product(rows.t(), y.flatten(0, 1).t())[None, None]
        if has_bias:
            grads[0] = rows.sum(0).view(1, 1, *call.dims[0].d)
    if wants[-1]:
        memory = target(call, at + 1)
        into = None if memory is None else memory.flatten(0, 1)
        grad = product(rows, matrix.t(), into)
        grads[-1] = grad.view(y.shape) if memory is None else memory
    return grads


def _multiply(x: Tensor, y: Tensor, left: Dim, right: Dim) -> Tensor:
    if len(right.d) == 1:
        if _is_shared(x, left):
            return affine(y.flatten(0, 1), x[0, 0], None, None).view(*y.shape[:2], -1)
        return torch.matmul(_matrix(x, left), y.unsqueeze(-1)).squeeze(-1)
    return torch.matmul(_matrix(x, left), y)


def _rows(x: Tensor, dim: Dim) -> Tensor:
    """View all columns of all nodes and minibatch elements as rows of a matrix."""
    if len(dim.d) == 1:
        return x.reshape(-1, dim.d[0])
    return x.transpose(2, 3).reshape(-1, dim.d[0])


def _multiply_grad(
    call: BatchCall, g: Tensor, at: int, x: Tensor, y: Tensor, result: Dim
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of the factors `at` and `at` + 1, or defer the left one."""
    left, right = call.dims[at], call.dims[at + 1]
    wants = call.wants or (True,) * len(call.dims)
    dx = dy = None
    if _is_shared(x, left) and call.defer is not None:
        if wants[at]:
            many = g if len(right.d) == len(result.d) else aligned(g, result, len(right.d))
            call.defer(
                at, _rows(many, Dim(many.shape[2:])), _rows(y.expand(*g.shape[:2], *y.shape[2:]), right)
            )
    elif wants[at]:
        many = g if len(result.d) == 2 else g.unsqueeze(-1)
        dx = reduced(torch.matmul(many, _matrix(y, right).transpose(2, 3)), _matrix(x, left)).reshape(x.shape)
    if wants[at + 1]:
        if len(right.d) == 1 and _is_shared(x, left):
            dy = reduced(product(g.flatten(0, 1), x[0, 0].t()).view(*g.shape[:2], -1), y)
        else:
            many = g if len(result.d) == 2 else g.unsqueeze(-1)
            found = torch.matmul(_matrix(x, left).transpose(2, 3), many)
            dy = reduced(found, _matrix(y, right)).reshape(y.shape)
    return dx, dy


def _matmul(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    if _is_plain(call, 0, x, y):
        return _plain(call, x, y, None)
    return _multiply(x, y, call.dims[0], call.dims[1])


def _matmul_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    if _is_plain(call, 0, x, y):
        return _plain_grads(call, 0, g, x, y)
    return list(_multiply_grad(call, g, 0, x, y, call.out))


def _affine_shape(attrs: Attrs, dims: Dims) -> Dim:
    if len(dims) % 2 == 0:
        needed = "a bias, and pairs of a matrix and its factor, are needed"
        fail("affine_transform", dims, needed)
    if len(dims) == 1:
        return dims[0]
    shapes = {_product("affine_transform", x, y, dims) for x, y in zip(dims[1::2], dims[2::2])}
    shapes = {d[:1] if len(d) == 2 and d[1] == 1 else d for d in shapes}
    found = shapes.pop()
    bias = dims[0].d[:1] if len(dims[0].d) == 2 and dims[0].d[1] == 1 else dims[0].d
    if shapes or bias not in (found, found[:1]):
        fail("affine_transform", dims, "the products and the bias need equal dimensions")
    return Dim(found, common_batch("affine_transform", dims))


def _affine(call: BatchCall, bias: Tensor, *xs: Tensor) -> Tensor:
    if len(xs) == 2 and bias.shape[:2] == (1, 1) and _is_plain(call, 1, *xs):
        return _plain(call, *xs, bias)
    rank = len(call.out.d)
    total = _fit(bias, call.dims[0], rank)
    for i in range(0, len(xs), 2):
        total = total + _fit(_multiply(xs[i], xs[i + 1], call.dims[i + 1], call.dims[i + 2]), None, rank)
    return total


def _fit(x: Tensor, dim: Dim | None, rank: int) -> Tensor:
    """Give a product or bias `rank` dimensions by adding or removing a dimension of one column."""
    if x.dim() - 2 == rank:
        return x
    return x.unsqueeze(-1) if x.dim() - 2 < rank else x.squeeze(-1)


def _affine_grad(call: BatchCall, g: Tensor, bias: Tensor, *xs: Tensor) -> Grads:
    if len(xs) == 2 and bias.shape[:2] == (1, 1) and _is_plain(call, 1, *xs):
        return _plain_grads(call, 1, g, *xs)
    rank = len(call.out.d)
    fitted = _fit(bias, call.dims[0], rank)
    grads: Grads = [reduced(g, fitted).reshape(bias.shape)]
    for i in range(0, len(xs), 2):
        right = call.dims[i + 2]
        part = g if len(right.d) == rank else g.unsqueeze(-1)
        result = Dim(call.out.d if len(right.d) == rank else (*call.out.d, 1), call.out.batch)
        grads += _multiply_grad(call, part, i + 1, xs[i], xs[i + 1], result)
    return grads


def _stack(call: BatchCall, *operands: Tensor) -> Tensor:
    """Compute several stacked products: the rows of the first one for all nodes, then those of the next one."""
    *held, y = operands
    count, matrix, rows = call.attrs[0], held[-1], y.flatten(0, 1)
    shape = (count, len(rows), matrix.shape[1])
    wide, memory, flat = rows.expand(count, *rows.shape), target(call), matrix.flatten(0, 1)
    into = None if memory is None else memory.view(shape)
    if is_large(rows, flat):  # one wide product is faster, even though its columns must be split
        bias = None if len(held) == 1 else held[0].flatten()
        parts = affine(rows, flat, bias, None).view(len(rows), count, -1).transpose(0, 1)
        found = parts.contiguous() if into is None else into.copy_(parts)
    elif len(held) == 1:
        found = torch.bmm(wide, matrix.mT, out=into)
    else:
        found = torch.baddbmm(held[0].unsqueeze(1), wide, matrix.mT, out=into)
    return found.view(call.count, *y.shape[1:2], -1) if memory is None else memory


def _stack_grad(call: BatchCall, g: Tensor, *operands: Tensor) -> Grads:
    *held, y = operands
    count, matrix, rows = call.attrs[0], held[-1].flatten(0, 1), y.flatten(0, 1)
    side = g.view(count, len(rows), -1).transpose(0, 1).reshape(len(rows), -1)
    return _plain_grads(call, len(held) - 1, side.unsqueeze(1), matrix[None, None], y)


def _dot(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return (x * y).flatten(2).sum(2, keepdim=True)


def _dot_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    return [reduced(unsqueeze_as(g, x) * y, x), reduced(unsqueeze_as(g, x) * x, y)]


def _square(name: str, attrs: Attrs, dims: Dims) -> Dim:
    if len(dims[0].d) != 2 or dims[0].d[0] != dims[0].d[1]:
        fail(name, dims, "a square matrix is needed")
    return dims[0]


def _inverse_shape(attrs: Attrs, dims: Dims) -> Dim:
    return _square("inverse", attrs, dims)


def _inverse(call: BatchCall, x: Tensor) -> Tensor:
    try:
        answer: Tensor = torch.linalg.inv(x)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        raise ArgumentError("inverse: a matrix is singular") from None
    return answer


def _logdet(call: BatchCall, x: Tensor) -> Tensor:
    answer: Tensor = torch.linalg.slogdet(x)[1].unsqueeze(-1)
    return answer


def _contract_shape(attrs: Attrs, dims: Dims) -> Dim:
    vectors, has_bias = attrs
    tensor = dims[0].d
    name = "contract3d_1d" + "_1d" * (vectors - 1) + "_bias" * has_bias
    if len(tensor) > 3 or len(tensor) < vectors:
        fail(name, dims, "the first operand needs 3 dimensions")
    full = (*tensor, *[1] * (3 - len(tensor)))
    for i in range(vectors):
        if dims[1 + i].d != (full[2 - i],):
            fail(name, dims, f"operand {2 + i} needs the dimensions ({full[2 - i]},)")
    found = full[: 3 - vectors]
    if has_bias and _trim(dims[-1].d) != _trim(found):
        fail(name, dims, f"the bias needs the dimensions {found}")
    return Dim(found, common_batch(name, dims))


def _trim(d: tuple[int, ...]) -> tuple[int, ...]:
    """Remove trailing dimensions of 1, except the first dimension."""
    while len(d) > 1 and d[-1] == 1:
        d = d[:-1]
    return d


def _contract(call: BatchCall, x: Tensor, *rest: Tensor) -> Tensor:
    vectors, has_bias = call.attrs
    found = aligned(x, call.dims[0], 3)
    for v in rest[:vectors]:
        found = torch.matmul(found, v.reshape(*v.shape[:2], *[1] * (found.dim() - 4), -1, 1)).squeeze(-1)
    return found + rest[-1].reshape(*rest[-1].shape[:2], *call.out.d) if has_bias else found


def _contract_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    vectors, has_bias = attrs
    d = engine.dim(args[0])[0]
    if not vectors <= len(d) <= 3 or not fits(engine, *args):
        return -1
    rest = list(d) + [1] * (3 - len(d))
    node = args[0]
    for v in args[1 : 1 + vectors]:
        size = rest.pop()
        if engine.dim(v)[0] != (size,):
            return -1
        matrix = view_as(engine, node, (math.prod(rest), size))
        node = view_as(engine, engine.kernel(OP["multiply"], 0, (matrix, v)), tuple(rest))
    if not has_bias:
        return node
    bias = args[-1]
    if _trim(engine.dim(bias)[0]) != _trim(tuple(rest)):
        return -1
    return engine.kernel(OP["binary"], BINARY["add"], (node, view_as(engine, bias, tuple(rest))))


MATMUL = declare("multiply", _matmul_shape, _matmul, _matmul_grad, matrix=0, kernel=plain("multiply"))
STACK = declare("products", _affine_shape, _stack, _stack_grad)
AFFINE = declare("affine_transform", _affine_shape, _affine, _affine_grad, matrix=1, kernel=plain("affine"))
DOT = declare(
    "dot_product", equal("dot_product", "both operands", True), _dot, _dot_grad, kernel=plain("dot")
)
INVERSE = declare("inverse", _inverse_shape, _inverse, kernel=plain("inverse"))
LOGDET = declare("logdet", lambda attrs, dims: scalar(_square("logdet", attrs, dims).batch), _logdet)
TRACE = declare(
    "trace_of_product", equal("trace_of_product", "both matrices", True), _dot, _dot_grad, kernel=plain("dot")
)
CONTRACT = declare("contract3d", _contract_shape, _contract, kernel=_contract_kernel)
