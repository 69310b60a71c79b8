"""Functions that run in place of a chain: kernels for whole sequences, or the plain steps.

GRUs and plain networks on the CPU have kernels here, since torch's record every small step. Forward keeps the values
for backward; backward computes everything that does not depend on the gradient of the next step in one call for all
steps, so that two or three calls per step remain, and the gradients of the weights take one product each. LSTMs use
oneDNN, or `ops.nn.lstm` where oneDNN's preparation takes longer than the computation.

Shape letters: T time steps, N batch, K features of the input, H features of the state, G gates.

Source: the gradients of torch's `gru`, `rnn_tanh` and `rnn_relu`, written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from ...._core import torch_private
from ....ops.nn.layer_shapes import flat_from
from ....ops.nn.linear import ONEDNN_MIN_WORK, fastest_product, linear
from ....ops.nn.lstm import is_small, small_lstm

Optional = torch.Tensor | None
Tensors = tuple[torch.Tensor, ...]


def _states(begin: torch.Tensor, steps: int) -> torch.Tensor:
    """Return memory for all states, (T + 1, N, H), with the initial one set."""
    states = begin.new_empty(steps + 1, *begin.shape)
    states[0] = begin
    return states


def _gradients_of_states(states: torch.Tensor, outputs: Optional, last: Optional) -> torch.Tensor:
    """Return the gradients of all states that come from the outputs, (T + 1, N, H)."""
    grads = torch.zeros_like(states) if outputs is None else torch.empty_like(states)
    if outputs is not None:
        grads[0].zero_()
        grads[1:] = outputs
    if last is not None:
        grads[-1] += last[0]
    return grads


def _for_map(
    grad: torch.Tensor, data: torch.Tensor, weight: torch.Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Optional, Optional, Optional]:
    """Return the wanted gradients of a linear map's data, weight and bias."""
    flat = grad.reshape(-1, weight.shape[0])
    return (
        fastest_product(flat, weight.t()).view(data.shape) if wanted[0] else None,
        fastest_product(flat.t(), data.reshape(-1, weight.shape[1]).t()) if wanted[1] else None,
        flat.sum(0) if wanted[2] else None,
    )


def _map(x: torch.Tensor, weight: torch.Tensor, bias: Optional) -> torch.Tensor:
    """Return the linear map of a sequence."""
    return linear(x.reshape(-1, x.shape[2]), weight, bias).view(*x.shape[:2], -1)


class _PlainNetwork(torch.autograd.Function):
    """A plain network; takes data (T, N, K), initial state (N, H), weights, biases or None, and the activation.

    Returns all states (T, N, H), and a copy of the last one (1, N, H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        begin: torch.Tensor,
        w_in: torch.Tensor,
        w_state: torch.Tensor,
        b_in: Optional,
        b_state: Optional,
        with_relu: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        states = _states(begin, x.shape[0])
        maps = _map(x, w_in, b_in)
        if b_state is not None:
            maps += b_state
        transposed = w_state.t()
        activate = torch.relu_ if with_relu else torch.tanh_
        rows = states.unbind(0)
        for t, own in enumerate(maps.unbind(0)):
            activate(torch.addmm(own, rows[t], transposed, out=rows[t + 1]))
        ctx.save_for_backward(x, w_in, w_state, states)
        ctx.with_relu = with_relu
        return states[1:], states[-1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Optional) -> tuple[Optional, ...]:
        x, w_in, w_state, states = ctx.saved_tensors
        new = states[1:]
        slopes = 1.0 - ((new <= 0).to(new.dtype) if ctx.with_relu else new * new)  # 1 at NaN, as relu's
        grads_of_states = _gradients_of_states(states, *grads)
        rows = grads_of_states.unbind(0)
        for t, slope in reversed(list(enumerate(slopes.unbind(0)))):
            rows[t].addmm_(rows[t + 1].mul_(slope), w_state)
        wants = ctx.needs_input_grad
        for_x, for_in, for_b = _for_map(
            grads_of_states[1:], x, w_in, (wants[0], wants[2], wants[4] or wants[5])
        )
        for_state = _for_map(grads_of_states[1:], states[:-1], w_state, (False, wants[3], False))[1]
        return (
            for_x,
            grads_of_states[0],
            for_in,
            for_state,
            for_b if wants[4] else None,
            for_b if wants[5] else None,
            None,
        )


class _Gru(torch.autograd.Function):
    """A GRU; takes and returns the same as `_PlainNetwork`, without an activation."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        begin: torch.Tensor,
        w_in: torch.Tensor,
        w_state: torch.Tensor,
        b_in: Optional,
        b_state: Optional,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        units = begin.shape[1]
        states = _states(begin, x.shape[0])
        ours, maps = _map(x, w_in, b_in), states.new_empty(*x.shape[:2], 3 * units)
        gates, new = states.new_empty(*x.shape[:2], 2 * units), torch.empty_like(states[1:])
        transposed = w_state.t()
        rows = zip(
            states.unbind(0),
            states[1:].unbind(0),
            maps.unbind(0),
            maps[..., : 2 * units].unbind(0),
            maps[..., 2 * units :].unbind(0),
            ours[..., : 2 * units].unbind(0),
            ours[..., 2 * units :].unbind(0),
            gates.unbind(0),
            gates[..., :units].unbind(0),
            gates[..., units:].unbind(0),
            new.unbind(0),
            strict=False,  # there is one state more than steps
        )
        for state, after, row, row_gates, row_new, our_gates, our_new, gate, reset, update, fresh in rows:
            if b_state is None:
                torch.mm(state, transposed, out=row)
            else:
                torch.addmm(b_state, state, transposed, out=row)
            torch.add(our_gates, row_gates, out=gate).sigmoid_()
            torch.addcmul(our_new, reset, row_new, out=fresh).tanh_()
            torch.lerp(fresh, state, update, out=after)
        ctx.save_for_backward(x, w_in, w_state, states, gates, new, maps)
        return states[1:], states[-1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Optional) -> tuple[Optional, ...]:
        x, w_in, w_state, states, gates, new, maps = ctx.saved_tensors
        steps, rows, units = new.shape
        reset, update = gates.chunk(2, 2)
        rest = 1.0 - update
        of_new = rest * (1.0 - new * new)
        slopes = new.new_empty(steps, rows, 3, units)
        torch.mul(of_new * maps[..., 2 * units :], reset * (1.0 - reset), out=slopes[:, :, 0])
        torch.mul(states[:-1] - new, update * rest, out=slopes[:, :, 1])
        torch.mul(of_new, reset, out=slopes[:, :, 2])
        grads_of_states = _gradients_of_states(states, *grads)
        rows_of_grads = grads_of_states.unbind(0)
        for_maps = torch.empty_like(slopes)
        parts = zip(slopes.unbind(0), for_maps.unbind(0), update.unbind(0), strict=True)
        for t, (slope, for_map, keep) in reversed(list(enumerate(parts))):
            after = rows_of_grads[t + 1]
            torch.mul(slope, after.unsqueeze(1), out=for_map)
            rows_of_grads[t].addcmul_(after, keep).addmm_(for_map.view(rows, -1), w_state)
        wants = ctx.needs_input_grad
        _, for_state, for_b_state = _for_map(for_maps, states[:-1], w_state, (False, wants[3], wants[5]))
        torch.mul(of_new, grads_of_states[1:], out=for_maps[:, :, 2])
        for_x, for_in, for_b_in = _for_map(for_maps, x, w_in, (wants[0], wants[2], wants[4]))
        return for_x, grads_of_states[0], for_in, for_state, for_b_in, for_b_state


_CPU_TYPES = frozenset({torch.float32, torch.float64, torch.bfloat16})
_CUDA_TYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})

_KERNELS: dict[str, Callable[..., Tensors]] = {
    "gru": _Gru.apply,
    **dict.fromkeys(("rnn_tanh", "rnn_relu"), _PlainNetwork.apply),
}
_KERNEL_TYPES = frozenset({torch.float32, torch.float64})

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
        if self.mode == "lstm" and is_small(x, begin, weights):
            return small_lstm(x, begin, weights)
        if not _has_kernel(x, begin, weights):
            return self._plain(x, begin, weights)
        if x.is_cuda:
            weights = make_contiguous(weights)
        elif self._is_better_here(x, weights):
            options = () if self.mode == "gru" else (self.mode == "rnn_relu",)
            return _KERNELS[self.mode](x, begin[0], *_weights_and_biases(weights), *options)
        states = tuple(state.unsqueeze(0) for state in begin)
        hx = states if count == 2 else states[0]
        has_biases, records = len(weights) == 4, torch.is_grad_enabled()
        outputs: Tensors = getattr(torch, self.mode)(
            x, hx, weights, has_biases, 1, 0.0, records, False, False
        )
        return outputs

    def _is_better_here(self, x: torch.Tensor, weights: list[torch.Tensor]) -> bool:
        """Return True if this module's kernels are faster than torch's, which record or prepare every small step."""
        if self.mode not in _KERNELS or x.dtype not in _KERNEL_TYPES:
            return False
        return torch.is_grad_enabled() or x.numel() * weights[0].shape[0] >= ONEDNN_MIN_WORK

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
        w_in, w_state, b_in, b_state = _weights_and_biases(weights)
        step, states, outputs = _STEPS[self.mode], begin, []
        for row in x.unbind(0):
            states = step(F.linear(row, w_in, b_in), F.linear(states[0], w_state, b_state), states)
            outputs.append(states[0])
        return torch.stack(outputs), *(state.unsqueeze(0) for state in states)


def _weights_and_biases(
    weights: list[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return both weights and both biases, or None for missing ones."""
    biases = weights[2:]
    return weights[0], weights[1], biases[0] if biases else None, biases[1] if biases else None


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
    return x.numel() > 0 and not (torch_private.is_batched(x) or torch_private.is_batched(begin[0]))


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
        weights = self.recurrence.weights(*rest[2:])
        w_in, w_state, b_in, b_state = _weights_and_biases(weights)
        before = torch.cat([begin.unsqueeze(0), hidden[:-1]])
        i, f, g, _ = (F.linear(x, w_in, b_in) + F.linear(before, w_state, b_state)).chunk(4, 2)
        cells = []
        for keeps, adds in zip(f.sigmoid().unbind(0), (i.sigmoid() * g.tanh()).unbind(0), strict=True):
            cell = torch.addcmul(adds, keeps, cell)
            cells.append(cell)
        return torch.stack(cells)
