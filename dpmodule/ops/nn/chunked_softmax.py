"""Output layer and softmax of a large vocabulary, and their gradients, computed in chunks of rows.

The scores of all rows and their gradient are the largest tensors of a language model: tens of megabytes that are
written once and read once or twice, and do not fit any cache. Above some 32 MB the C library also allocates each of
them from the operating system, which costs as much as the arithmetic. A chunk of rows fits the cache, and only the
probabilities, which users see, are stored as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ..._core import torch_private
from ..spec import Env
from .layer_shapes import flat_from
from .linear import linear, use_onednn
from .softmax import label_scale, softmax_output, softmax_output_grad

_MIN_SCORES = 2**20
"""Number of scores below which rows are not chunked, since 4 MB fit the cache."""
_CHUNK_SCORES = 3 * 2**20
"""Approximate number of scores of a chunk; twice this must be below 32 MB, glibc's mmap threshold."""
_MAX_ROWS, _MIN_ROWS = 256, 64
"""Limits of the rows of a chunk: fewer make the products slower, more gain nothing."""
_FLOATS = frozenset([torch.float32, torch.float64])


class ChunkedSoftmax(NamedTuple):
    """Fixed arguments of a step that runs both layers.

    Attributes:
        softmax: attributes of the `SoftmaxOutput`, without multi_output, smooth_alpha and out_grad.
    """

    softmax: Any
    dense: Any
    has_bias: bool


def _use_chunks(data: torch.Tensor, weight: torch.Tensor, label: torch.Tensor) -> bool:
    """Return True if chunks are faster, and labels are class indices, one per row."""
    rows = data.shape[0]
    return (
        data.is_cpu
        and rows * weight.shape[0] >= _MIN_SCORES
        and rows > _MIN_ROWS
        and data.dtype in _FLOATS
        and weight.dtype is data.dtype
        and label.numel() == rows
        and not torch_private.is_transformed(data, weight, label)
    )


def _rows_per_chunk(classes: int) -> int:
    """Return the number of rows of a chunk; the last chunk may have fewer.

    The number is constant, so that all batches use the same compiled products and freed memory fits the next chunks.
    """
    most = _CHUNK_SCORES // classes // _MIN_ROWS * _MIN_ROWS
    return max(min(most, _MAX_ROWS), _MIN_ROWS)


def _chunks(rows: int, classes: int) -> Iterator[slice]:
    """Return the chunks of rows."""
    step = _rows_per_chunk(classes)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _probabilities(
    data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
) -> torch.Tensor:
    """Write the softmax of every row's scores into `out`."""
    for chunk in _chunks(*out.shape):
        torch.softmax(linear(data[chunk], weight, bias), 1, out=out[chunk])
    return out


def _take_memory(env: Env) -> torch.Tensor | None:
    """Return the memory offered for the result and remove it from `env`."""
    memory, env.memory = env.memory, None
    return memory


def _memory_or_new(memory: torch.Tensor | None, data: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the memory offered for the probabilities if it fits, else new memory."""
    shape = (data.shape[0], classes)
    if memory is not None and memory.shape == shape and memory.dtype is data.dtype and memory.is_contiguous():
        return memory
    return data.new_empty(shape)


def _round_rows_up(rows: int) -> int:
    """Round a number of rows up, for few distinct sizes although the amount of padding varies between batches."""
    return -(-rows // _MIN_ROWS) * _MIN_ROWS


class _Gradients:
    """Sum of the gradients of a dense layer over chunks."""

    def __init__(self, wanted: tuple[bool, bool, bool], data: torch.Tensor, weight: torch.Tensor) -> None:
        self.data, self.weight = data, weight
        self.for_data = torch.zeros_like(data) if wanted[0] else None
        self.for_bias = weight.new_zeros(weight.shape[0]) if wanted[2] else None
        # oneDNN is fast for the transposed product, of which only the small factor is copied
        self.turned = use_onednn(data, weight)
        shape = weight.shape[::-1] if self.turned else weight.shape
        self.for_weight = weight.new_zeros(shape) if wanted[1] else None

    def add(self, rows: torch.Tensor, grad: torch.Tensor) -> None:
        """Add the gradients of a chunk.

        Args:
            rows: (n,), indices of its rows of the data.
            grad: (m, classes), the gradient of the scores; zero from row n on.
        """
        if self.for_bias is not None:
            self.for_bias.add_(grad.sum(0))
        if self.for_data is not None:
            self.for_data.index_copy_(0, rows, linear(grad, self.weight.t())[: rows.shape[0]])
        if self.for_weight is not None:
            data = self.data.new_zeros(grad.shape[0], self.data.shape[1])
            data[: rows.shape[0]] = self.data.index_select(0, rows)
            if self.turned:
                self.for_weight.add_(torch_private.onednn_linear(data.t(), grad.t(), None, "none", [], ""))
            else:
                self.for_weight.addmm_(grad.t(), data)

    def gradients(self) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of data, weight and bias."""
        turned = self.turned and self.for_weight is not None
        return self.for_data, self.for_weight.t().contiguous() if turned else self.for_weight, self.for_bias  # type: ignore[union-attr]


def _score_gradients(
    a: Any, out: torch.Tensor, label: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield row indices and the gradient of their scores, in memory that is reused.

    Rows with an ignored label, the padding of a batch, have no gradient and are omitted. Zero rows follow the last
    rows.
    """
    classes = label.reshape(-1).long()
    scale = label_scale(a, classes, out)
    rows = torch.arange(classes.shape[0])
    if a.use_ignore:
        rows = (classes != int(a.ignore_label)).nonzero().view(-1)
    memory = out.new_empty(min(_round_rows_up(rows.shape[0]), _rows_per_chunk(out.shape[1])), out.shape[1])
    for chunk in _chunks(rows.shape[0], out.shape[1]):
        own = rows[chunk]
        count = own.shape[0]
        grad = torch.index_select(out, 0, own, out=memory[:count])
        labels = classes[own].unsqueeze(1)
        inside = labels.clamp(0, out.shape[1] - 1)
        at_labels = grad.gather(1, inside).sub_((labels == inside).to(grad.dtype)).mul_(scale)
        grad.mul_(scale).scatter_(1, inside, at_labels)
        memory[count : _round_rows_up(count)] = 0
        yield own, memory[: _round_rows_up(count)]


class _ChunkedFunction(torch.autograd.Function):
    """Autograd function of both layers; its incoming gradient is the probabilities, from which backward starts."""

    @staticmethod
    def forward(
        ctx: Any,
        data: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        label: torch.Tensor,
        a: Any,
        out: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(data, weight)
        ctx.label, ctx.a = label, a  # a label changed before backward counts with its new value
        _probabilities(data, weight, bias, out)
        return data.new_zeros(()).expand(1, *out.shape)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        total = _Gradients(ctx.needs_input_grad[:3], *ctx.saved_tensors)
        for rows, grad in _score_gradients(ctx.a, grads[0][0], ctx.label):
            total.add(rows, grad)
        return (*total.gradients(), None, None, None)


def _inputs(
    fixed: ChunkedSoftmax, data: torch.Tensor, rest: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return data as a matrix, weight, bias and label."""
    weight, label = rest[0], rest[-1]
    bias = rest[1].reshape(-1) if fixed.has_bias else None
    return data if data.dim() == 2 else flat_from(data, 1), weight, bias, label


def train_chunked(
    fixed: ChunkedSoftmax, env: Env, data: torch.Tensor, *rest: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a dense layer and its softmax; backward starts before the softmax.

    Args:
        env: device, and optionally memory for the result.
        data: (N, ...).
        rest: weight (M, K), optionally bias (M,), and label (N,).

    Returns:
        The root of backward and the probabilities (N, M). Without chunks, the root is the scores. With chunks, it is a
        placeholder of the scores with one more axis, and the initial gradient is the probabilities, see
        `chunked_head_gradient`.
    """
    memory = _take_memory(env)
    rows, weight, bias, label = _inputs(fixed, data, rest)
    if not _use_chunks(rows, weight, label):
        scores = fixed.dense(data, *rest[:-1])
        return scores, softmax_output(fixed.softmax, env, scores.detach(), label)
    out = _memory_or_new(memory, rows, weight.shape[0])
    root: torch.Tensor = _ChunkedFunction.apply(rows, weight, bias, label, fixed.softmax, out)  # type: ignore[no-untyped-call]
    return root, out


def predict_chunked(fixed: ChunkedSoftmax, env: Env, data: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """Run a dense layer and its softmax without backward; see `train_chunked`."""
    memory = _take_memory(env)
    rows, weight, bias, label = _inputs(fixed, data, rest)
    if not _use_chunks(rows, weight, label):
        probabilities: torch.Tensor = softmax_output(fixed.softmax, env, fixed.dense(data, *rest[:-1]), label)
        return probabilities
    return _probabilities(rows, weight, bias, _memory_or_new(memory, rows, weight.shape[0]))


def chunked_head_gradient(
    a: Any, env: Env, out: torch.Tensor, root: torch.Tensor, label: torch.Tensor
) -> torch.Tensor:
    """Return the initial gradient of backward at the first result of `train_chunked`."""
    return out.unsqueeze(0) if root.dim() == 3 else softmax_output_grad(a, env, out, root, label)
