"""Normalization, dropout, noise, and LSTM steps as single operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .binary import CDIV, CMULT, MINUS, SUM, equal, reduced, scalar_operand
from .native_kernels import BINARY, OP, Attrs, NodeEngine, Nodes, chain, drawn, fits, view_as
from .native_kernels import reduced as along_dimensions
from .spec import (
    BatchCall,
    Dim,
    Dims,
    Grads,
    Operation,
    Run,
    ShapeRule,
    common_batch,
    declare,
    fail,
    target,
    unsqueeze_as,
)
from .unary import UNARY, same_shape

Tensor = torch.Tensor


def _layer(call: BatchCall, x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return torch.layer_norm(x, x.shape[2:], eps=0.0) * g + b


def _weight(call: BatchCall, w: Tensor, g: Tensor) -> Tensor:
    return w * (unsqueeze_as(g, w) / unsqueeze_as(w.flatten(2).square().sum(2).sqrt(), w))


def _layer_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    x, gains, biases = args
    dims = [engine.dim(arg)[0] for arg in args]
    if len(dims[0]) > 1 or dims[1:] != dims[:1] * 2:
        return -1
    centred = chain(engine, x, (MINUS.kernel, along_dimensions(engine, "mean_dim", x, (0,), False)))
    squares = chain(engine, centred, (UNARY["square"].kernel, None))
    deviation = chain(
        engine, along_dimensions(engine, "mean_dim", squares, (0,), False), (UNARY["sqrt"].kernel, None)
    )
    return chain(engine, centred, (CDIV.kernel, deviation), (CMULT.kernel, gains), (SUM.kernel, biases))


def _weight_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    w, length = args
    if math.prod(engine.dim(length)[0]) != 1 or not fits(engine, w, length):
        return -1
    norm = along_dimensions(engine, "l2_norm", w, range(len(engine.dim(w)[0])), False)
    factor = engine.kernel(OP["binary"], BINARY["div"], (view_as(engine, length, (1,)), norm))
    return engine.kernel(OP["binary"], BINARY["mul"], (w, factor))


LAYER_NORM = declare(
    "layer_norm", equal("layer_norm", "input, gains and biases"), _layer, kernel=_layer_kernel
)
WEIGHT_NORM = declare("weight_norm", scalar_operand("weight_norm", "length"), _weight, kernel=_weight_kernel)


def draw_mask(mask: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Fill a tensor with a mask: 0 with probability `rate`, else 1 / (1 - rate)."""
    if rate >= 1.0:
        return mask.zero_()
    return mask.bernoulli_(1.0 - rate, generator=generator).div_(1.0 - rate)


def _masked(call: BatchCall, x: Tensor, shape: Sequence[int], rate: float) -> Tensor:
    """Multiply with a dropout mask, see `draw_mask`."""
    call.saved = draw_mask(torch.empty(tuple(shape), dtype=x.dtype, device=x.device), rate, call.generator)
    answer: Tensor = x * call.saved
    return answer


def _masked_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    return [g * call.saved]


def _dropout(call: BatchCall, x: Tensor) -> Tensor:
    return _masked(call, x, x.shape, call.attrs[0])


def _dim_shape(attrs: Attrs, dims: Dims) -> Dim:
    if not 0 <= attrs[1] < len(dims[0].d):
        fail("dropout_dim", dims, f"there is no dimension {attrs[1]}")
    return dims[0]


def _dropout_dim(call: BatchCall, x: Tensor) -> Tensor:
    shape = [*x.shape]
    shape[call.attrs[1] + 2] = 1
    return _masked(call, x, shape, call.attrs[0])


def _dropout_batch(call: BatchCall, x: Tensor) -> Tensor:
    return _masked(call, x, [*x.shape[:2], *[1] * (x.dim() - 2)], call.attrs[0])


def _block(call: BatchCall, x: Tensor) -> Tensor:
    return _masked(call, x, [x.shape[0], *[1] * (x.dim() - 1)], call.attrs[0])


def _noise(call: BatchCall, x: Tensor) -> Tensor:
    return x + torch.empty_like(x).normal_(0.0, call.attrs[0], generator=call.generator)


def _declare_noisy(name: str, run: Run, grad: Run = _masked_grad, shape: ShapeRule = same_shape) -> Operation:
    return declare(name, shape, run, grad, random=True, expand=True, kernel=drawn(name))


DROPOUT = _declare_noisy("dropout", _dropout)
DROPOUT_DIM = _declare_noisy("dropout_dim", _dropout_dim, shape=_dim_shape)
DROPOUT_BATCH = _declare_noisy("dropout_batch", _dropout_batch)
BLOCK_DROPOUT = _declare_noisy("block_dropout", _block)
NOISE = _declare_noisy("noise", _noise, lambda call, g, x: [g])


_tanh_back = torch.ops.aten.tanh_backward.grad_input
_sigmoid_back = torch.ops.aten.sigmoid_backward.grad_input


def _lstm_shape(attrs: Attrs, dims: Dims) -> tuple[Dim, Dim]:
    size = dims[0].d[0] // 4
    if len(dims[0].d) != 1 or dims[0].d[0] != 4 * size or any(dim.d != (size,) for dim in dims[2:]):
        fail("lstm_step", dims, "gates of 4 times the size of the states are needed")
    if len(dims) > 1 and dims[1].d != (4 * size, size):
        fail("lstm_step", dims, f"the recurrent weights need the dimensions ({4 * size}, {size})")
    found = Dim((size,), common_batch("lstm_step", dims))
    return found, found


def _gates(call: BatchCall, gates: Tensor) -> Tensor:
    """Apply the activations of the gates and of the candidate, in place."""
    size = call.out.d[0]
    if call.attrs[0]:
        gates[..., size : 2 * size].add_(call.attrs[0])
    torch.sigmoid_(gates[..., : 3 * size])
    torch.tanh_(gates[..., 3 * size :])
    return gates


def _first(call: BatchCall, x: Tensor) -> tuple[Tensor, Tensor]:
    size = call.out.d[0]
    gates = _gates(call, x.clone())
    c = gates[..., :size] * gates[..., 3 * size :]
    squashed = torch.tanh(c)
    call.saved = gates, squashed
    return gates[..., 2 * size : 3 * size] * squashed, c


def _first_grad(call: BatchCall, g: tuple[Tensor, Tensor], x: Tensor) -> Grads:
    return [_gate_grads(call, g, None, x)[0]]


def _step(call: BatchCall, x: Tensor, w: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    size = call.out.d[0]
    if x.shape[:2] == h.shape[:2]:
        gates = torch.addmm(x.reshape(-1, 4 * size), h.reshape(-1, size), w.flatten(0, 2).t()).view(x.shape)
    else:
        gates = x + torch.matmul(h, w[0, 0].t())
    gates = _gates(call, gates)
    new = torch.mul(gates[..., :size], gates[..., 3 * size :], out=target(call, 1))
    new.addcmul_(gates[..., size : 2 * size], c)
    squashed = torch.tanh(new)
    call.saved = gates, squashed
    return torch.mul(gates[..., 2 * size : 3 * size], squashed, out=target(call, 0)), new


def _gate_grads(
    call: BatchCall, g: tuple[Tensor, Tensor], c: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the gates before their activations, and of the new memory."""
    gates, squashed = call.saved
    gate_grads, size = _gradient_memory(call, 0, gates.shape), call.out.d[0]
    shape = (*gates.shape[:-1], 4, size)
    i, f, o, u = gates.view(shape).unbind(-2)
    di, df, do, du = gate_grads.view(shape).unbind(-2)
    dh, above = g
    dc = dh * o
    dc = above.add_(_tanh_back(dc, squashed, grad_input=dc))  # in place, for `gradient()` of the memory
    torch.mul(dc, u, out=di)
    if c is None:
        df.zero_()
    else:
        torch.mul(dc, c, out=df)
    torch.mul(dh, squashed, out=do)
    sigmoids = gate_grads[..., : 3 * size]
    _sigmoid_back(sigmoids, gates[..., : 3 * size], grad_input=sigmoids)
    torch.mul(dc, i, out=du)
    _tanh_back(du, u, grad_input=du)
    return gate_grads, torch.mul(
        dc, f, out=target(call, 3) if c is not None and c.shape == dc.shape else None
    )


def _gradient_memory(call: BatchCall, place: int, shape: Sequence[int]) -> Tensor:
    """Return the memory for the gradient of an operand, or new memory if the operand is broadcast."""
    memory = target(call, place)
    if memory is not None and memory.shape == shape:
        return memory
    return torch.empty(shape, dtype=call.dtype, device=call.device)


def _step_grad(
    call: BatchCall, g: tuple[Tensor, Tensor], x: Tensor, w: Tensor, h: Tensor, c: Tensor
) -> Grads:
    size = call.out.d[0]
    gates, memory = _gate_grads(call, g, c, x)
    flat = gates.view(-1, 4 * size)
    wants = call.wants
    if wants[1] and call.defer is not None:
        call.defer(1, flat, h.expand(*gates.shape[:2], size).reshape(-1, size))
    dh = None
    if wants[2]:
        dh = _gradient_memory(call, 2, memory.shape)
        torch.mm(flat, w.flatten(0, 2), out=dh.view(-1, size))
    return [reduced(gates, x), None, dh if dh is None else reduced(dh, h), reduced(memory, c)]


LSTM_FIRST = declare("lstm_first", _lstm_shape, _first, _first_grad, outputs=2)
LSTM_STEP = declare("lstm_step", _lstm_shape, _step, _step_grad, outputs=2)


def _gates_shape(attrs: Attrs, dims: Dims) -> Dim:
    _, has_masks = attrs
    x, h, wx, wh, b = dims[:5]
    size = h.d[0]
    wanted = (4 * size, x.d[0]), (4 * size, size), (4 * size,)
    if len(x.d) > 1 or len(h.d) > 1 or (wx.d, wh.d, b.d) != wanted:
        fail("vanilla_lstm_gates", dims, "x (I), h (H), Wx (4H, I), Wh (4H, H) and b (4H) are needed")
    if has_masks and (dims[5].d != x.d or dims[6].d != h.d):
        fail("vanilla_lstm_gates", dims, "the masks need the dimensions of x and h")
    return Dim(b.d, common_batch("vanilla_lstm_gates", dims))


def _noisy(call: BatchCall, weights: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Add noise, drawn once per batch and reused when `run` is repeated for the gradient."""
    spread = call.attrs[0]
    if not spread:
        return weights
    if call.saved is None:
        call.saved = [torch.empty_like(w).normal_(0.0, spread, generator=call.generator) for w in weights]
    return tuple(w + noise for w, noise in zip(weights, call.saved))


def _dynet_gates(
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
    return Dim(dims[0].d, common_batch("vanilla_lstm", dims))


def _c(call: BatchCall, c: Tensor, gates: Tensor) -> Tensor:
    i, f, _, u = torch.split(gates, call.out.d[0], -1)
    return i * u + f * c


def _h(call: BatchCall, c: Tensor, gates: Tensor) -> Tensor:
    size = call.out.d[0]
    return gates[..., 2 * size : 3 * size] * torch.tanh(c)


LSTM_GATES = declare("vanilla_lstm_gates", _gates_shape, _dynet_gates)
NOISY_LSTM_GATES = declare("noisy_lstm_gates", _gates_shape, _dynet_gates, random=True)
LSTM_C = declare("vanilla_lstm_c", _state_shape, _c)
LSTM_H = declare("vanilla_lstm_h", _state_shape, _h)
