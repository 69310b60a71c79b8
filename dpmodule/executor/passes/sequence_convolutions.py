"""Run convolutions over sequences, with relu, as products of overlapping windows and packed weights.

For prediction only. With channels innermost in memory, a window is a row of a matrix whose rows overlap, so nothing is
copied. Results differ by rounding.

Memory: a copy of the weights that predict twice or more, until they change.

Needs:
    storage: dense
    rank: data (N, C, W), not empty
    type: float32 on the CPU for all operands; others run as before
    layout: any; the result has channels innermost
    gradients: none recorded
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ...ops.nn.linear import FEW_ROWS, dense, is_float32_cpu, pack_for, packs_well
from ..lowering import Lowered
from ..packed_weights import packed
from .dense_layers import is_relu

_MAX_COPIED = 2**16
"""Size of data up to which any filters pay for moving its channels."""
_MAX_PLAIN, _FEW_SAMPLES = 20480, 16
"""Size of a single sample, and number of samples for windows of one element, up to which torch runs without oneDNN, and
therefore faster."""
_MAX_KNOWN = 64
_MIN_PRODUCTS = 192
"""Multiplications for each number from which they do for larger data."""


class SequenceConvolution:
    """A convolution in one dimension, without groups and dilation, and an optional relu."""

    def __init__(self, a: Any, function: Callable[..., torch.Tensor]) -> None:
        self._width, self._step, self._pad = a.kernel[0], (a.stride or (1,))[0], (a.pad or (0,))[0]
        self._function, self._relu = function, False
        self._known: dict[tuple[object, ...], bool] = {}

    def add_relu(self, relu: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Apply relu to the result."""
        function = self._function
        self._function, self._relu = lambda *given: relu(function(*given)), True

    def __call__(
        self, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the result of the operators."""
        given = (data, weight) if bias is None else (data, weight, bias)
        sizes = data.shape, data.stride(), weight.shape
        is_faster = self._known.get(sizes)
        if is_faster is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            is_faster = self._known[sizes] = self._is_faster(data, weight)
        if (
            not is_faster
            or torch.is_grad_enabled()
            or not all(map(is_float32_cpu, given))
            or any(map(torch_private.is_batched, given))
        ):
            return self._function(*given)
        x = F.pad(data.transpose(1, 2), (0, 0, self._pad, self._pad)) if self._pad else data.transpose(1, 2)
        x = x.contiguous()
        samples, filters, depth = len(x), weight.shape[0], weight[0].numel()
        rows = (x.shape[1] - self._width) // self._step + 1
        windows = x.as_strided((samples, rows, depth), (x.stride(0), self._step * x.shape[2], 1))

        def make() -> list[torch.Tensor]:
            return [pack_for(rows, weight.transpose(1, 2).reshape(filters, depth))]

        packs = packed("windows", [weight], make, rows > FEW_ROWS) or make()
        layer = (filters, depth), packs[0], bias if bias is None else bias.contiguous(), self._relu
        return dense(windows, [layer]).transpose(1, 2)

    def _is_faster(self, data: torch.Tensor, weight: torch.Tensor) -> bool:
        """Return True if the kernel supports the sizes, and is faster than torch's."""
        if data.dim() != 3 or weight.dim() != 3 or data.shape[1] != weight.shape[1] or not data.numel():
            return False
        rows = (data.shape[2] + 2 * self._pad - self._width) // self._step + 1
        if rows < 1:
            return False
        filters, depth = weight.shape[0], weight.shape[1] * weight.shape[2]
        if len(data) == 1 and data.numel() <= _MAX_PLAIN:
            return False
        if self._width == self._step == 1 and len(data) < _FEW_SAMPLES:
            return False
        moves = data.stride(1) != 1 and data.shape[1] > 1
        pays = data.numel() <= _MAX_COPIED or filters * self._width >= _MIN_PRODUCTS * self._step
        return (pays or not moves) and packs_well(rows, filters, depth)


def sequence_convolutions(low: Lowered) -> int:
    """Replace convolutions over sequences, together with a relu that is the only reader.

    Returns:
        Number of convolutions.
    """
    kept, held = low.kept(), low.held_by_operators()
    readers = Counter(value for step in low.steps for value in step.inputs)
    made: dict[int, Any] = {}
    steps = []
    for step in low.steps:
        op, a = low.operator(step)
        value = step.inputs[0] if step.inputs else -1
        if value in made and readers[value] == 1 and value not in kept and is_relu(low, step):
            first = made[value]
            first.function.add_relu(step.function)
            first.outputs, first.covers = step.outputs, (step.node,)
            continue
        steps.append(step)
        if op is None or op.name != "Convolution" or step.takes_env or not held.isdisjoint(step.inputs):
            continue
        if len(a.kernel) == 1 and a.num_group == 1 and a.layout in (None, "NCW") and a.dilate in ((), (1,)):
            step.function = SequenceConvolution(a, step.function)
            made[step.outputs[0]] = step
    low.steps = steps
    return len(made)
