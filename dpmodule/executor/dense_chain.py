"""Multilayer perceptrons: a chain of dense layers, below a loss or not, and nothing else.

The backward of such a network is known in advance. Recording and replaying it with autograd would take a tenth of the
time of a small network, and so would choosing the matrix product in every run.

Needs:
    graph: layers that read no variable twice, and at most a loss, whose other inputs are variables
    activations: relu, sigmoid, tanh, or none; at most one after a layer
    storage: dense, gradients included
    type: float32
    place: one context, on the CPU
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._core import torch_private
from .._core.short_backward import ShortBackward
from ..ops.nn.layer_shapes import flat_from
from ..ops.nn.linear import choose_product, fastest_kernel
from ..ops.spec import Env
from .arrays import BoundArrays
from .execution_mode import ExecutionMode
from .interpreter import StepFailed
from .lowering import Lowered
from .program import Forward, Program
from .sparse_arrays import is_sparse

GradientCallback = Callable[[torch.Tensor, torch.Tensor], None]
"""Called with a variable and its gradient."""

_IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}
"""In-place activations whose gradient follows from their output."""
_GRADIENTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda grad, out: torch.ops.aten.threshold_backward(grad, out, 0),
    "sigmoid": torch.ops.aten.sigmoid_backward,
    "tanh": torch.ops.aten.tanh_backward,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _DenseLayer:
    """A dense layer with its activation.

    Attributes:
        act: a key of `_IN_PLACE`, or None.
    """

    node: int
    slots: Sequence[int]
    act: str | None
    units: int
    features: int


class _DenseChain:
    """Runs a program like `Program.forward`, without autograd's recording."""

    def __init__(self, program: Program, layers: Sequence[_DenseLayer], rows: int) -> None:
        self._program, self._layers = program, layers
        self._loss = program.low.steps[-1] if program.low.losses else None
        self._data = program.low.steps[0].inputs[0]
        self._products = [  # the products of each layer: result, gradient of the weight, gradient of the data
            (
                fastest_kernel(rows, layer.units, layer.features),
                choose_product(layer.units, layer.features, rows, turned=True),
                choose_product(rows, layer.features, layer.units),
            )
            for layer in self._layers
        ]

    def __call__(self, values: Sequence[torch.Tensor], env: Env, shaped: Sequence[Env]) -> tuple[Any, ...]:
        """Run forward; return a `ChainRoot` as the root of backward."""
        data = values[self._data]
        if not torch.is_grad_enabled() or type(data) is not torch.Tensor:
            return self._program.forward(values, env, shaped)
        torch_private.set_grad_enabled(False)  # the executor restores it
        outputs, node = [data if data.dim() == 2 else flat_from(data, 1)], -1
        try:
            for layer, (product, _, _) in zip(self._layers, self._products):
                node = layer.node
                out = product(outputs[-1], *map(values.__getitem__, layer.slots))
                outputs.append(out if layer.act is None else _IN_PLACE[layer.act](out))
            loss, root = self._loss, ChainRoot(self, values, outputs)
            if loss is None:
                return (outputs[-1],), (root,), (), ()
            node = loss.node
            rest = list(map(values.__getitem__, loss.inputs[1:]))
            result = loss.function(loss.fixed, env, outputs[-1], *rest)
        except Exception as error:
            raise StepFailed(node) from error
        return (result,), (root,), ((None,) * len(rest),), ()

    def gradients(
        self, grad: torch.Tensor, values: Sequence[torch.Tensor], made: list[torch.Tensor], wanted: set[int]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield variables and their gradients, from the loss on.

        Args:
            made: the first layer's input, then each layer's output; the list is consumed.
        """
        for layer, (_, for_weight, for_data) in zip(reversed(self._layers), reversed(self._products)):
            out, source = made.pop(), made[-1]
            weight, *bias = map(values.__getitem__, layer.slots)
            if layer.act is not None:
                grad = _GRADIENTS[layer.act](grad, out)
            if bias and id(bias[0]) in wanted:
                yield bias[0], grad.sum(0)
            if id(weight) in wanted:
                yield weight, for_weight(grad.t(), source)
            if len(made) > 1:
                grad = for_data(grad, weight)
        data = values[self._data]
        if id(data) in wanted:
            yield data, for_data(grad, weight).reshape(data.shape)


class ChainRoot:
    """Root of backward, in place of the tensor that a recorded forward would return.

    Args:
        made: the first layer's input, then each layer's output.
    """

    __slots__ = ("_chain", "_made", "_tensor", "_values", "dtype", "shape")

    requires_grad = True

    def __init__(self, chain: _DenseChain, values: Sequence[torch.Tensor], made: list[torch.Tensor]) -> None:
        self._chain, self._values, self._made = chain, values, made
        self._tensor = made[-1]
        self.dtype, self.shape = self._tensor.dtype, self._tensor.shape

    def detach(self) -> torch.Tensor:
        """Return the tensor.

        Shape:
            returns: (N, M), M features of the last layer.
        """
        return self._tensor

    def gradients(
        self, seed: torch.Tensor, leaves: Sequence[torch.Tensor], callback: GradientCallback | None = None
    ) -> list[torch.Tensor | None]:
        """Return the gradients of some variables; None if the tensor does not depend on one. Call it once.

        Shape:
            seed: as the tensor.
            returns: each as its leaf.

        Args:
            callback: called with a leaf and its gradient as soon as it is computed.
        """
        positions = {id(leaf): i for i, leaf in enumerate(leaves)}
        grads: list[torch.Tensor | None] = [None] * len(leaves)
        for leaf, grad in self._chain.gradients(seed, self._values, self._made, set(positions)):
            grads[positions[id(leaf)]] = grad
            if callback is not None:
                callback(leaf, grad)
        return grads


def run_backward(
    roots: Sequence[Any],
    seeds: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    callback: GradientCallback | None = None,
    short: ShortBackward | None = None,
) -> Sequence[torch.Tensor | None]:
    """Return the gradients of some variables, from autograd if it recorded the run.

    Shape:
        seeds: each as its root.
        returns: each as its leaf; None if no root depends on it.

    Args:
        callback: called with each gradient of a `ChainRoot` as soon as it is computed; autograd calls its own hooks.
        short: tried before the engine, if a few operators ran, uncompiled, and no tensor has hooks.
    """
    if isinstance(roots[0], ChainRoot):
        return roots[0].gradients(seeds[0], leaves, callback)
    if short is not None and len(roots) == 1:
        grads = short.gradients(roots[0], seeds[0], leaves)
        if grads is not None:
            return grads
    return torch_private.run_backward(roots, seeds, inputs=tuple(leaves))


class DenseChainMode(ExecutionMode):
    """Runs generated functions, and the training of multilayer perceptrons by `_DenseChain`."""

    def __init__(self, arrays: BoundArrays) -> None:
        self._arrays = arrays

    def forward(self, program: Program) -> Forward:
        arrays, low = self._arrays, program.low
        layers = _layers(low, arrays) if _may_be_chain(low, arrays) else []
        if not layers:
            return program.forward
        return _DenseChain(program, layers, arrays.variables[low.steps[0].inputs[0]].shape[0])


def _may_be_chain(low: Lowered, arrays: BoundArrays) -> bool:
    """Return True if a program's only head is its last step, and nothing is sparse or on another device."""
    head = low.steps[-1] if low.steps else None
    return (
        head is not None
        and low.heads == head.outputs
        and low.recorded
        and (not low.losses or head.detach_first and head.takes_env)
        and not (head.own_env or head.needs_shapes or low.mutated or low.mirrored or low.is_subgraph)
        and arrays.storage is None
        and not arrays.placement
        and arrays.context.torch_device.type == "cpu"
        and not any(is_sparse(grad) for grad in arrays.grads.values() if grad is not None)
    )


def _layers(low: Lowered, arrays: BoundArrays) -> list[_DenseLayer]:
    """Return the layers of a program that consists of them, or of them and a loss; empty for any other program."""
    layers: list[_DenseLayer] = []
    value = next(iter(low.steps[0].inputs), -1)
    read = [value]
    head = low.steps[-1] if low.losses else None
    for step in low.steps if head is None else low.steps[:-1]:
        op, a = low.operator(step)
        if op is None or step.takes_env or step.covers or step.inputs[0] != value:
            return []
        act: Any = a.act_type if op.name == "Activation" else op.name  # the operator relu passes NaN back
        if op.name == "FullyConnected":
            slots = step.inputs[1:]
            read += slots
            if not all(slot < low.num_variables for slot in slots):
                return []
            if not a.flatten and not layers and len(arrays.variables[value].shape) != 2:
                return []
            units, features = arrays.variables[slots[0]].shape
            layers.append(_DenseLayer(step.node, slots, None, units, features))
        elif (
            op.name in ("Activation", "sigmoid", "tanh")
            and act in _IN_PLACE
            and layers
            and layers[-1].act is None
        ):
            layers[-1] = replace(layers[-1], act=act)
        else:
            return []
        value = step.outputs[0]
    given = all(slot < low.num_variables for slot in (read[0], *(head.inputs[1:] if head else ())))
    is_whole = bool(layers) and given and (head is None or head.inputs[0] == value)
    return layers if is_whole and _are_plain(layers, read, arrays) else []


def _are_plain(layers: Sequence[_DenseLayer], read: Sequence[int], arrays: BoundArrays) -> bool:
    """Return True if the variables are distinct, float32, and of the usual ranks."""
    tensors = [arrays.variables[slot].raw for slot in read]
    biases = [arrays.variables[slot].shape for layer in layers for slot in layer.slots[1:]]
    return (
        len(set(read)) == len(read)
        and all(tensor.dtype is torch.float32 for tensor in tensors)
        and all(len(shape) == 1 for shape in biases)
        and tensors[0].numel() == tensors[0].shape[0] * layers[0].features
    )
