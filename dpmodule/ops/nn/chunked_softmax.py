"""The last dense layer of a large vocabulary with its softmax and the gradient of both, some rows at a time.

The scores of all rows together, and the gradient there, are the largest tensors of a language model: tens of megabytes
that are written once, read once or twice, and leave every cache in between. Above some 32 MB the C library also takes
each of them from the operating system and gives it back, which costs as much as the arithmetic. A block of rows at a
time stays in the cache, and only the probabilities, which users see, exist as a whole.
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
"""Scores below which all rows are done at once: 4 MB stay in the cache as they are."""
_CHUNK_SCORES = 3 * 2**20
"""About how many scores a block has; twice this must stay below what glibc takes from the system, 32 MB."""
_MOST_ROWS, _LEAST_ROWS = 256, 64
"""Rows of a block: with fewer, the products are slower; with more, nothing is gained."""
_FLOATS = frozenset([torch.float32, torch.float64])


class ChunkedSoftmax(NamedTuple):
    """What a step that runs both layers is fixed to.

    Attributes:
        softmax: attributes of the `SoftmaxOutput`, without multi_output, smooth_alpha and out_grad.
    """

    softmax: Any
    dense: Any
    has_bias: bool


def _use_chunks(data: torch.Tensor, weight: torch.Tensor, label: torch.Tensor) -> bool:
    """Return True if blocks pay, and labels are class numbers, one for each row."""
    rows = data.shape[0]
    return (
        data.is_cpu
        and rows * weight.shape[0] >= _MIN_SCORES
        and rows > _LEAST_ROWS
        and data.dtype in _FLOATS
        and weight.dtype is data.dtype
        and label.numel() == rows
        and not any(map(torch_private.is_batched, (data, weight, label)))
    )


def _rows_per_chunk(classes: int) -> int:
    """Return how many rows a block has; the last one may have fewer.

    Always the same number: all batches then use the same compiled products, and blocks of memory that are freed fit
    the next ones.
    """
    most = _CHUNK_SCORES // classes // _LEAST_ROWS * _LEAST_ROWS
    return max(min(most, _MOST_ROWS), _LEAST_ROWS)


def _chunks(rows: int, classes: int) -> Iterator[slice]:
    """Return the blocks of some rows."""
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
    """Take the memory offered for the result away."""
    memory, env.memory = env.memory, None
    return memory


def _memory_or_new(memory: torch.Tensor | None, data: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the memory offered for the probabilities if it fits, else new memory."""
    shape = (data.shape[0], classes)
    if memory is not None and memory.shape == shape and memory.dtype is data.dtype and memory.is_contiguous():
        return memory
    return data.new_empty(shape)


def _round_rows_up(rows: int) -> int:
    """Return the next size of which there are few: how many rows are padding changes from batch to batch."""
    return -(-rows // _LEAST_ROWS) * _LEAST_ROWS


class _Gradients:
    """Adds up the gradients of a dense layer, block by block."""

    def __init__(self, wanted: tuple[bool, bool, bool], data: torch.Tensor, weight: torch.Tensor) -> None:
        self.data, self.weight = data, weight
        self.for_data = torch.zeros_like(data) if wanted[0] else None
        self.for_bias = weight.new_zeros(weight.shape[0]) if wanted[2] else None
        # what oneDNN does fast is the transposed product, of which only the small factor is copied
        self.turned = use_onednn(data, weight)
        shape = weight.shape[::-1] if self.turned else weight.shape
        self.for_weight = weight.new_zeros(shape) if wanted[1] else None

    def add(self, rows: torch.Tensor, grad: torch.Tensor) -> None:
        """Add what a block gives.

        Args:
            rows: (n,), which rows of the data it has.
            grad: (m, classes), the gradient there; zero in rows from n on.
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
    """Yield rows, and the gradient of their scores, in memory that the next ones overwrite.

    Rows whose label is ignored, the padding of a batch, have none and are left out. Rows of zeros follow the last
    ones.
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
    """Records both layers as one: takes the probabilities as its gradient, and makes from them what backward is."""

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
        ctx.label, ctx.a = label, a  # a label written before backward counts as it then is
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
    """Return data of two axes, weight, bias and label."""
    weight, label = rest[0], rest[-1]
    bias = rest[1].reshape(-1) if fixed.has_bias else None
    return data if data.dim() == 2 else flat_from(data, 1), weight, bias, label


def train_chunked(
    fixed: ChunkedSoftmax, env: Env, data: torch.Tensor, *rest: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a dense layer and its softmax, so that backward can start below the softmax.

    Args:
        env: device; the memory to use, if there is some.
        data: (N, ...).
        rest: weight (M, K), bias (M,) if there is one, and label (N,).

    Returns:
        Where backward starts, and the probabilities (N, M). The first has one axis more, and stands for the scores
        without having them, where rows are done in blocks: the gradient to start with is the probabilities then,
        see `chunked_head_gradient`. Else it is the scores.
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
    """Run a dense layer and its softmax where no backward follows; see `train_chunked`."""
    memory = _take_memory(env)
    rows, weight, bias, label = _inputs(fixed, data, rest)
    if not _use_chunks(rows, weight, label):
        found: torch.Tensor = softmax_output(fixed.softmax, env, fixed.dense(data, *rest[:-1]), label)
        return found
    return _probabilities(rows, weight, bias, _memory_or_new(memory, rows, weight.shape[0]))


def chunked_head_gradient(
    a: Any, env: Env, out: torch.Tensor, root: torch.Tensor, label: torch.Tensor
) -> torch.Tensor:
    """Return the gradient with which backward starts at the first result of `train_chunked`."""
    return out.unsqueeze(0) if root.dim() == 3 else softmax_output_grad(a, env, out, root, label)
