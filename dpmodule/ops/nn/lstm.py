"""Small LSTMs, and GRUs in prediction, on the CPU by the native extension.

oneDNN, which torch's LSTM uses, has an overhead per sequence that is many times the cost of the arithmetic for small
states and batches. Here torch computes the input projection of all steps and the gradients of the weights, one product
each, and our own kernel runs the recurrence.

Shape letters: T time steps, N batch, K features of the input, H features of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ..._core import torch_private
from ..tracing import is_tracing
from .linear import fastest_product, is_float32_cpu, kernels, linear

_MAX_WORK = 2**14
"""Multiplications per step of an LSTM's recurrence from which oneDNN may be as fast, with gradient; the gates cost as
much as 16 units."""
_MAX_STATES, _MAX_UNITS = 20000, 200
"""Numbers in all states up to which an LSTM predicts faster, and the largest state. To the former, add the numbers in a
gate's weight, which oneDNN packs in every call."""
_MAX_KEPT = 2**11
"""Numbers in the states of one step up to which an LSTM predicts faster if its packed weights are kept, divided by the
number of threads that torch uses."""
_MAX_GRU = 2**18
"""Multiplications per step of a GRU's recurrence up to which it predicts faster, by the vector width, and divided by
the number of threads that torch uses."""

MaybeTensor = torch.Tensor | None


def is_small(
    x: torch.Tensor, begin: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], kept: bool = False
) -> bool:
    """Return True if `small_lstm` or `small_gru` supports these arguments and is the fastest.

    torch reports inconsistent arguments.

    Args:
        kept: True if packed weights are kept from call to call.
    """
    if is_tracing():  # checked first, since sizes may be symbolic then
        return False
    rows, units = x.shape[1], weights[1].shape[1]
    gates = 4 if len(begin) == 2 else 3
    return (
        _is_fastest(gates, x.shape[0], rows, x.shape[2], units, kept)
        and x.numel() > 0
        and all(state.shape == (rows, units) for state in begin)
        and all(weight.shape[0] == gates * units for weight in weights)
        and all(map(is_float32_cpu, (x, *begin, *weights)))
        and not torch_private.is_transformed(x, begin[0])
        and hasattr(kernels(), "recurrent")
        and (gates == 4 or can_predict(x, weights))
    )


def _is_fastest(gates: int, steps: int, rows: int, features: int, units: int, kept: bool) -> bool:
    work = rows * units * max(units, 16)
    if torch.is_grad_enabled():
        return gates == 4 and work <= _MAX_WORK
    if gates == 3:
        return work * torch.get_num_threads() <= _MAX_GRU * getattr(kernels(), "vector_width", 0)
    if kept and rows * units * torch.get_num_threads() <= _MAX_KEPT:
        return True
    return units <= _MAX_UNITS and steps * rows * units <= _MAX_STATES + units * features


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
        self.sizes = steps, rows, units, -step if turned else step, row

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sequence (T, N, F) as contiguous (T * N, F)."""
        return (x.transpose(0, 1) if self._by_row else x).reshape(-1, x.shape[2]).contiguous()

    def whole(self, flat: torch.Tensor) -> torch.Tensor:
        """Return (T * N, F) as a sequence (T, N, F)."""
        if self._by_row:
            return flat.view(self._rows, self._steps, -1).transpose(0, 1)
        return flat.view(self._steps, self._rows, -1)


def _address(tensor: MaybeTensor) -> int:
    return 0 if tensor is None else tensor.data_ptr()


Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def pack_cells(weights: Sequence[torch.Tensor], count: int = 4) -> tuple[list[torch.Tensor], list[int]]:
    """Pack the weights of every layer and direction of a network for `run_cells`.

    Args:
        weights: as of `small_lstm`, of one cell after the other.
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
    x: torch.Tensor, states: Sequence[torch.Tensor], sizes: tuple[int, int, int, int], numbers: Sequence[int]
) -> tuple[torch.Tensor, ...]:
    """Predict with all layers and directions of a network.

    Args:
        x: data, (T, N, K).
        states: initial hidden state, and for an LSTM cell state, (layers * directions, N, H); none for zeros.
        sizes: gates, units, layers and directions.
        numbers: addresses of `pack_cells`.

    Returns:
        (hidden states of the last layer (T, N, directions * H), in the layout of the data; last states)
    """
    gates, units, layers, directions = sizes
    layout = _SequenceLayout(x, units, turned=False)
    data = layout.flat(x)
    out = data.new_empty(layout.states[0], directions * units)
    last = [data.new_empty(layers * directions, x.shape[1], units) for _ in range(gates - 2)]
    first = [state.contiguous() for state in states]
    begin = [*map(torch.Tensor.data_ptr, first), 0, 0][:2]
    ends = [*map(torch.Tensor.data_ptr, last), 0][:2]
    kernels().recurrent(
        *layout.sizes, gates, x.shape[2], directions, data.data_ptr(), *begin, out.data_ptr(), *ends, *numbers
    )
    return layout.whole(out), *last


def predict(
    x: torch.Tensor, states: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], directions: int = 1
) -> tuple[torch.Tensor, ...]:
    """Predict with a network; requires `is_small`. See `run_cells` and `pack_cells`."""
    cells, _, units = states[0].shape
    _kept, numbers = pack_cells(weights, len(weights) // cells)
    return run_cells(x, states, (len(weights[1]) // units, units, cells // directions, directions), numbers)


def _forward(
    x: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    w_in: torch.Tensor,
    w_state: torch.Tensor,
    b_in: MaybeTensor,
    b_state: MaybeTensor,
    turned: bool,
) -> tuple[Results, _SequenceLayout, tuple[MaybeTensor, ...]]:
    """Run the recurrence; return the results, the layout, and the tensors saved for backward."""
    layout = _SequenceLayout(x, hidden.shape[1], turned)
    hidden, cell, w_state = hidden.contiguous(), cell.contiguous(), w_state.contiguous()
    data = layout.flat(x)
    gates = linear(data, w_in, b_in)
    states, cells = gates.new_empty(layout.states), gates.new_empty(layout.states)
    before = gates.new_empty(layout.states)
    last, last_cell = gates.new_empty(1, *cell.shape), gates.new_empty(1, *cell.shape)
    bias = None if b_state is None else b_state.contiguous()
    tensors = w_state, bias, hidden, cell, gates, states, cells, before, last, last_cell
    kernels().lstm_forward(*layout.sizes, *map(_address, tensors))
    return (layout.whole(states), last, last_cell), layout, (data, w_in, w_state, cell, gates, cells, before)


def _state_gradient(last: MaybeTensor, like: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a last state (1, N, H) in new memory."""
    return torch.zeros_like(like) if last is None else last[0].clone(memory_format=torch.contiguous_format)


class _Lstm(torch.autograd.Function):
    """LSTM; takes data, both begin states, both weights, both biases or None, and the direction."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Results:
        ctx.set_materialize_grads(False)
        results, ctx.layout, kept = _forward(*arguments)
        ctx.save_for_backward(*kept)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: MaybeTensor) -> tuple[MaybeTensor, ...]:
        layout: _SequenceLayout = ctx.layout
        data, w_in, w_state, cell, gates, cells, before = ctx.saved_tensors
        for_states = None if grads[0] is None else layout.flat(grads[0])
        for_begin, for_cell = _state_gradient(grads[1], cell), _state_gradient(grads[2], cell)
        for_gates, for_bias = torch.empty_like(gates), gates.new_zeros(gates.shape[1])
        tensors = w_state, cell, gates, cells, for_states, for_gates, for_bias, for_begin, for_cell
        kernels().lstm_backward(*layout.sizes, *map(_address, tensors))
        wants, turned = ctx.needs_input_grad, for_gates.t()
        return (
            layout.whole(fastest_product(for_gates, w_in.t())) if wants[0] else None,
            for_begin,
            for_cell,
            fastest_product(turned, data.t()) if wants[3] else None,
            fastest_product(turned, before.t()) if wants[4] else None,
            for_bias if wants[5] else None,
            for_bias if wants[6] else None,
            None,
        )


_apply: Callable[..., Results] = _Lstm.apply


def small_lstm(
    x: torch.Tensor, begin: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], turned: bool = False
) -> Results:
    """Run an LSTM; requires `is_small`, and float32 tensors on the CPU.

    Args:
        x: data, (T, N, K), with at least one step.
        begin: initial hidden state and cell state, (N, H).
        weights: (4H, K), (4H, H), rows in the order input, forget, new, output; optionally both biases, (4H,).
        turned: True to begin with the last step.

    Returns:
        (all hidden states (T, N, H), in the layout of the data; last hidden state (1, N, H); last cell state)

    Source: torch's `lstm`, with explicit gradients.
    """
    hidden, cell = begin
    w_in, w_state, *biases = weights
    b_in, b_state = biases or (None, None)
    arguments = x, hidden, cell, w_in, w_state, b_in, b_state, turned
    if torch.is_grad_enabled():
        return _apply(*arguments)
    if turned or not can_predict(x, weights):
        return _forward(*arguments)[0]
    states, last, last_cell = predict(x, [each.unsqueeze(0) for each in begin], weights)
    return states, last, last_cell


def can_predict(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> bool:
    """Return True if `pack_cells` supports the weights of one cell for some data."""
    return weights[0].shape[1] == x.shape[2] and all(map(torch.Tensor.is_contiguous, weights))


def small_gru(
    x: torch.Tensor, begin: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Run a GRU without recording a gradient; requires `is_small`. See `small_lstm`; gates are reset, update, new."""
    return predict(x, [each.unsqueeze(0) for each in begin], weights)


SMALL: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {"lstm": small_lstm, "gru": small_gru}
"""Kernels by mode."""
