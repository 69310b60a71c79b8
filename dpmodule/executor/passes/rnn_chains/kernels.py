"""Functions that run in place of a chain: kernels for whole sequences, or the plain steps.

Kernels are those of `ops.nn.recurrence` where they are the fastest, else torch's. They predict on packed weights, as in
`recurrent_layers`.

Shape letters: T time steps, N batch, K features of the input, H features of the state, G gates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from ...._core import torch_private
from ....ops.nn.layer_shapes import flat_from
from ....ops.nn.recurrence import can_predict, is_fastest, run_cells, run_layer
from ...packed_weights import packed
from ..recurrent_layers import PackedCells

Tensors = tuple[torch.Tensor, ...]


_CPU_TYPES = frozenset({torch.float32, torch.float64, torch.bfloat16})
_CUDA_TYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})

Order = tuple[int, ...]
_TORCH_ORDERS = frozenset((tuple(range(gates)),) * 2 for gates in (1, 3, 4))
"""Gates of both weights in torch's order: of plain networks, GRU and LSTM."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent network of one layer over a whole sequence.

    Called with the sequence, the initial state, that of the cell for an LSTM, the weights and the existing biases;
    returns the states and the last one, and the last cell state of an LSTM.

    Shape:
        x: (T, N, K), or (T, N) for K = 1.
        begin states: (N, H).
        weights: (G * H, K), (G * H, H).
        biases: (G * H,).
        returns: (T, N, H), then (1, N, H) for each last state.

    Attributes:
        makes_memory: no result is a view of another result or of an argument.
        orders: positions of the gates i, f, g, o or r, z, n in the rows of each weight.
        biases: True if the input's map, and the state's, has a bias.
    """

    makes_memory: ClassVar[bool] = True
    keeps_results: ClassVar[bool] = True
    mode: str
    orders: tuple[Order, Order]
    biases: tuple[bool, bool]

    def __call__(self, x: torch.Tensor, *rest: torch.Tensor) -> Tensors:
        """Run the whole sequence."""
        count = 2 if self.mode == "lstm" else 1
        x = flat_from(x, 2)
        begin = tuple(flat_from(state, 1) for state in rest[:count])
        weights = self.weights(*rest[count:])
        kept = not torch.is_grad_enabled() and weights[0] is rest[count] and can_predict(x, weights)
        if is_fastest(self.mode, x, begin, weights):
            return self._by_packs(x, begin, weights) if kept else run_layer(self.mode, x, begin, weights)
        if not _has_kernel(x, begin, weights):
            return self._plain(x, begin, weights)
        if x.is_cuda:
            weights = make_contiguous(weights)
        states = tuple(state.unsqueeze(0) for state in begin)
        hx = states if count == 2 else states[0]
        has_biases, records = len(weights) == 4, torch.is_grad_enabled()
        outputs: Tensors = getattr(torch, self.mode)(
            x, hx, weights, has_biases, 1, 0.0, records, False, False
        )
        return outputs

    def _by_packs(self, x: torch.Tensor, begin: Tensors, weights: list[torch.Tensor]) -> Tensors:
        def make() -> PackedCells:
            return PackedCells(weights, len(weights))

        cells = packed("rnn", weights, make) or make()
        units = begin[0].shape[1]
        return run_cells(x, [state.unsqueeze(0) for state in begin], (self.mode, units, 1, 1), cells.numbers)

    def weights(self, *given: torch.Tensor) -> list[torch.Tensor]:
        """Return two weights, and two biases if there are any, in torch's order of gates.

        Shape:
            given, returns: (G * H, K), (G * H, H), biases (G * H,).
        """
        weights = list(given)
        if self.orders in _TORCH_ORDERS and all(self.biases) and given[2].dim() == given[3].dim() == 1:
            return weights
        orders = list(self.orders)
        if any(self.biases):
            first, second = self.biases
            i2h = given[2] if first else torch.zeros_like(given[2])
            h2h = given[-1] if second else torch.zeros_like(given[2])
            weights[2:] = [b if b.dim() == 1 else b.reshape(-1) for b in (i2h, h2h)]
            orders *= 2
        return [_reordered(w, order) for w, order in zip(weights, orders, strict=True)]

    def _plain(self, x: torch.Tensor, begin: Tensors, weights: list[torch.Tensor]) -> Tensors:
        """Run the graph's operators step by step."""
        w_in, w_state, *biases = weights
        b_in, b_state = biases or (None, None)
        step, states, outputs = _STEPS[self.mode], begin, []
        for row in x.unbind(0):
            states = step(F.linear(row, w_in, b_in), F.linear(states[0], w_state, b_state), states)
            outputs.append(states[0])
        return torch.stack(outputs), *(state.unsqueeze(0) for state in states)


def _reordered(weight: torch.Tensor, order: Order) -> torch.Tensor:
    """Return a weight or bias with its gates in torch's order."""
    if order == tuple(range(len(order))):
        return weight
    parts = weight.chunk(len(order))
    return torch.cat([parts[i] for i in order])


def _has_kernel(x: torch.Tensor, begin: Tensors, weights: list[torch.Tensor]) -> bool:
    """Return True if torch has a kernel for these tensors."""
    known = _CUDA_TYPES if x.is_cuda else _CPU_TYPES
    dtype = x.dtype
    if dtype not in known:
        return False
    for tensor in (*begin, *weights):
        if tensor.dtype is not dtype:
            return False
    return x.numel() > 0 and not torch_private.is_transformed(x, begin[0])


def make_contiguous(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return weights that are contiguous in one block of memory, as cuDNN requires.

    Shape:
        weights, returns: (G * H, K), (G * H, H), biases (G * H,).

    Args:
        weights: of one layer: both weights, then both biases if there are any.
    """
    flat = torch.cat([w.reshape(-1) for w in weights])
    pieces = flat.split_with_sizes([w.numel() for w in weights])
    return [piece.view(w.shape) for piece, w in zip(pieces, weights, strict=True)]


def _lstm_step(ours: torch.Tensor, states: torch.Tensor, before: Tensors) -> Tensors:
    i, f, g, o = (ours + states).chunk(4, 1)
    cell = f.sigmoid() * before[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_step(ours: torch.Tensor, states: torch.Tensor, before: Tensors) -> Tensors:
    (r, z, n), (h_r, h_z, h_n) = ours.chunk(3, 1), states.chunk(3, 1)
    update = (z + h_z).sigmoid()
    new = (n + (r + h_r).sigmoid() * h_n).tanh()
    return ((1.0 - update) * new + update * before[0],)


_STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor, Tensors], Tensors]] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": lambda ours, states, before: ((ours + states).tanh(),),
    "rnn_relu": lambda ours, states, before: ((ours + states).relu(),),
}


@dataclass(frozen=True, slots=True)
class CellStates:
    """The states of an LSTM's cell after every step, which torch's kernel does not return.

    Called with the hidden states, followed by the arguments of `Recurrence`. Since all hidden states are known, the
    gates of all steps are computed in one call, and only two products per step remain.

    Shape:
        hidden, returns: (T, N, H); the others as for `Recurrence`.
    """

    makes_memory: ClassVar[bool] = True
    recurrence: Recurrence

    def __call__(self, hidden: torch.Tensor, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        """Return all states of the cell, (T, N, H)."""
        x = flat_from(x, 2)
        begin, cell = (state.reshape(hidden.shape[1:]) for state in rest[:2])
        w_in, w_state, *biases = self.recurrence.weights(*rest[2:])
        b_in, b_state = biases or (None, None)
        before = torch.cat([begin.unsqueeze(0), hidden[:-1]])
        i, f, g, _ = (F.linear(x, w_in, b_in) + F.linear(before, w_state, b_state)).chunk(4, 2)
        cells = []
        for keeps, adds in zip(f.sigmoid().unbind(0), (i.sigmoid() * g.tanh()).unbind(0), strict=True):
            cell = torch.addcmul(adds, keeps, cell)
            cells.append(cell)
        return torch.stack(cells)
