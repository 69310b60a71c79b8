"""GRUs and plain networks over whole sequences on the CPU, in torch's calls.

torch's own record every small step. Here forward keeps the values for backward, and backward computes everything that
does not depend on the gradient of the next step in one call for all steps, so that two or three calls per step remain;
the gradients of the weights take one product each.

Shape letters: T time steps, N batch, K features of the input, H features of the state.

Source: the gradients of torch's `gru`, `rnn_tanh` and `rnn_relu`, written out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .linear import ONEDNN_MIN_WORK, fastest_product, linear, onednn_is_faster

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
    def forward(ctx: Any, *operands: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x, begin, w_in, w_state, b_in, b_state, with_relu = operands
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
    def forward(ctx: Any, *operands: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x, begin, w_in, w_state, b_in, b_state = operands
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


_apply_plain: Callable[..., Tensors] = _PlainNetwork.apply
_KERNELS: dict[str, Callable[..., Tensors]] = {
    "gru": _Gru.apply,
    "rnn_tanh": lambda *given: _apply_plain(*given, False),
    "rnn_relu": lambda *given: _apply_plain(*given, True),
}
_KERNEL_TYPES = frozenset({torch.float32, torch.float64})


def sequence_kernel(mode: str, x: torch.Tensor, gates: int) -> Callable[..., Tensors] | None:
    """Return the function that runs one layer, if there is one and it is faster than torch's; else None.

    It takes data (T, N, K), initial state (N, H), weights, and biases or None; it returns all states (T, N, H), and a
    copy of the last one (1, N, H). All tensors have one type.

    Args:
        gates: rows of the weights.
    """
    if x.dtype not in _KERNEL_TYPES or not x.is_cpu or not x.numel():
        return None
    # without gradient torch's is faster, unless its products are slow
    worth = torch.is_grad_enabled() or (x.numel() * gates >= ONEDNN_MIN_WORK and onednn_is_faster())
    return _KERNELS.get(mode) if worth else None
