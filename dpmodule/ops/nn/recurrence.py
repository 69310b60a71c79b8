"""Recurrent layers on the CPU by the native extension: plain networks, GRUs and LSTMs.

torch's have an overhead per step or per sequence that is many times the cost of the arithmetic for small states and
batches. Here torch computes the input's map of all steps and the gradients of the weights, one product each, and our
own kernel runs the recurrence.

Shape letters: T time steps, N batch, K features of the input, H features of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ..._core import torch_private
from ..tracing import is_tracing
from .linear import address, fastest_product, is_float32_cpu, kernels, linear, weight_gradients
from .rnn_weights import GATES, MODES

MaybeTensor = torch.Tensor | None

_MAX_LSTM = {4: 2**18, 8: 2**21, 16: 2**18}
"""Multiplications of a gate's map per step up to which LSTMs are faster than oneDNN's, by the vector width, and divided
by the number of threads that torch uses. Measured for 8 and 16."""
_MAX_PLAIN = 2**20
"""The same for other networks and torch's calls, for a vector width of 4. Wider vectors need no limit."""
_FEW_ROWS = 8
"""Rows up to which oneDNN's LSTM is slower whatever the size, except for a vector width of 4."""


def is_fastest(
    mode: str, x: torch.Tensor, begin: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> bool:
    """Return True if `run_layer` and `predict` support these arguments and are the fastest.

    torch reports inconsistent arguments.
    """
    if is_tracing():  # checked first, since sizes may be symbolic then
        return False
    rows, units = x.shape[1], weights[1].shape[1]
    return (
        x.numel() > 0
        and all(state.shape == (rows, units) for state in begin)
        and all(len(weight) == len(GATES[mode]) * units for weight in weights)
        and all(map(is_float32_cpu, (x, *begin, *weights)))
        and not torch_private.is_transformed(x, begin[0])
        and hasattr(kernels(), "recurrent")
        and _has_fast_size(mode, x.shape[0], rows, units)
    )


def _has_fast_size(mode: str, steps: int, rows: int, units: int) -> bool:
    width, threads, records = kernels().vector_width, torch.get_num_threads(), torch.is_grad_enabled()
    work = rows * units * units * threads
    if mode == "lstm":
        predicts = not records and (threads == 1 or width == 16)
        return width > 4 and (rows <= _FEW_ROWS or predicts) or work <= _MAX_LSTM[width]
    # recording a gradient in Python costs more than one step gains
    return (steps > 1 or not records) and (width > 4 or work <= _MAX_PLAIN)


class _SequenceLayout:
    """Steps and rows of a sequence as one axis, in memory order.

    Attributes:
        sizes: arguments of the kernels.
        states: shape of all states.
    """

    __slots__ = ("_by_row", "_rows", "_steps", "sizes", "states")

    def __init__(self, x: torch.Tensor, units: int, turned: bool) -> None:
        steps, rows, _ = x.shape
        self._steps, self._rows = steps, rows
        self.states = steps * rows, units
        self._by_row = rows > 1 and x.stride(0) < x.stride(1)
        step, row = (1, steps) if self._by_row else (rows, 1)
        self.sizes = steps, rows, units, -step if turned else step, row, torch.get_num_threads()

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sequence (T, N, F) as contiguous (T * N, F)."""
        return (x.transpose(0, 1) if self._by_row else x).reshape(-1, x.shape[2]).contiguous()

    def whole(self, flat: torch.Tensor) -> torch.Tensor:
        """Return (T * N, F) as a sequence (T, N, F)."""
        if self._by_row:
            return flat.view(self._rows, self._steps, -1).transpose(0, 1)
        return flat.view(self._steps, self._rows, -1)


def pack_cells(weights: Sequence[torch.Tensor], count: int = 4) -> tuple[list[torch.Tensor], list[int]]:
    """Pack the weights of every layer and direction of a network for `run_cells`.

    Args:
        weights: as of `run_layer`, of one cell after the other.
        count: number of tensors of each cell: 4, or 2 without biases.

    Returns:
        New tensors, and the addresses of packs and biases. Both must stay alive while they are used.
    """
    packs: list[torch.Tensor] = []
    numbers: list[int] = []
    native = kernels()
    for i in range(0, len(weights), count):
        w_in, w_state, *biases = (each.contiguous() for each in weights[i : i + count])
        packs += (new for new, old in zip(biases, weights[i + 2 : i + count]) if new is not old)
        gates, units, features = w_state.shape[0] // w_state.shape[1], w_state.shape[1], w_in.shape[1]
        pack = w_in.new_empty(native.packed_cell_size(gates, features, units))
        native.pack_cell(gates, features, units, w_in.data_ptr(), w_state.data_ptr(), pack.data_ptr())
        packs.append(pack)
        numbers += pack.data_ptr(), *(map(torch.Tensor.data_ptr, biases) if biases else (0, 0))
    return packs, numbers


def run_cells(
    x: torch.Tensor, states: Sequence[torch.Tensor], sizes: tuple[str, int, int, int], numbers: Sequence[int]
) -> tuple[torch.Tensor, ...]:
    """Predict with all layers and directions of a network.

    Args:
        x: data, (T, N, K).
        states: initial hidden state, and for an LSTM cell state, (layers * directions, N, H); none for zeros.
        sizes: mode, units, layers and directions.
        numbers: addresses of `pack_cells`.

    Returns:
        (hidden states of the last layer (T, N, directions * H), in the layout of the data; last states)
    """
    mode, units, layers, directions = sizes
    layout = _SequenceLayout(x, units, turned=False)
    data = layout.flat(x)
    out = data.new_empty(layout.states[0], directions * units)
    last = [data.new_empty(layers * directions, x.shape[1], units) for _ in range(1 + (mode == "lstm"))]
    first = [state.contiguous() for state in states]
    begin = [*map(torch.Tensor.data_ptr, first), 0, 0][:2]
    ends = [*map(torch.Tensor.data_ptr, last), 0][:2]
    kernels().recurrent(
        *layout.sizes,
        MODES.index(mode),
        x.shape[2],
        directions,
        data.data_ptr(),
        *begin,
        out.data_ptr(),
        *ends,
        *numbers,
    )
    return layout.whole(out), *last


def predict(
    mode: str,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    directions: int = 1,
) -> tuple[torch.Tensor, ...]:
    """Predict with a network; requires `is_fastest`. See `run_cells` and `pack_cells`."""
    cells, _, units = states[0].shape
    _kept, numbers = pack_cells(weights, len(weights) // cells)
    return run_cells(x, states, (mode, units, cells // directions, directions), numbers)


def _state_gradient(last: MaybeTensor, states: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the gradient of a last state (1, N, H) in new memory; zeros for None."""
    if last is None:
        return states.new_zeros(rows, states.shape[1])
    return last[0].clone(memory_format=torch.contiguous_format)


class _RecurrentLayer(torch.autograd.Function):
    """One direction of a layer.

    Takes the mode, the direction, data, the initial hidden state, an LSTM's cell state or None, both weights, and both
    biases or None.
    """

    @staticmethod
    def forward(ctx: Any, mode: str, turned: bool, *operands: Any) -> tuple[torch.Tensor, ...]:
        x, hidden, cell, w_in, w_state, b_in, b_state = operands
        ctx.set_materialize_grads(False)
        layout = _SequenceLayout(x, hidden.shape[1], turned)
        hidden, w_state = hidden.contiguous(), w_state.contiguous()
        bias = None if b_state is None else b_state.contiguous()
        data = layout.flat(x)
        gates = linear(data, w_in, b_in)
        states, before = gates.new_empty(layout.states), gates.new_empty(layout.states)
        last, cells, last_cell = gates.new_empty(1, *hidden.shape), None, None
        if mode in ("gru", "lstm"):
            cells = gates.new_empty(layout.states)
        if cell is not None:
            cell, last_cell = cell.contiguous(), gates.new_empty(1, *hidden.shape)
        tensors = w_state, bias, hidden, cell, gates, states, cells, before, last, last_cell
        kernels().recurrent_forward(*layout.sizes, MODES.index(mode), *map(address, tensors))
        ctx.mode, ctx.layout = mode, layout
        ctx.save_for_backward(data, w_in, w_state, cell, states if cells is None else gates, cells, before)
        whole = layout.whole(states)
        return (whole, last) if last_cell is None else (whole, last, last_cell)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: MaybeTensor) -> tuple[MaybeTensor, ...]:
        layout: _SequenceLayout = ctx.layout
        data, w_in, w_state, cell, made, cells, before = ctx.saved_tensors
        for_states = None if grads[0] is None else layout.flat(grads[0])
        for_begin = _state_gradient(grads[1], before, layout.sizes[1])
        for_cell = _state_gradient(None if cell is None else grads[2], before, layout.sizes[1])
        for_gates = before.new_empty(before.shape[0], w_state.shape[0])
        for_maps = torch.empty_like(for_gates) if ctx.mode == "gru" else for_gates
        # the kernel reads `made` as the gates or, of a plain network, as the states
        given = w_state, cell, made, cells, made, before
        tensors = *given, for_states, for_gates, for_maps, for_begin, for_cell
        kernels().recurrent_backward(*layout.sizes, MODES.index(ctx.mode), *map(address, tensors))
        wants = ctx.needs_input_grad[2:]
        for_w_in = for_w_state = for_b_in = for_b_state = None
        if wants[3] or wants[5] or wants[6]:
            for_w_in, for_b_in = weight_gradients(for_maps, data, wants[5] or wants[6])
        if wants[4] or wants[6]:
            for_w_state, for_b_state = weight_gradients(for_gates, before, wants[6] and ctx.mode == "gru")
        return (
            None,
            None,
            layout.whole(fastest_product(for_maps, w_in.t())) if wants[0] else None,
            for_begin,
            None if cell is None else for_cell,
            for_w_in,
            for_w_state,
            for_b_in,
            for_b_in if for_b_state is None else for_b_state,
        )


_apply: Callable[..., tuple[torch.Tensor, ...]] = _RecurrentLayer.apply


def run_layer(
    mode: str,
    x: torch.Tensor,
    begin: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    turned: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Run one direction of a layer; requires `is_fastest`.

    Args:
        mode: rnn_relu, rnn_tanh, gru or lstm.
        x: data, (T, N, K), with at least one step.
        begin: initial hidden state, and cell state of an LSTM, (N, H).
        weights: (G * H, K), (G * H, H), gates in torch's order; optionally both biases, (G * H,).
        turned: True to begin with the last step.

    Returns:
        (all hidden states (T, N, H), in the layout of the data; last hidden state (1, N, H); an LSTM's last cell state)

    Source: torch's `rnn_relu`, `rnn_tanh`, `gru` and `lstm`, with explicit gradients.
    """
    if not torch.is_grad_enabled() and not turned and can_predict(x, weights):
        return predict(mode, x, [each.unsqueeze(0) for each in begin], weights)
    hidden, cell, *_ = (*begin, None)
    w_in, w_state, *biases = weights
    return _apply(mode, turned, x, hidden, cell, w_in, w_state, *(biases or (None, None)))


def can_predict(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
    """Return True if `pack_cells` supports the weights of one cell for some data."""
    return weights[0].shape[1] == x.shape[2] and all(map(torch.Tensor.is_contiguous, weights))
