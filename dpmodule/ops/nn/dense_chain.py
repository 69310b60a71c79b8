"""Dense layers one after the other, as one call: what `executor.passes.dense_chains` puts in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from ... import private
from .linear import LARGE, by_onednn, product

__all__ = ["ACTIVATIONS", "DenseChain"]

Layer = tuple[torch.Tensor, torch.Tensor | None, "str | None"]
"""Weight, bias and activation."""

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}
"""Activations whose gradient follows from their output; each is applied in place."""

_BACKWARD: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda grad, out: torch.ops.aten.threshold_backward(grad, out, 0),
    "sigmoid": torch.ops.aten.sigmoid_backward,
    "tanh": torch.ops.aten.tanh_backward,
}

_WORTH_IT = 2**21
"""Multiplications from which oneDNN wins for a single layer of a chain that uses it anyway."""


def _by_onednn(data: torch.Tensor, weight: torch.Tensor) -> bool:
    return data.shape[0] * weight.numel() >= _WORTH_IT


def _forward(data: torch.Tensor, layers: Sequence[Layer]) -> list[torch.Tensor]:
    """Return the output of every layer; nothing is recorded."""
    outputs = []
    for weight, bias, act in layers:
        if _by_onednn(data, weight):
            data = private.onednn_linear(data, weight, bias, "none", [], "")
        else:
            data = F.linear(data, weight, bias)
        if act is not None:
            data = ACTIVATIONS[act](data)
        outputs.append(data)
    return outputs


class _Chain(torch.autograd.Function):
    """The layers with their gradients, recorded as one function."""

    @staticmethod
    def forward(ctx: Any, acts: Sequence[str | None], data: torch.Tensor, *parameters: Any) -> torch.Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        outputs = _forward(data, list(zip(weights, biases, acts)))
        ctx.acts = acts
        ctx.save_for_backward(data, *weights, *outputs)
        return outputs[-1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,) = grads
        count = len(ctx.acts)
        data, *saved = ctx.saved_tensors
        weights, outputs = saved[:count], saved[count:]
        wanted = ctx.needs_input_grad
        found: list[torch.Tensor | None] = [None] * len(wanted)
        for i in range(count - 1, -1, -1):
            act, weight, source = ctx.acts[i], weights[i], outputs[i - 1] if i else data
            if act is not None:
                grad = _BACKWARD[act](grad, outputs[i])
            large = _by_onednn(source, weight)
            if wanted[2 + 2 * i]:
                found[2 + 2 * i] = product(grad.t(), source.t()) if large else grad.t().mm(source)
            if wanted[3 + 2 * i]:
                found[3 + 2 * i] = grad.sum(0)
            if not any(wanted[1 : 2 + 2 * i]):  # nobody below wants one
                break
            grad = product(grad, weight.t()) if large else grad.mm(weight)
        else:
            found[1] = grad
        return tuple(found)


_apply: Callable[..., torch.Tensor] = _Chain.apply


class DenseChain:
    """Dense layers, each with its activation, one after the other.

    Where oneDNN takes the largest of the products, the whole chain is one recorded function; elsewhere the layers
    run as they would one by one.

    Args:
        acts: activation of each layer: a key of `ACTIVATIONS`, or None.
        biased: whether each layer has a bias.
        functions: what each layer runs outside oneDNN: its linear map, and its activation or None.
        flattens: whether the first layer's data is flattened to two axes.
    """

    def __init__(
        self,
        acts: Sequence[str | None],
        biased: Sequence[bool],
        functions: Sequence[tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor] | None]],
        flattens: bool,
    ) -> None:
        self._acts, self._biased, self._functions, self._flattens = acts, biased, functions, flattens

    def __call__(self, data: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        """Run the layers.

        Args:
            data: (N, K), or (N, ...) where it is flattened.
            parameters: weight, and bias where there is one, of each layer.
        """
        given = iter(parameters)
        pairs = [(next(given), next(given) if biased else None) for biased in self._biased]
        if self._flattens and data.dim() != 2:
            data = data.flatten(1)
        if not self._is_for_onednn(data, pairs):
            for (linear, act), (weight, bias) in zip(self._functions, pairs):
                data = linear(data, weight, bias)
                data = data if act is None else act(data)
            return data
        if torch.is_grad_enabled():
            return _apply(self._acts, data, *(tensor for pair in pairs for tensor in pair))
        return _forward(data, [(weight, bias, act) for (weight, bias), act in zip(pairs, self._acts)])[-1]

    @staticmethod
    def _is_for_onednn(data: torch.Tensor, pairs: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> bool:
        """Say whether oneDNN takes the largest product, and the others have the same type."""
        largest = max((weight for weight, _ in pairs), key=torch.Tensor.numel)
        if data.shape[0] * largest.numel() < LARGE:
            return False
        plain = all(
            tensor is None or tensor.dtype is torch.float32 for pair in pairs for tensor in pair
        ) and all(bias is None or bias.dim() == 1 for _, bias in pairs)
        return plain and by_onednn(data, largest)
