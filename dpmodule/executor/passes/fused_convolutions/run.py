"""Consecutive convolutions in one call of the extension's kernel, without torch's overhead for each."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch

from ...._core import torch_private
from ....ops.nn.linear import kernels
from ....ops.spec import Env
from ...lowering import Step
from ...packed_weights import TensorVersions
from .call import FusedConvolution, is_plain

Tensor = torch.Tensor
Tensors = Sequence[Tensor]
Shape = tuple[int, ...]

_MAX_PLANS = 64


class _FusedLayer(NamedTuple):
    """A convolution of a run.

    Attributes:
        data, sources, other, result: numbers of these values in the program; `other` is None without a sum.
        gamma: number of the value that the normalisation writes to its gamma; None if it does not write it.
    """

    call: FusedConvolution
    data: int
    sources: list[int]
    other: int | None
    result: int
    gamma: int | None


class _Plan(NamedTuple):
    """Buffers of a run's results, for given image sizes."""

    shapes: list[Shape]
    rows: bytes
    channels: list[int]
    buffers: dict[int, int]


class _Packs(NamedTuple):
    """Weak references to the packed weights and biases of all convolutions."""

    sources: TensorVersions
    channels: list[int]
    tensors: list[weakref.ref[Tensor]]
    addresses: list[int]

    def alive(self) -> list[Tensor] | None:
        """Return the tensors; None if one was freed."""
        tensors = [tensor for ref in self.tensors if (tensor := ref()) is not None]
        return tensors if len(tensors) == len(self.tensors) else None


def _layer(step: Step) -> _FusedLayer:
    call: Any = step.function
    sources, rest = step.inputs[1:], None
    if call.sums:
        *sources, rest = sources
    gamma = step.outputs[1] if call.writes_gamma else None
    return _FusedLayer(call, step.inputs[0], sources, rest, step.outputs[0], gamma)


def _read(layer: _FusedLayer) -> list[int]:
    return [layer.data] if layer.other is None else [layer.data, layer.other]


class ConvolutionRun:
    """Some consecutive fused convolutions.

    The operands of all of them are checked before the first one runs, and values that only they read share buffers. If
    an operand is not supported, they run one by one. They also do until all of their weights are packed.

    Attributes:
        inputs: numbers of the values that they read and do not compute.
    """

    def __init__(self, steps: Sequence[Step], outputs: list[int]) -> None:
        self.outputs = outputs
        self._layers = list(map(_layer, steps))
        made = {layer.result for layer in self._layers}
        read = [n for layer in self._layers for n in _read(layer)]
        self._last = {n: at for at, layer in enumerate(self._layers) for n in _read(layer)}
        self._images = [n for n in dict.fromkeys(read) if n not in made]
        sources = [n for layer in self._layers for n in layer.sources]
        self.inputs = list(dict.fromkeys([*self._images, *sources]))
        read = [n for layer in self._layers for n in layer.call.read(layer.sources)]
        self._positions = {n: at for at, n in enumerate(self.inputs)}
        self._read = [self._positions[n] for n in dict.fromkeys(read)]
        self._gammas = {layer.gamma: layer for layer in self._layers if layer.gamma is not None}
        self._plans: dict[tuple[Shape, ...], _Plan | None] = {}
        self._packs: _Packs | None = None

    def __call__(self, env: Env, *inputs: Tensor) -> list[Tensor | None] | None:
        """Return the outputs; None if the convolutions must run one by one."""
        images = inputs[: len(self._images)]
        if torch.is_grad_enabled():
            return None
        if env.is_train and any(layer.call.trains(env) for layer in self._layers):
            return None
        if not all(map(is_plain, images)) or any(map(torch_private.is_batched, images)):
            return None
        plan = self._plan(tuple([image.shape for image in images]))
        if plan is None:
            return None
        weights = self._weights(inputs, plan.channels)
        if weights is None:
            return None
        parameters, addresses = weights
        innermost = torch.channels_last
        tensors = [image.contiguous(memory_format=innermost) for image in images]
        tensors += [torch.empty(s, dtype=torch.float32, memory_format=innermost) for s in plan.shapes]
        buffer_addresses = [tensor.data_ptr() for tensor in tensors]
        kernels().convolve(plan.rows, torch.get_num_threads(), 0, *addresses, *buffer_addresses)
        del parameters  # kept alive during the call
        return [self._output(n, plan, tensors, inputs) for n in self.outputs]

    def _output(self, n: int, plan: _Plan, tensors: Sequence[Tensor], inputs: Tensors) -> Tensor | None:
        """Return an output; None for a state that is not written."""
        if n in plan.buffers:
            return tensors[plan.buffers[n]]
        layer = self._gammas.get(n)
        return None if layer is None else layer.call.gamma(self._sources(layer, inputs))

    def _sources(self, layer: _FusedLayer, inputs: Tensors) -> list[Tensor]:
        return [inputs[self._positions[n]] for n in layer.sources]

    def _weights(self, inputs: Tensors, channels: list[int]) -> tuple[list[Tensor], list[int]] | None:
        """Return the packed weight and bias of each convolution, and their addresses; None if some are not cached."""
        read, packs = [inputs[at] for at in self._read], self._packs
        if packs is not None and packs.channels == channels and packs.sources.match(read):
            alive = packs.alive()
            if alive is not None:
                return alive, packs.addresses
        sources = TensorVersions(read)
        tensors: list[Tensor] = []
        for layer, count in zip(self._layers, channels):
            kept = layer.call.kept(self._sources(layer, inputs), count)
            if kept is None:
                return None
            tensors += kept
        addresses = [tensor.data_ptr() for tensor in tensors]
        self._packs = _Packs(sources, channels, list(map(weakref.ref, tensors)), addresses)
        return tensors, addresses

    def _plan(self, shapes: tuple[Shape, ...]) -> _Plan | None:
        try:
            return self._plans[shapes]
        except KeyError:
            if len(self._plans) >= _MAX_PLANS:  # bounds the memory when every batch has a new size
                self._plans.clear()
            return self._plans.setdefault(shapes, self._planned(dict(zip(self._images, shapes))))

    def _planned(self, shapes: dict[int, Shape]) -> _Plan | None:
        """Return the plan for image shapes; None if the kernel is not faster for all convolutions."""
        plan = _Plan([], b"", [], {n: at for at, n in enumerate(self._images)})
        rows: list[bytes] = []
        free: dict[Shape, list[int]] = {}
        first = 1 + 2 * len(self._layers)  # index of the first image's address
        for at, layer in enumerate(self._layers):
            sizes = layer.call.sizes(shapes[layer.data], None if layer.other is None else shapes[layer.other])
            if sizes is None or not layer.call.tiled.is_faster(sizes):
                return None
            shapes[layer.result] = sizes.result
            other = None if layer.other is None else plan.buffers[layer.other]
            if layer.call.overwrites and other is not None:
                result = other
            else:
                result = self._buffer(plan, free.get(sizes.result, []), sizes.result)
            summand = 0 if other is None else first + other
            indices = first + plan.buffers[layer.data], 1 + 2 * at, 2 + 2 * at, summand, first + result
            plan.channels.append(sizes.data[1])
            rows.append(layer.call.tiled.row(sizes, indices))
            plan.buffers[layer.result] = result
            for number in set(_read(layer)):
                stays = self._last[number] > at or number in self._images or number in self.outputs
                if not stays and plan.buffers[number] != result:
                    free.setdefault(shapes[number], []).append(plan.buffers[number])
        return plan._replace(rows=b"".join(rows))

    def _buffer(self, plan: _Plan, free: list[int], shape: Shape) -> int:
        """Return the index of a buffer of a shape: a free or a new one."""
        if free:
            return free.pop()
        plan.shapes.append(shape)
        return len(self._images) + len(plan.shapes) - 1


def runs(
    steps: Sequence[Step], variables: int, kept: set[int]
) -> Iterator[tuple[list[Step], ConvolutionRun | None]]:
    """Yield the steps in lists, in order: runs of convolutions, and the steps between them.

    A convolution that reads a variable as data is not part of a run: input data has few channels, for which the kernel
    is not always faster. Neither is a convolution with a computed parameter.

    Args:
        kept: numbers of the values that are read outside the steps.
    """

    def joins(step: Step) -> bool:
        call = step.function
        if not isinstance(call, FusedConvolution) or not call.tiles:
            return False
        return step.inputs[0] >= variables and max(_layer(step).sources) < variables

    last = {number: at for at, step in enumerate(steps) for number in step.inputs}
    end = 0
    for joined, group in groupby(steps, joins):
        members = list(group)
        end += len(members)
        outputs = [n for step in members for n in step.outputs if n in kept or last.get(n, -1) >= end]
        yield members, ConvolutionRun(members, outputs) if joined and len(members) > 1 else None
