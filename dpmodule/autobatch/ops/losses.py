"""Softmax, losses with labels, and losses of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .binary import MINUS, equal, reduced
from .native_kernels import (
    BINARY,
    OP,
    UNARY,
    Attrs,
    NodeEngine,
    NodeMaker,
    Nodes,
    along,
    chain,
    labelled,
    plain,
    unary,
)
from .reduce import SUM_ELEMS
from .spec import (
    BatchCall,
    Dim,
    Dims,
    Grads,
    Operation,
    ShapeRule,
    common_batch,
    declare,
    fail,
    scalar,
    unsqueeze_as,
    zeros_for,
)
from .unary import UNARY as UNARIES

Tensor = torch.Tensor


def _softmax_shape(attrs: Attrs, dims: Dims) -> Dim:
    if len(dims[0].d) > 2:
        fail("softmax", dims, "a vector or a matrix is needed")
    if attrs and not 0 <= attrs[0] < len(dims[0].d):
        fail("softmax", dims, f"reduction dimension must be < number of dimensions, was {attrs[0]}")
    return dims[0]


def _softmax(call: BatchCall, x: Tensor) -> Tensor:
    return torch.softmax(x, call.attrs[0] + 2)


def _softmax_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    part = g * call.result
    return [torch.addcmul(part, call.result, part.sum(call.attrs[0] + 2, keepdim=True), value=-1)]


def _log_softmax(call: BatchCall, x: Tensor) -> Tensor:
    return torch.log_softmax(x, 2)


def _log_softmax_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g - torch.exp(call.result) * g.sum(2, keepdim=True)]


def _restricted_shape(attrs: Attrs, dims: Dims) -> Dim:
    d = dims[0].d
    if len(d) > 1 and d[1] != 1:
        fail("log_softmax", dims, "a vector is needed to restrict")
    if any(not 0 <= place < d[0] for place in attrs[0]) or not attrs[0]:
        fail("log_softmax", dims, f"restrict={list(attrs[0])} is out of range")
    return dims[0]


def _restricted(call: BatchCall, x: Tensor) -> Tensor:
    indices = torch.tensor(call.attrs[0], device=call.device)
    found = torch.full_like(x, -torch.inf)
    return found.index_copy_(2, indices, torch.log_softmax(x.index_select(2, indices), 2))


def _restricted_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    indices = torch.tensor(call.attrs[0], device=call.device)
    once = torch.tensor([*dict.fromkeys(call.attrs[0])], device=call.device)  # the result has each index once
    part = g.index_select(2, once)
    share = torch.softmax(x.index_select(2, indices), 2)
    found = zeros_for(g, x)
    found.index_copy_(2, once, part)
    return [found.index_add_(2, indices, share * part.sum(2, keepdim=True), alpha=-1)]


def _vector(name: str, dims: Dims, needed: str = "a vector of scores is needed") -> Dim:
    """Return the `Dim` of the first operand, which must be a vector, apart from trailing ones."""
    if any(size != 1 for size in dims[0].d[1:]):
        fail(name, dims, needed)
    return dims[0]


def _labelled_shape(name: str, others: int = 0) -> ShapeRule:
    """Return the shape rule of a loss.

    Scores without a minibatch are used for every label.
    """

    def shape(attrs: Attrs, dims: Dims) -> Dim:
        batch = _vector(name, dims).batch
        (count,) = attrs[others:] or (batch,)
        if batch not in (1, count):
            fail(f"{name}_batch", dims, f"{count} labels for a minibatch of {batch}")
        return scalar(count)

    return shape


def _labels(call: BatchCall) -> Tensor:
    """Return the labels of all nodes and elements of the minibatch, (N, batch, 1)."""
    answer: Tensor = call.aux.view(call.count, -1, 1).expand(call.count, call.out.batch, 1)
    return answer


def _of_operand(found: Tensor, x: Tensor) -> Grads:
    """Reduce the gradient per label to that of the scores."""
    if x.shape[1] != found.shape[1]:
        found = found.sum(1, keepdim=True)
    return [found.reshape(found.shape[0], *x.shape[1:])]


def _logs(scores: Tensor) -> Tensor:
    """Compute the logarithm of the softmax of (N, batch, width); faster than torch for many short rows."""
    rows, width = scores.shape[0] * scores.shape[1], scores.shape[2]
    if rows < 4 * width:
        return torch.log_softmax(scores, 2)
    return torch.log_softmax(scores.view(rows, width).t(), 0).t().contiguous().view(scores.shape)


def _pnls(call: BatchCall, x: Tensor) -> Tensor:
    call.saved = logs = _logs(x.reshape(x.shape[0], x.shape[1], -1))
    return logs.expand(call.count, call.out.batch, -1).gather(2, _labels(call)).neg_()


def _pnls_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    found = torch.exp(call.saved) * g
    found.scatter_add_(2, _labels(call), -g)
    return _of_operand(found, x)


def _hinge(call: BatchCall, x: Tensor) -> Tensor:
    scores = x.reshape(x.shape[0], x.shape[1], -1).expand(call.count, call.out.batch, -1)
    labels = _labels(call)
    over = torch.relu(scores - scores.gather(2, labels) + call.attrs[0]).scatter(2, labels, 0.0)
    call.saved = over > 0
    return over.sum(2, keepdim=True)


def _hinge_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    found = call.saved * g
    found.scatter_(2, _labels(call), -found.sum(2, keepdim=True))
    return _of_operand(found, x)


def _hinge_dim_shape(attrs: Attrs, dims: Dims) -> Dim:
    axis, _ = attrs
    d = dims[0].d
    if len(d) != 2 or axis not in (0, 1):
        fail("hinge_dim", dims, "a matrix and d = 0 or 1 are needed")
    return Dim((d[1 - axis],), dims[0].batch)


def _hinge_dim(call: BatchCall, x: Tensor) -> Tensor:
    axis, margin = call.attrs
    scores = x.movedim(axis + 2, 3)
    labels = torch.tensor(call.aux, device=call.device).view(call.count, -1, call.out.d[0], 1)
    labels = labels.expand(call.count, x.shape[1], call.out.d[0], 1)
    scores = scores.expand(call.count, *scores.shape[1:])
    over = torch.relu(scores - scores.gather(3, labels) + margin)
    return over.scatter(3, labels, 0.0).sum(3)


def _sparsemax_shape(attrs: Attrs, dims: Dims) -> Dim:
    return _vector("sparsemax", dims, "a vector is needed")


def _sparsemax(call: BatchCall, x: Tensor) -> Tensor:
    scores = x.flatten(2)
    ordered = scores.sort(2, descending=True)[0]
    sums = ordered.cumsum(2)
    ranks = torch.arange(1, scores.shape[2] + 1, device=x.device, dtype=x.dtype)
    support = (ranks * ordered + 1 > sums).sum(2, keepdim=True).clamp(min=1)  # at least 1, for NaN
    threshold = (sums.gather(2, support - 1) - 1) / support
    return torch.relu(scores - threshold).reshape(x.shape)


def _sparsemax_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    inside: Tensor = call.result > 0
    mean = (g * inside).sum(2, keepdim=True) / inside.sum(2, keepdim=True)
    return [(g - mean) * inside]


def _constrained_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[0].d != dims[1].d or len(dims[0].d) != 1:
        fail("constrained_softmax", dims, "two vectors of one size are needed")
    return Dim(dims[0].d, common_batch("constrained_softmax", dims))


def _constrained(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    """Redistribute the probability above the bounds until no element exceeds its bound."""
    x, y = x + torch.zeros_like(y), y + torch.zeros_like(x)  # broadcast to a common shape
    weights = torch.exp(x - x.amax(2, keepdim=True))
    free = torch.ones_like(x, dtype=torch.bool)
    share = weights
    for _ in range(x.shape[2] + 1):
        mass = 1.0 - (y * ~free).sum(2, keepdim=True)
        share = torch.where(free, weights * mass / (weights * free).sum(2, keepdim=True).clamp(min=1e-30), y)
        over = free & (share > y)
        if not bool(over.any()):
            break
        free = free & ~over
    return share


def _restricted_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return engine.kernel_with_labels(OP["log_softmax"], args[0], 0.0, attrs[0]) if attrs[0] else -1


def _hinge_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    return engine.kernel(OP["hinge"], 0, args, attrs[0], aux)


def _hinge_dim_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    axis, margin = attrs
    return engine.kernel_with_labels(OP["hinge"], args[0], margin, aux, axis) if axis in (0, 1) else -1


SOFTMAX = declare("softmax", _softmax_shape, _softmax, _softmax_grad, kernel=along("softmax"))
LOG_SOFTMAX = declare(
    "log_softmax", _softmax_shape, _log_softmax, _log_softmax_grad, kernel=along("log_softmax")
)
RESTRICTED = declare(
    "log_softmax_restricted", _restricted_shape, _restricted, _restricted_grad, kernel=_restricted_kernel
)
_pnls_shape, _hinge_shape = _labelled_shape("pickneglogsoftmax"), _labelled_shape("hinge", 1)
PICKNEGLOGSOFTMAX = declare(
    "pickneglogsoftmax", _pnls_shape, _pnls, _pnls_grad, aux="int", kernel=plain("loss")
)
PICKNEGLOGSOFTMAX_BATCH = declare(
    "pickneglogsoftmax_batch", _pnls_shape, _pnls, _pnls_grad, aux="ints", kernel=labelled("loss")
)
HINGE = declare("hinge", _hinge_shape, _hinge, _hinge_grad, aux="int", kernel=_hinge_kernel)
HINGE_BATCH = declare("hinge_batch", _hinge_shape, _hinge, _hinge_grad, aux="ints", kernel=labelled("hinge"))
HINGE_DIM = declare("hinge_dim", _hinge_dim_shape, _hinge_dim, aux="object", kernel=_hinge_dim_kernel)
SPARSEMAX = declare("sparsemax", _sparsemax_shape, _sparsemax, _sparsemax_grad, kernel=plain("sparsemax"))
CONSTRAINED_SOFTMAX = declare(
    "constrained_softmax", _constrained_shape, _constrained, kernel=plain("constrained_softmax")
)


def _total(x: Tensor) -> Tensor:
    return x.flatten(2).sum(2, keepdim=True)


def _distance(
    name: str, kernel: str, value: Callable[..., Tensor], slope: Callable[..., Tensor]
) -> Operation:
    """Declare a distance: the sum of a function of differences, with an optional attribute."""

    def run(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
        return _total(value(x - y, *call.attrs))

    def grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
        part = slope(x - y, *call.attrs) * unsqueeze_as(g, x)
        return [reduced(part, x), reduced(-part, y)]

    return declare(name, equal(name, "both operands", True), run, grad, kernel=_of_difference(kernel))


def _huber(difference: Tensor, bound: float) -> Tensor:
    size = difference.abs()
    return torch.where(size < bound, size.square() / 2, bound * (size - bound / 2))


def _log_grad(call: BatchCall, g: Tensor, x: Tensor, y: Tensor) -> Grads:
    dx = torch.where(y == 1, -1 / x, torch.where(y == 0, 1 / (1 - x), (x - y) / (x * (1 - x))))
    dy = torch.log1p(-x) - torch.log(x)
    return [reduced(unsqueeze_as(g, x) * dx, x), reduced(unsqueeze_as(g, x) * dy, y)]


def _rank_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[0].d != dims[1].d or dims[0].d[0] != 1:
        needed = "rows of equal dimensions are needed"
        fail("pairwise_rank_loss", dims, f"Bad input dimensions in PairwiseRankLoss: {needed}")
    return Dim(dims[0].d, common_batch("pairwise_rank_loss", dims))


def _rank(call: BatchCall, x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(call.attrs[0] - x + y)


def _poisson_shape(attrs: Attrs, dims: Dims) -> Dim:
    if dims[0].size != 1:
        fail("poisson_loss", dims, "one number is needed")
    return dims[0]


def _poisson(call: BatchCall, x: Tensor) -> Tensor:
    count = call.aux.to(x.dtype).view(-1, *[1] * (x.dim() - 1))
    answer: Tensor = torch.exp(x) - count * x + torch.lgamma(count + 1)
    return answer


def _of_difference(name: str) -> NodeMaker:
    """Return the node maker of a distance."""
    op, kind = OP["unary"], UNARY[name]

    def make(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
        if engine.dim(args[0])[0] != engine.dim(args[1])[0]:
            return -1
        difference = chain(engine, args[0], (MINUS.kernel, args[1]))
        if difference < 0:
            return -1
        difference = engine.kernel(op, kind, (difference,), attrs[0] if attrs else 0.0)
        return chain(engine, difference, (SUM_ELEMS.kernel, None))

    return make


def _log_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    losses = engine.kernel(OP["binary"], BINARY["binary_log_loss"], args)
    return chain(engine, losses, (SUM_ELEMS.kernel, None))


def _rank_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    left, right = [engine.dim(arg)[0] for arg in args]
    difference = chain(engine, args[1], (MINUS.kernel, args[0])) if left == right and left[0] == 1 else -1
    if difference < 0:
        return -1
    return chain(engine, _SHIFTED(engine, (), (difference,), attrs[0]), (UNARIES["rectify"].kernel, None))


_SHIFTED = unary("shift")

SQUARED_DISTANCE = _distance("squared_distance", "square", torch.square, lambda difference: 2 * difference)
L1 = _distance("l1_distance", "abs", torch.abs, torch.sign)
HUBER = _distance(
    "huber_distance", "huber", _huber, lambda difference, bound: difference.clamp(-bound, bound)
)
BINARY_LOG = declare(
    "binary_log_loss",
    equal("binary_log_loss", "both operands", True),
    lambda call, x, y: -_total(torch.xlogy(y, x) + torch.xlogy(1 - y, 1 - x)),
    _log_grad,
    kernel=_log_kernel,
)
RANK = declare("pairwise_rank_loss", _rank_shape, _rank, kernel=_rank_kernel)
POISSON = declare(
    "poisson_loss", _poisson_shape, _poisson, aux="int", expand=True, kernel=unary("poisson_loss")
)
