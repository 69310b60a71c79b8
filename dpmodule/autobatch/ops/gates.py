"""DyNet's own three operations of an LSTM step: gates, memory, output."""

from __future__ import annotations

import torch

from .native_machine import Attrs
from .spec import BatchCall, Dim, Dims, declare, fail, same_batch

Tensor = torch.Tensor


def _gates_shape(attrs: Attrs, dims: Dims) -> Dim:
    _, has_masks = attrs
    x, h, wx, wh, b = dims[:5]
    size = h.d[0]
    wanted = (4 * size, x.d[0]), (4 * size, size), (4 * size,)
    if len(x.d) > 1 or len(h.d) > 1 or (wx.d, wh.d, b.d) != wanted:
        fail("vanilla_lstm_gates", dims, "x (I), h (H), Wx (4H, I), Wh (4H, H) and b (4H) are needed")
    if has_masks and (dims[5].d != x.d or dims[6].d != h.d):
        fail("vanilla_lstm_gates", dims, "the masks need the dimensions of x and h")
    return Dim(b.d, same_batch("vanilla_lstm_gates", dims))


def _noisy(call: BatchCall, weights: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Add noise, one for a batch; the same again when `run` is repeated for the gradient."""
    spread = call.attrs[0]
    if not spread:
        return weights
    if call.saved is None:
        call.saved = [torch.empty_like(w).normal_(0.0, spread, generator=call.generator) for w in weights]
    return tuple(w + noise for w, noise in zip(weights, call.saved))


def _gates(
    call: BatchCall, x: Tensor, h: Tensor, wx: Tensor, wh: Tensor, b: Tensor, *masks: Tensor
) -> Tensor:
    if masks:
        x, h = x * masks[0], h * masks[1]
    size = call.dims[1].d[0]
    wx, wh, b = _noisy(call, (wx, wh, b))
    found = b + torch.matmul(wx, x.unsqueeze(-1)).squeeze(-1) + torch.matmul(wh, h.unsqueeze(-1)).squeeze(-1)
    i, f, o, u = torch.split(found, size, -1)
    return torch.cat([torch.sigmoid(i), torch.sigmoid(f + 1), torch.sigmoid(o), torch.tanh(u)], -1)


def _state_shape(attrs: Attrs, dims: Dims) -> Dim:
    if len(dims[0].d) > 1 or (dims[0].d[0] * 4,) != dims[1].d:
        fail("vanilla_lstm", dims, "a state of H and gates of 4H are needed")
    return Dim(dims[0].d, same_batch("vanilla_lstm", dims))


def _c(call: BatchCall, c: Tensor, gates: Tensor) -> Tensor:
    i, f, _, u = torch.split(gates, call.out.d[0], -1)
    return i * u + f * c


def _h(call: BatchCall, c: Tensor, gates: Tensor) -> Tensor:
    size = call.out.d[0]
    return gates[..., 2 * size : 3 * size] * torch.tanh(c)


LSTM_GATES = declare("vanilla_lstm_gates", _gates_shape, _gates)
NOISY_LSTM_GATES = declare("noisy_lstm_gates", _gates_shape, _gates, random=True)
LSTM_C = declare("vanilla_lstm_c", _state_shape, _c)
LSTM_H = declare("vanilla_lstm_h", _state_shape, _h)
