"""Run dense layers in a row, with the activations after them, as one call on packed weights.

For prediction only. torch packs the weight in every call, and the overhead of its calls dominates small layers. The
kernel is the native extension's, or for large layers oneDNN's or MKL's. Up to four rows need no packed weights. Results
differ by rounding.

Memory: a copy of the weights of every layer that predicts more than four rows twice or more (with MKL once), until
they change.

Needs:
    storage: dense
    rank: data not empty; bias (units,)
    type: float32 on the CPU for all operands; others run one by one
    layout: any; weights of up to four rows are contiguous
    gradients: none recorded; else operators run one by one
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ...ops import write_tracking
from ...ops.nn.activation import activation_name
from ...ops.nn.linear import (
    ACTIVATIONS,
    FEW_ROWS,
    dense,
    is_float32_cpu,
    linear,
    numbers_of,
    pack,
    packed_kernel,
    run_dense,
)
from ...ops.shapes import prod
from ..lowering import Lowered, Step
from ..packed_weights import TensorVersions, packed
from . import has_convolutions

Tensor = torch.Tensor
Tensors = Sequence[Tensor]
_Plan = tuple[int, tuple[str, ...], "tuple[int, ...] | None"]
"""Rows, the kernel of each layer or nothing, and the shape of a result that is not a matrix."""

_Detail = tuple["str | int", ...]
"""Kernels of a plan, and the rows if packs depend on them."""

_gelu: Any = F.gelu
_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda x: x,
    "relu": torch.relu_,
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "gelu": lambda x: _gelu(x, out=x),
}
_MAX_LAYERS = 16
_MAX_KNOWN = 8
_MAX_PLANS = 64
_MIN_WORK = 2**14
"""Multiplications from which packing pays for a single layer."""


class KeptWeights(list["Tensor | None"]):
    """Packed weights, with weak references."""


class _Known(NamedTuple):
    """Checked weights and biases. Memory that users have may get another type or shape at any time.

    Attributes:
        sizes: numbers of output and input features of each layer; empty if the kernels do not support the tensors.
        numbers: the layers with their weights as they are, for `run_dense`.
        packed: packs while they are kept, and the layers with them for `run_dense`, by the kernels.
    """

    versions: TensorVersions
    sizes: list[tuple[int, int]]
    plans: dict[tuple[int, ...], _Plan]
    numbers: list[int]
    packed: dict[_Detail, tuple[weakref.ref[KeptWeights], list[int]]]


class DenseLayers:
    """Dense layers in a row, each with an optional activation. Called with data, weights and biases.

    Args:
        first: function of the first layer.
        flattens: True if all axes of the data but the first are features, else only the last.
    """

    def __init__(self, first: Callable[..., Tensor], parameters: int, flattens: bool) -> None:
        self._functions, self.activations = [first], [""]
        self._places = [slice(0, parameters)]
        self.flattens = flattens
        self._known: dict[int, _Known] = {}

    def __len__(self) -> int:
        return len(self.activations)

    def split(self, parameters: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the parameters of each layer."""
        return [parameters[place] for place in self._places]

    def add(self, function: Callable[..., Tensor], parameters: int) -> None:
        """Append a layer."""
        self._functions.append(function)
        self.activations.append("")
        self._places.append(slice(self._places[-1].stop, self._places[-1].stop + parameters))

    def add_activation(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        """Append an activation to the last layer."""
        layer = self._functions[-1]
        self._functions[-1], self.activations[-1] = lambda *given: function(layer(*given)), name

    def __call__(self, data: Tensor, *parameters: Tensor) -> Tensor:
        """Run the layers."""
        known = self._known.get(id(parameters[0]))
        if known is None or not known.versions.match(parameters):
            known = self._look_at(parameters)
        rows, kernels, shape = known.plans.get(data.shape) or self._plan(known, data.shape)
        if (
            not kernels
            or not is_float32_cpu(data)
            or torch.is_grad_enabled()
            or torch_private.is_transformed(data)
        ):
            for function, place in zip(self._functions, self._places):
                data = function(data, *parameters[place])
            return data
        if shape is not None or not data.is_contiguous():
            data = data.reshape(rows, known.sizes[0][1]).contiguous()
        detail: _Detail = (
            kernels if "mkl" not in kernels else (rows, *kernels)
        )  # MKL packs for a number of rows
        if rows <= FEW_ROWS and "native" in kernels:
            data = run_dense(data, known.numbers)
        else:
            kept = known.packed.get(detail)
            packs = kept[0]() if kept is not None else None
            if kept is None or packs is None:
                data = self._pack_and_run(known, kernels, detail, data, parameters)
            elif kept[1]:  # the packs stay alive during the call
                data = run_dense(data, kept[1])
            else:
                data = _run_each(kernels, data, packs, *self._layers(parameters), self.activations)
        return data if shape is None else data.view(shape)

    def _look_at(self, parameters: Tensors) -> _Known:
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        versions, sizes = TensorVersions(parameters), self._sizes(parameters)
        numbers = numbers_of(zip(sizes, *self._layers(parameters), self.activations))
        known = self._known[id(parameters[0])] = _Known(versions, sizes, {}, numbers, {})
        return known

    def _pack_and_run(
        self, known: _Known, kernels: tuple[str, ...], detail: _Detail, data: Tensor, parameters: Tensors
    ) -> Tensor:
        weights, biases = self._layers(parameters)

        def make(is_kept: bool = True) -> KeptWeights:
            rows = len(data) if is_kept else 0
            return KeptWeights(_pack(kernel, weight, rows) for kernel, weight in zip(kernels, weights))

        found: KeptWeights | None = packed("dense", weights, make, detail)
        if found is None and "mkl" in kernels:  # the first call gets the bits of the next ones
            found = packed("dense", weights, make, detail)
        packs = make(is_kept=False) if found is None else found
        is_native = kernels.count("native") == len(kernels)
        known_packs = [pack for pack in packs if pack is not None]
        numbers = numbers_of(zip(known.sizes, known_packs, biases, self.activations)) if is_native else []
        if found is not None:
            if len(known.packed) >= _MAX_PLANS:
                known.packed.clear()
            known.packed[detail] = weakref.ref(found), numbers
        return (
            run_dense(data, numbers)
            if is_native
            else _run_each(kernels, data, packs, weights, biases, self.activations)
        )

    def _layers(self, parameters: Tensors) -> tuple[Tensors, list[Tensor | None]]:
        """Return the weights, and the biases or None."""
        ends = [(place.start, place.stop - 1) for place in self._places]
        return [parameters[i] for i, _ in ends], [parameters[k] if k > i else None for i, k in ends]

    def _sizes(self, parameters: Tensors) -> list[tuple[int, int]]:
        sizes: list[tuple[int, int]] = []
        for each in parameters:
            if not (
                is_float32_cpu(each) and each.is_contiguous() and write_tracking.writes_are_counted(each)
            ):
                return []
        for weight, *bias in (parameters[place] for place in self._places):
            if weight.dim() != 2 or not weight.numel() or any(b.shape != weight.shape[:1] for b in bias):
                return []
            sizes.append((weight.shape[0], weight.shape[1]))
        fit = all(before[0] == size[1] for before, size in itertools.pairwise(sizes))
        return sizes if fit and not torch_private.is_transformed(*parameters) else []

    def _plan(self, known: _Known, shape: tuple[int, ...]) -> _Plan:
        plan: _Plan = 0, (), None
        sizes, count = known.sizes, prod(shape)
        if sizes and count and (count // shape[0] if self.flattens else shape[-1]) == sizes[0][1]:
            rows = count // sizes[0][1]
            kernels = tuple(packed_kernel(rows, *size, len(sizes) > 1) for size in sizes)
            if any(kernels) and (self.activations != [""] or rows * prod(sizes[0]) >= _MIN_WORK):
                lead = shape[:1] if self.flattens else shape[:-1]
                plan = rows, kernels, None if len(shape) == 2 else (*lead, sizes[-1][0])
        if len(known.plans) >= _MAX_PLANS:
            known.plans.clear()
        return known.plans.setdefault(shape, plan)


def _run_each(
    kernels: tuple[str, ...],
    data: Tensor,
    packs: KeptWeights,
    weights: Tensors,
    biases: Sequence[Tensor | None],
    activations: list[str],
) -> Tensor:
    """Run layers one by one."""
    for kernel, own, weight, bias, activation in zip(kernels, packs, weights, biases, activations):
        if kernel == "native" and own is not None:
            size = weight.shape[0], weight.shape[1]
            data = dense(data, [(size, own, bias, activation)])
            continue
        if kernel == "onednn":
            data = torch_private.onednn_linear(data, own, bias, "none", [], "")
        elif kernel == "mkl" and own is not None:
            data = torch_private.mkl_linear(data, own, weight, bias, data.shape[0])
        else:
            data = linear(data, weight, bias)
        data = _IN_PLACE[activation](data)
    return data


def _pack(kernel: str, weight: Tensor, rows: int) -> Tensor | None:
    if kernel == "native":
        return pack(weight)
    if kernel == "mkl":  # packs in every call itself
        return torch_private.mkl_packed_linear(weight, rows) if rows else None
    return torch_private.onednn_packed_linear(weight) if kernel == "onednn" else None


def _activation(low: Lowered, step: Step) -> str:
    """Return the name of an activation that the kernel applies; "" for other steps."""
    op, a = low.operator(step)
    if op is None or step.takes_env:
        return ""
    name = activation_name(op.name, a)
    return name if name in ACTIVATIONS else ""


def dense_layers(low: Lowered) -> int:
    """Replace dense layers, together with activations and dense layers that are the only readers of their results.

    Returns:
        Number of replaced layers.
    """
    kept, held = low.kept(), low.held_by_operators()
    readers = Counter(value for step in low.steps for value in step.inputs)
    # runs of convolutions include single layers
    most = 1 if has_convolutions(low.graph) else _MAX_LAYERS
    made: dict[int, tuple[Step, DenseLayers]] = {}
    steps: list[Step] = []
    count = 0
    for step in low.steps:
        op, a = low.operator(step)
        steps.append(step)
        value = step.inputs[0] if step.inputs else -1
        before = made.get(value) if readers[value] == 1 and value not in kept else None
        if (
            op is not None
            and op.name == "FullyConnected"
            and not step.takes_env
            and all(slot < low.num_variables for slot in step.inputs[1:])
            and held.isdisjoint(step.inputs)
        ):
            count += 1
            parameters = len(step.inputs) - 1
            ends = before is None or before[1].flattens != a.flatten or len(before[1]) == most
            if before is None or ends:
                step.function = DenseLayers(step.function, parameters, a.flatten)
                made[step.outputs[0]] = step, step.function
                continue
            before[1].add(step.function, parameters)
            before[0].inputs = [*before[0].inputs, *step.inputs[1:]]
        else:
            name = "" if before is None or before[1].activations[-1] else _activation(low, step)
            if before is None or not name:
                continue
            before[1].add_activation(name, step.function)
        steps.pop()
        made[step.outputs[0]] = before
        before[0].outputs, before[0].covers = step.outputs, (*before[0].covers, step.node)
        before[0].name = "dense_layers"
    low.steps = steps
    return count
