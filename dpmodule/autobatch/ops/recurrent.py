"""Steps of recurrent networks as single operations.

The product of the input with its weights is a node of its own (`affine_transform`), outside the recurrence: it is one
product for all positions of all examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .binary import reduced
from .spec import Call, Dim, declare, fail, same_batch, target

__all__ = ["LSTM_FIRST", "LSTM_STEP"]

Tensor = torch.Tensor


def _lstm_shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> tuple[Dim, Dim]:
    size = dims[0].d[0] // 4
    if len(dims[0].d) != 1 or dims[0].d[0] != 4 * size or any(dim.d != (size,) for dim in dims[2:]):
        fail("lstm_step", dims, "gates of 4 times the size of the states are needed")
    if len(dims) > 1 and dims[1].d != (4 * size, size):
        fail("lstm_step", dims, f"the recurrent weights need the dimensions ({4 * size}, {size})")
    found = Dim((size,), same_batch("lstm_step", dims))
    return found, found


def _gates(call: Call, gates: Tensor) -> Tensor:
    """Apply the activations of input, forget and output gate and of the candidate, in place."""
    size = call.out.d[0]
    if call.attrs[0]:
        gates[..., size : 2 * size] += call.attrs[0]
    torch.sigmoid_(gates[..., : 3 * size])
    torch.tanh_(gates[..., 3 * size :])
    return gates


def _first(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    size = call.out.d[0]
    gates = _gates(call, x.clone())
    c = gates[..., :size] * gates[..., 3 * size :]
    squashed = torch.tanh(c)
    call.saved = gates, squashed
    return gates[..., 2 * size : 3 * size] * squashed, c


def _first_grad(call: Call, g: tuple[Tensor, Tensor], x: Tensor) -> list[Tensor | None]:
    return [_gate_grads(call, g, None, x)[0]]


def _step(call: Call, x: Tensor, w: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    size = call.out.d[0]
    if x.shape[:2] == h.shape[:2]:
        gates = torch.addmm(x.reshape(-1, 4 * size), h.reshape(-1, size), w[0, 0].t()).view(x.shape)
    else:
        gates = x + torch.matmul(h, w[0, 0].t())
    gates = _gates(call, gates)
    new = torch.mul(gates[..., :size], gates[..., 3 * size :], out=target(call, 1))
    new.addcmul_(gates[..., size : 2 * size], c)
    squashed = torch.tanh(new)
    call.saved = gates, squashed
    return torch.mul(gates[..., 2 * size : 3 * size], squashed, out=target(call, 0)), new


def _gate_grads(call: Call, g: tuple[Tensor, Tensor], c: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the gates before their activations, and of the new memory."""
    size = call.out.d[0]
    gates, squashed = call.saved
    i, f, o, u = gates.split(size, -1)
    dh, dc = g
    dc = dc + dh * o * (1 - squashed * squashed)
    found = torch.empty(*dc.shape[:-1], 4 * size, dtype=dc.dtype, device=dc.device)
    torch.mul(dc, u, out=found[..., :size])
    if c is None:
        found[..., size : 2 * size] = 0
    else:
        torch.mul(dc, c, out=found[..., size : 2 * size])
    torch.mul(dh, squashed, out=found[..., 2 * size : 3 * size])
    sigmoids = gates[..., : 3 * size]
    found[..., : 3 * size] *= sigmoids * (1 - sigmoids)
    torch.mul(dc * i, 1 - u * u, out=found[..., 3 * size :])
    return found, dc * f


def _step_grad(
    call: Call, g: tuple[Tensor, Tensor], x: Tensor, w: Tensor, h: Tensor, c: Tensor
) -> list[Tensor | None]:
    size = call.out.d[0]
    gates, memory = _gate_grads(call, g, c, x)
    flat = gates.view(-1, 4 * size)
    wants = call.wants
    if wants[1] and call.defer is not None:
        call.defer(1, flat, h.expand(*gates.shape[:2], size).reshape(-1, size))
    dh = (flat @ w[0, 0]).view(*gates.shape[:2], size) if wants[2] else None
    return [reduced(gates, x), None, dh if dh is None else reduced(dh, h), reduced(memory, c)]


LSTM_FIRST = declare("lstm_first", _lstm_shape, _first, _first_grad, outputs=2)
LSTM_STEP = declare("lstm_step", _lstm_shape, _step, _step_grad, outputs=2)
