"""What runs in place of a chain: kernels for whole sequences, torch's or our own, or else the plain steps.

Shape letters: T time steps, N batch, K features of the input, H features of the state, G gates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.nn.functional import linear

from ....compat import torch_private
from ....ops.nn.linear import LARGE
from ....ops.nn.lstm import is_small, small_lstm
from ....ops.nn.rules import flat_from
from .functions import gru, plain

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rnn_relu": torch.rnn_relu,
    "rnn_tanh": torch.rnn_tanh,
    "lstm": torch.lstm,
    "gru": torch.gru,
}
_CPU_TYPES = frozenset({torch.float32, torch.float64, torch.bfloat16})
_CUDA_TYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})

_OWN_TYPES = frozenset({torch.float32, torch.float64})

Order = tuple[int, ...]
_AS_THEY_ARE = frozenset((tuple(range(gates)),) * 2 for gates in (1, 3, 4))
"""Gates of both weights in torch's order: of plain networks, GRU and LSTM."""

Found = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrent network of one layer over a whole sequence.

    Called with the sequence, the begin state, that of the cell for an LSTM, the weights, and those biases that there
    are; returns the states, and the last one, of the cell too for an LSTM.

    Shape:
        x: (T, N, K), or (T, N) for K = 1.
        begin states: (N, H).
        weights: (G * H, K), (G * H, H).
        biases: (G * H,).
        returns: (T, N, H), then (1, N, H) for each last state.

    Attributes:
        makes_memory: no result is a view of another one or of an argument.
        orders: where the gates i, f, g, o or r, z, n are in the rows of each weight.
        biases: whether there is a bias of the input's map, and of the state's.
    """

    makes_memory: ClassVar[bool] = True
    keeps_results: ClassVar[bool] = True
    mode: str
    orders: tuple[Order, Order]
    biases: tuple[bool, bool]

    def __call__(self, x: torch.Tensor, *rest: torch.Tensor) -> Found:
        """Run the whole sequence."""
        count = 2 if self.mode == "lstm" else 1
        x = flat_from(x, 2)
        begin = tuple(flat_from(state, 1) for state in rest[:count])
        weights = self.weights(*rest[count:])
        if self.mode == "lstm" and is_small(x, begin, weights):
            return small_lstm(x, begin, weights)
        if not _has_kernel(x, begin, weights):
            return self._plain(x, begin, weights)
        if x.is_cuda:
            weights = in_one_piece(weights)
        elif self._is_better_here(x, weights):
            if self.mode == "gru":
                return gru(x, begin[0], weights)
            return plain(x, begin[0], weights, self.mode == "rnn_relu")
        states = tuple(state.unsqueeze(0) for state in begin)
        hx = states if count == 2 else states[0]
        options = len(weights) == 4, 1, 0.0, torch.is_grad_enabled(), False, False
        found: Found = _FUNCTIONS[self.mode](x, hx, weights, *options)
        return found

    def _is_better_here(self, x: torch.Tensor, weights: list[torch.Tensor]) -> bool:
        """Say whether our own functions are faster than torch's, which record or prepare every small step."""
        if self.mode == "lstm" or x.dtype not in _OWN_TYPES:
            return False
        return torch.is_grad_enabled() or x.numel() * weights[0].shape[0] >= LARGE

    def weights(self, *given: torch.Tensor) -> list[torch.Tensor]:
        """Return two weights, or these and two biases, with torch's order of gates.

        Shape:
            given, returns: (G * H, K), (G * H, H), biases (G * H,).
        """
        weights = list(given)
        if self.orders in _AS_THEY_ARE and all(self.biases) and given[2].dim() == given[3].dim() == 1:
            return weights
        orders = list(self.orders)
        if any(self.biases):
            first, second = self.biases
            i2h = given[2] if first else torch.zeros_like(given[2])
            h2h = given[-1] if second else torch.zeros_like(given[2])
            weights[2:] = [b if b.dim() == 1 else b.reshape(-1) for b in (i2h, h2h)]
            orders *= 2
        return [_sorted(w, order) for w, order in zip(weights, orders, strict=True)]

    def _plain(self, x: torch.Tensor, begin: Found, weights: list[torch.Tensor]) -> Found:
        """Run step by step what the graph says."""
        w_in, w_state, b_in, b_state = _parted(weights)
        step, states, found = _STEPS[self.mode], begin, []
        for each in x.unbind(0):
            states = step(linear(each, w_in, b_in), linear(states[0], w_state, b_state), states)
            found.append(states[0])
        return torch.stack(found), *(state.unsqueeze(0) for state in states)


def _parted(
    weights: list[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return both weights and both biases, or None in their place."""
    biases = weights[2:]
    return weights[0], weights[1], biases[0] if biases else None, biases[1] if biases else None


def _sorted(weight: torch.Tensor, order: Order) -> torch.Tensor:
    """Return a weight or bias with its gates in torch's order."""
    if order == tuple(range(len(order))):
        return weight
    parts = weight.chunk(len(order))
    return torch.cat([parts[i] for i in order])


def _has_kernel(x: torch.Tensor, begin: Found, weights: list[torch.Tensor]) -> bool:
    """Say whether torch has a kernel for these tensors."""
    known = _CUDA_TYPES if x.is_cuda else _CPU_TYPES
    dtype = x.dtype
    if dtype not in known:
        return False
    for each in (*begin, *weights):
        if each.dtype is not dtype:
            return False
    return x.numel() > 0 and not (torch_private.is_batched(x) or torch_private.is_batched(begin[0]))


def in_one_piece(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return weights that lie behind each other in memory, as cuDNN wants them; it warns of others.

    Shape:
        weights, returns: (G * H, K), (G * H, H), biases (G * H,).

    Args:
        weights: of one layer: both weights, then both biases if there are any.
    """
    flat = torch.cat([w.reshape(-1) for w in weights])
    pieces = flat.split_with_sizes([w.numel() for w in weights])
    return [piece.view(w.shape) for piece, w in zip(pieces, weights, strict=True)]


def _lstm_step(ours: torch.Tensor, states: torch.Tensor, before: Found) -> Found:
    i, f, g, o = (ours + states).chunk(4, 1)
    cell = f.sigmoid() * before[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_step(ours: torch.Tensor, states: torch.Tensor, before: Found) -> Found:
    (r, z, n), (h_r, h_z, h_n) = ours.chunk(3, 1), states.chunk(3, 1)
    update = (z + h_z).sigmoid()
    new = (n + (r + h_r).sigmoid() * h_n).tanh()
    return ((1.0 - update) * new + update * before[0],)


_STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor, Found], Found]] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": lambda ours, states, before: ((ours + states).tanh(),),
    "rnn_relu": lambda ours, states, before: ((ours + states).relu(),),
}


@dataclass(frozen=True, slots=True)
class CellStates:
    """The states of an LSTM's cell after every step, which torch's kernel keeps to itself.

    Called with the hidden states in front of what `Recurrence` takes. As all hidden states are known, the
    gates of all steps are computed at once, and only two products a step are left.

    Shape:
        hidden, returns: (T, N, H); the others as for `Recurrence`.
    """

    makes_memory: ClassVar[bool] = True
    recurrence: Recurrence

    def __call__(self, hidden: torch.Tensor, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        """Return all states of the cell, (T, N, H)."""
        x = flat_from(x, 2)
        begin, cell = (state.reshape(hidden.shape[1:]) for state in rest[:2])
        weights = self.recurrence.weights(*rest[2:])
        w_in, w_state, b_in, b_state = _parted(weights)
        before = torch.cat([begin.unsqueeze(0), hidden[:-1]])
        i, f, g, _ = (linear(x, w_in, b_in) + linear(before, w_state, b_state)).chunk(4, 2)
        found = []
        for keeps, adds in zip(f.sigmoid().unbind(0), (i.sigmoid() * g.tanh()).unbind(0), strict=True):
            cell = torch.addcmul(adds, keeps, cell)
            found.append(cell)
        return torch.stack(found)
