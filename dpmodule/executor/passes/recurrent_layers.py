"""Run fused recurrent networks as one call on packed weights, and without the zeros of their initial states.

For prediction only. The native kernel packs the weights in every call otherwise, for as long as a small network
computes. Results have the same bits.

Memory: a copy of the weights of every network that predicts twice or more, until they change.

Needs:
    storage: dense
    rank: data (T, N, C)
    type: float32 on the CPU for all operands; others run as the operator
    layout: any
    gradients: none recorded; else the operator runs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._core import torch_private
from ...ops.nn.linear import is_float32_cpu
from ...ops.nn.lstm import SMALL, is_small, pack_cells, run_cells
from ...ops.nn.rnn import weights_of
from ...ops.spec import Env
from ..lowering import Lowered, Step
from ..packed_weights import packed

_MAX_SHAPES = 64


class PackedCells(list[torch.Tensor]):
    """Packs of all layers and directions of a network, and the addresses of `pack_cells`, which has the arguments."""

    def __init__(self, weights: Sequence[torch.Tensor], count: int = 4) -> None:
        packs, self.numbers = pack_cells(weights, count)
        super().__init__(packs)


class RecurrentLayers:
    """The operator RNN on packed weights. Called with data, parameters, and states unless they are zeros.

    Args:
        parameters: number of tensors with parameters, the vector or its parts.
    """

    def __init__(self, step: Step, parameters: int) -> None:
        self._run, self._parameters = step.function, parameters
        self._fits: dict[tuple[torch.Size, int], bool] = {}

    def __call__(self, a: Any, env: Env, data: torch.Tensor, *given: torch.Tensor) -> Any:
        """Run the operator."""
        parameters, states = given[: self._parameters], given[self._parameters :]
        gates, directions = 4 if a.mode == "lstm" else 3, 2 if a.bidirectional else 1
        shape = a.num_layers * directions, data.shape[1], a.state_size
        fits = data.dim() == 3 and all(map(_is_plain, (data, *states)))
        cells = self._cells(a, data, parameters, states, shape) if fits else None
        if cells is None:
            return self._run(a, env, data, *parameters, *(states or (data.new_zeros(shape),) * (gates - 2)))
        outputs = run_cells(data, states, (gates, a.state_size, a.num_layers, directions), cells.numbers)
        return outputs if a.state_outputs else outputs[0]

    def _cells(
        self,
        a: Any,
        data: torch.Tensor,
        parameters: tuple[torch.Tensor, ...],
        states: tuple[torch.Tensor, ...],
        shape: tuple[int, ...],
    ) -> PackedCells | None:
        """Return the packs if the kernel is the fastest, else None."""
        key = data.shape, torch.get_num_threads()
        fits = self._fits.get(key)
        if fits is None:
            if len(self._fits) >= _MAX_SHAPES:
                self._fits.clear()
            begin = [data.new_zeros(shape[1:])] * (2 if a.mode == "lstm" else 1)
            fits = self._fits[key] = is_small(data, begin, _weights(a, data, parameters), kept=True)
        if not fits or torch.is_grad_enabled() or any(state.shape != shape for state in states):
            return None

        def make() -> PackedCells:
            return PackedCells(_weights(a, data, parameters))

        cells: PackedCells | None = packed("rnn", parameters, make)
        return cells or (make() if all(map(_is_plain, parameters)) else None)


def _is_plain(tensor: torch.Tensor) -> bool:
    return is_float32_cpu(tensor) and not torch_private.is_batched(tensor)


def _weights(a: Any, data: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return weights_of(a, parameters if len(parameters) > 1 else parameters[0], data.shape[-1])


def _is_zero(low: Lowered, made_by: dict[int, Step], value: int) -> bool:
    """Return True if a value is an array of zeros, whatever its shape."""
    if value not in made_by:
        return False
    step = made_by[value]
    op, a = low.operator(step)
    if op is not None and op.name == "broadcast_like":
        return _is_zero(low, made_by, step.inputs[0])
    return op is not None and (op.name == "_zeros" or (op.name == "_full" and a.value == 0))


def recurrent_layers(low: Lowered) -> int:
    """Replace recurrent networks.

    Returns:
        Number of networks.
    """
    made_by = {value: step for step in low.steps for value in step.outputs}
    count = 0
    for step in low.steps:
        op, a = low.operator(step)
        if (
            op is None
            or op.name != "RNN"
            or a.mode not in SMALL
            or a.projection_size is not None
            or a.use_sequence_length
            or (a.lstm_state_clip_min, a.lstm_state_clip_max) != (None, None)  # which causes a warning
            or low.is_sparse(step)
        ):
            continue
        inputs, of_states = step.inputs, 2 if a.mode == "lstm" else 1
        parameters, states = inputs[1:-of_states], inputs[-of_states:]
        if max(parameters) < low.num_variables:
            step.function = RecurrentLayers(step, len(parameters))
            if all(_is_zero(low, made_by, state) for state in states):
                step.inputs = inputs[:-of_states]
            count += 1
    return count
