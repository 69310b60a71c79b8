"""Operands of batches: ranges of the results of earlier batches, and of tensors of the program."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from ..._core import torch_private

Tensor = torch.Tensor

SHARED, WHOLE, BLOCK, RANGES = range(4)
"""How the recorder gives an operand: one range for all, a whole source in order, a block of rows, or ranges."""

_COPIED = {torch.float32, torch.float64}
"""Dtypes whose gradients the recorder adds."""


class _Gather(torch.autograd.Function):
    """Ranges of several tensors as one flat tensor; its gradient is `_Scatter`."""

    @staticmethod
    def forward(ctx: Any, ranges: Any, *sources: Tensor) -> Tensor:
        ctx.ranges = ranges
        ctx.shapes = [source.shape for source in sources]
        return _gathered(ranges, sources)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_scatter(ctx.ranges, ctx.shapes, ctx.needs_input_grad[1:], grad)


class _Scatter(torch.autograd.Function):
    """The gradients of the sources of `_Gather`."""

    @staticmethod
    def forward(
        ctx: Any, ranges: Any, shapes: Sequence[torch.Size], wants: Sequence[bool], grad: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.ranges, ctx.wants = ranges, wants
        ctx.set_materialize_grads(True)
        return tuple(each for each in _scattered(ranges, shapes, wants, grad) if each is not None)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found = iter(grads)
        zero = grads[0].new_zeros(())
        needed = {source for source, _, _ in ctx.ranges.listed()}
        sources = [next(found) if wanted else zero for wanted in ctx.wants]
        if not all(ctx.wants[source] for source in needed):  # ranges of other sources have no gradient
            pieces = [
                sources[source].reshape(-1)[offset : offset + size]
                if ctx.wants[source]
                else zero.expand(size)
                for source, offset, size in ctx.ranges.listed()
            ]
            return None, None, None, torch.cat(pieces)
        return None, None, None, _gather_apply(ctx.ranges, *sources)


_gather_apply = torch_private.autograd_apply(_Gather)
_scatter_apply = torch_private.autograd_apply(_Scatter)


def _in_memory(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory has its numbers in order: not conjugated or negated, and no zeros without memory."""
    if tensor._is_zerotensor():
        return torch.zeros_like(tensor)
    return tensor.contiguous().resolve_conj().resolve_neg()


def _gathered(ranges: Any, sources: Sequence[Tensor]) -> Tensor:
    joined = [_in_memory(source.detach()) for source in sources]
    out = joined[0].new_empty(ranges.total)
    ranges.gather(out.data_ptr(), [each.data_ptr() for each in joined], out.element_size())
    return out


def _scattered(
    ranges: Any, shapes: Sequence[torch.Size], wants: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    grad = _in_memory(grad)
    found = [grad.new_zeros(shape) if wanted else None for shape, wanted in zip(shapes, wants)]
    ranges.scatter(
        grad.data_ptr(),
        [0 if each is None else each.data_ptr() for each in found],
        grad.dtype == torch.float64,
    )
    return found


def _scatter(
    ranges: Any, shapes: Sequence[torch.Size], wants: Sequence[bool], grad: Tensor
) -> list[Tensor | None]:
    if not (torch.is_grad_enabled() and grad.requires_grad):
        return _scattered(ranges, shapes, wants, grad)
    found = iter(_scatter_apply(ranges, shapes, wants, grad))
    return [next(found) if wanted else None for wanted in wants]


def gather(sources: Sequence[Tensor], ranges: Any) -> Tensor:
    """Join ranges of tensors of one dtype.

    Shape:
        returns: (elements of all ranges,).
    """
    needs_grad = torch.is_grad_enabled() and any(source.requires_grad for source in sources)
    is_on_cpu = all(source.device.type == "cpu" for source in sources)
    if is_on_cpu and not needs_grad:
        return _gathered(ranges, sources)
    if is_on_cpu and sources[0].dtype in _COPIED:
        found: Tensor = _gather_apply(ranges, *sources)
        return found
    flat = [source.reshape(-1) for source in sources]
    pieces = [flat[source][offset : offset + size] for source, offset, size in ranges.listed()]
    return torch.cat(pieces)


def range_of(source: Tensor, offset: int, shape: Sequence[int]) -> Tensor:
    """Return a range of a tensor's elements with another shape.

    Shape:
        returns: `shape`.
    """
    if source.shape == shape and offset == 0:
        return source
    size = prod(shape)
    if source.numel() == size:
        return source.reshape(shape)
    if source.dim() > 1 and size and offset % size == 0 and source.shape[1:].numel() == size:
        return source[offset // size].reshape(shape)
    flat = source.reshape(-1)
    return flat[offset] if len(shape) == 0 else flat[offset : offset + size].view(shape)


def batched(operand: tuple[Any, ...], count: int) -> Tensor:
    """Return an operand of equal shapes for all examples.

    Shape:
        returns: (count, *shape).
    """
    kind, source, second, row, column, shape = operand
    if kind == WHOLE:
        return source if source.shape == (count, *shape) else source.reshape(count, *shape)  # type: ignore[no-any-return]
    if kind == BLOCK:
        return _block(source, second, row, column, count, shape).reshape(count, *shape)
    return gather(source, second).view(count, *shape)


def joined(operand: tuple[Any, ...], tail: Sequence[int], count: int) -> Tensor:
    """Return an operand of several lengths with the rows of all examples one after the other.

    Shape:
        returns: (rows, *tail).
    """
    kind, source, second, row, column, shape = operand
    if kind == WHOLE:
        found = source
    elif kind == BLOCK:
        found = _block(source, second, row, column, count, shape)
    else:
        found = gather(source, second)
    return found.reshape(-1, *tail)  # type: ignore[no-any-return]


def _block(source: Tensor, width: int, row: int, column: int, count: int, shape: Sequence[int]) -> Tensor:
    size = prod(shape)
    rows = source if source.dim() == 2 and source.shape[1] == width else source.reshape(-1, width)
    if row or rows.shape[0] != count:
        rows = rows[row : row + count]
    return rows if size == width else rows[:, column : column + size]
