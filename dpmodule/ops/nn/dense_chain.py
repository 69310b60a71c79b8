"""Dense layers one after the other, as one call: what `executor.passes.dense_chains` puts in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from ... import private
from ..math.relu import relu_gradient
from .linear import LARGE, by_onednn, product
from .moderate import is_moderate, is_plain, multiply, pays
from .rules import flat_from

__all__ = ["ACTIVATIONS", "ChainRun", "DenseChain"]

Layer = tuple[torch.Tensor, torch.Tensor | None, "str | None"]
"""Weight, bias and activation."""

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu_,
    "Activation relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}
"""Activations whose gradient follows from their output; each is applied in place."""

_BACKWARD: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": relu_gradient,
    "Activation relu": lambda grad, out: torch.ops.aten.threshold_backward(grad, out, 0),
    "sigmoid": torch.ops.aten.sigmoid_backward,
    "tanh": torch.ops.aten.tanh_backward,
}

_USUAL = frozenset([torch.float32, torch.float64])
_WORTH_IT = 2**21
"""Multiplications from which oneDNN wins for a single layer of a chain that uses it anyway."""


def _is_worth_it(data: torch.Tensor, weight: torch.Tensor) -> bool:
    return data.shape[0] * weight.numel() >= _WORTH_IT


class ChainRun:
    """Layers that have run, with what their gradients need.

    Nothing is recorded: who calls this asks for gradients by `gradients`.

    Args:
        data: (N, K).
        layers: weight, bias and activation of each.
        onednn: whether products of some size go to oneDNN.

    Attributes:
        outputs: what each layer returned.
    """

    __slots__ = ("_data", "_is_plain", "_layers", "_onednn", "outputs")

    def __init__(self, data: torch.Tensor, layers: Sequence[Layer], onednn: bool) -> None:
        self._data, self._layers, self._onednn = data, layers, onednn
        self._is_plain = is_plain(data)
        self.outputs: list[torch.Tensor] = []
        for weight, bias, act in layers:
            if self._is_plain and pays(data.size(0), weight.size(0), weight.size(1)):
                data = multiply(data, weight, bias)
            elif onednn and _is_worth_it(data, weight):
                data = private.onednn_linear(data, weight, bias, "none", [], "")
            else:
                data = F.linear(data, weight, bias)
            if act is not None:
                data = ACTIVATIONS[act](data)
            self.outputs.append(data)

    @classmethod
    def of(
        cls, data: torch.Tensor, layers: Sequence[Layer], onednn: bool, outputs: list[torch.Tensor]
    ) -> ChainRun:
        """Return a run of which all results are known."""
        run = cls(data, [], onednn)
        run._layers, run.outputs = layers, outputs
        return run

    def gradients(self, grad: torch.Tensor, wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return gradients of the data, and of weight and bias of each layer.

        Args:
            grad: of the last output.
            wanted: which of them are asked for; the others are None.
        """
        found: list[torch.Tensor | None] = [None] * (1 + 2 * len(self._layers))
        for i in range(len(self._layers) - 1, -1, -1):
            weight, _, act = self._layers[i]
            source = self.outputs[i - 1] if i else self._data
            if act is not None:
                grad = _BACKWARD[act](grad, self.outputs[i])
            by = self._product_for(source, weight)
            if wanted[1 + 2 * i]:
                found[1 + 2 * i] = by(grad.t(), source.t())
            if wanted[2 + 2 * i]:
                found[2 + 2 * i] = grad.sum(0)
            if not any(wanted[: 1 + 2 * i]):  # nobody below wants one
                return found
            grad = by(grad, weight.t())
        found[0] = grad
        return found

    def _product_for(self, source: torch.Tensor, weight: torch.Tensor) -> Callable[..., torch.Tensor]:
        """Return what multiplies the first argument with the turned second one for a layer's gradients."""
        rows, units, features = source.size(0), weight.size(0), weight.size(1)
        if self._is_plain and pays(min(units, rows), max(units, rows), features):
            return multiply
        return product if self._onednn and _is_worth_it(source, weight) else F.linear


class _Chain(torch.autograd.Function):
    """The layers with their gradients, recorded as one function."""

    @staticmethod
    def forward(
        ctx: Any, acts: Sequence[str | None], onednn: bool, data: torch.Tensor, *parameters: Any
    ) -> torch.Tensor:
        weights, biases = parameters[::2], parameters[1::2]
        run = ChainRun(data, list(zip(weights, biases, acts)), onednn)
        ctx.acts, ctx.onednn = acts, onednn
        ctx.save_for_backward(data, *weights, *run.outputs)
        return run.outputs[-1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        count = len(ctx.acts)
        data, *saved = ctx.saved_tensors
        layers = [(w, None, act) for w, act in zip(saved, ctx.acts)]
        run = ChainRun.of(data, layers, ctx.onednn, saved[count:])
        return None, None, *run.gradients(grads[0], ctx.needs_input_grad[2:])


_apply: Callable[..., torch.Tensor] = _Chain.apply


class DenseChain:
    """Dense layers, each with its activation, one after the other.

    Where the largest of the products is worth it, and goes to oneDNN or our own kernel, the whole chain is one recorded
    function; elsewhere the layers run as they would one by one.

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
        data, layers = self._layers(data, parameters)
        onednn = self._is_for_onednn(data, layers)
        if not (onednn or self._is_for_kernel(data, layers)):
            for (linear, act), (weight, bias, _) in zip(self._functions, layers):
                data = linear(data, weight, bias)
                data = data if act is None else act(data)
            return data
        if torch.is_grad_enabled():
            return _apply(self._acts, onednn, data, *(tensor for layer in layers for tensor in layer[:2]))
        return ChainRun(data, layers, onednn).outputs[-1]

    def run(self, data: torch.Tensor, *parameters: torch.Tensor) -> ChainRun | None:
        """Run the layers so that gradients can be asked for without autograd.

        Args:
            data: as in a call.
            parameters: as in a call.

        Returns:
            The run, or None where types or shapes are not the usual ones.
        """
        data, layers = self._layers(data, parameters)
        if data.dim() != 2 or data.dtype not in _USUAL or not _are_plain(layers, data.dtype):
            return None
        return ChainRun(data, layers, self._is_for_onednn(data, layers))

    def by_layer(self, items: Sequence[Any], missing: Any) -> list[Any]:
        """Return what belongs to the call's arguments as a list of the data's, and each layer's weight's and bias's.

        Args:
            items: one for each argument.
            missing: stands for the bias of a layer without one.
        """
        given = iter(items)
        found = [next(given)]
        for biased in self._biased:
            found += [next(given), next(given) if biased else missing]
        return found

    def _layers(
        self, data: torch.Tensor, parameters: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, list[Layer]]:
        given = iter(parameters)
        layers: list[Layer] = [
            (next(given), next(given) if biased else None, act)
            for biased, act in zip(self._biased, self._acts)
        ]
        return flat_from(data, 1) if self._flattens and data.dim() != 2 else data, layers

    @staticmethod
    def _is_for_onednn(data: torch.Tensor, layers: Sequence[Layer]) -> bool:
        """Say whether oneDNN takes the largest product, and the others have the same type."""
        largest = _largest(layers)
        if data.shape[0] * largest.numel() < LARGE or is_moderate(data, largest):
            return False
        return _are_plain(layers, torch.float32) and by_onednn(data, largest)

    @staticmethod
    def _is_for_kernel(data: torch.Tensor, layers: Sequence[Layer]) -> bool:
        """Say whether our own kernel takes the largest product, which is worth a function, and the others too."""
        largest = _largest(layers)
        if data.shape[0] * largest.numel() < LARGE or not is_moderate(data, largest):
            return False
        return _are_plain(layers, torch.float32)


def _largest(layers: Sequence[Layer]) -> torch.Tensor:
    return max((weight for weight, _, _ in layers), key=torch.Tensor.numel)


def _are_plain(layers: Sequence[Layer], dtype: torch.dtype) -> bool:
    """Say whether weights and biases have a type, and biases one axis."""
    for weight, bias, _ in layers:
        if weight.dtype is not dtype or bias is not None and (bias.dtype is not dtype or bias.dim() != 1):
            return False
    return True
