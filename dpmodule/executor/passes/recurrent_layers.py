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
from ...ops.nn.recurrence import is_fastest, pack_cells, run_cells
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
        self._known: dict[tuple[torch.Size, int], bool] = {}

    def __call__(self, a: Any, env: Env, data: torch.Tensor, *given: torch.Tensor) -> Any:
        """Run the operator."""
        parameters, states = given[: self._parameters], given[self._parameters :]
        directions = 2 if a.bidirectional else 1
        shape = a.num_layers * directions, data.shape[1], a.state_size
        if (
            torch.is_grad_enabled()
            or data.dim() != 3
            or not all(map(_is_plain, (data, *given)))
            or any(state.shape != shape for state in states)
            or not self._is_fastest(a, data, parameters, shape)
        ):
            zeros = (data.new_zeros(shape),) * (2 if a.mode == "lstm" else 1)
            return self._run(a, env, data, *parameters, *(states or zeros))

        def make() -> PackedCells:
            return PackedCells(_weights(a, data, parameters))

        sizes = a.mode, a.state_size, a.num_layers, directions
        # networks of other sizes may read the same vector
        cells = packed(("rnn", sizes, data.shape[2]), parameters, make) or make()
        outputs = run_cells(data, states, sizes, cells.numbers)
        return outputs if a.state_outputs else outputs[0]

    def _is_fastest(
        self, a: Any, data: torch.Tensor, parameters: tuple[torch.Tensor, ...], shape: tuple[int, ...]
    ) -> bool:
        key = data.shape, torch.get_num_threads()
        if key not in self._known:
            if len(self._known) >= _MAX_SHAPES:
                self._known.clear()
            begin = [data.new_zeros(shape[1:])] * (2 if a.mode == "lstm" else 1)
            self._known[key] = is_fastest(a.mode, data, begin, _weights(a, data, parameters))
        return self._known[key]


def _is_plain(tensor: torch.Tensor) -> bool:
    return is_float32_cpu(tensor) and not torch_private.is_transformed(tensor)


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
            or a.projection_size is not None
            or a.use_sequence_length
            or (a.lstm_state_clip_min, a.lstm_state_clip_max) != (None, None)  # which causes a warning
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
