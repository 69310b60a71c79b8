"""Consecutive layers for images in one call of the extension, without torch's overhead for each."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import torch

from ...._core import torch_private
from ....ops.nn.image_layers import NO_FUNCTION, as_image, has_kernels, layer_row
from ....ops.nn.linear import FEW_ROWS, kernels
from ....ops.spec import Env
from ...lowering import Lowered, Step
from ...packed_weights import TensorVersions
from .call import FusedConvolution, WindowPart, is_plain
from .channels import ChannelShuffle, first_channel
from .layers import Layer, Shape, Shapes, channels_innermost, dense, layers_of, with_activations

Tensor = torch.Tensor

_MAX_PLANS = 64
_LINE = 16
"""Numbers in a cache line, at which memory of results begins."""
_ARENA = -1
_MAX_ARENA = 2**21
"""Numbers of intermediate results above which a batch is computed in parts: they would leave the cache, and memory of
this size comes from the operating system in every run.
"""
_LARGE_WEIGHT = 2**22
"""Size of a dense layer's weight above which few rows take less time with the weight as it is."""
_MIN_UNITS = 8
"""Units of a dense layer that leave no more than half of a vector empty."""
_SHORT = 2**20
"""Multiplications of a dense layer up to which any units are faster than torch's overhead."""
_arenas: list[Tensor] = []
"""Memory of intermediate results that no run uses now."""

_MIXING = frozenset({"part", "scale", "shuffle", "sum"})
"""Kinds of layers that may read several images for one where torch runs them."""

_Key = tuple[Hashable, ...]
"""True with several threads, then the shape and the strides of each image."""
_Layouts = Sequence[bool | None]


def _flat_shape(shape: Shape) -> Shape:
    """Return a shape with all axes but the first as one."""
    return shape[0], prod(shape[1:])


def _keeps_order(shape: Shape, result: Shape) -> bool:
    """Return True if a reshape makes rows of images, or adds or removes axes of size 1 after the channels."""
    is_same = min(len(shape), len(result)) > 1 and as_image(result) == as_image(shape)
    return is_same or result == _flat_shape(shape)


def _in_usual_layout(image: Tensor) -> bool | None:
    """Return whether the layout is the usual one without gaps; None if channels are innermost without gaps."""
    pixels = image.movedim(1, -1) if image.dim() > 2 else image
    return None if pixels.is_contiguous() else image.is_contiguous()


def _take_arena(size: int) -> Tensor:
    """Return memory for some numbers, which must be put back."""
    try:
        arena = _arenas.pop()
    except IndexError:  # other threads use all
        arena = None
    if arena is None or arena.numel() < size:
        arena = torch.empty(size, dtype=torch.float32)
    return arena


def _strides(shape: Shape) -> Shape:
    """Return the strides with channels innermost."""
    images, channels, *size = shape
    return prod(shape[1:]), 1, *(channels * prod(size[axis + 1 :]) for axis in range(len(size)))


class _Plan(NamedTuple):
    """The calls for given shapes.

    Attributes:
        parts: arguments of the layers that run in one call, or one layer that torch runs.
        slots: memory of the extension's operands: a value with a tensor of its own or `_ARENA`, and the first byte.
        packs: layers with parameters that the extension runs, and the shape of their data.
        own: shapes and strides of the extension's results that have a tensor of their own.
        arena: numbers in the memory of all its other results.
        converted: images that are copied to channels_last before the first layer.
        calls: parts of a batch, which run one after the other.
    """

    parts: list[bytes | Layer]
    slots: list[tuple[int, int]]
    packs: list[tuple[Layer, Shape]]
    own: dict[int, tuple[Shape, Shape]]
    arena: int
    converted: list[int]
    calls: int = 1


class _Packs(NamedTuple):
    """Weak references to the packed weights and biases of a plan."""

    plan: _Plan
    sources: TensorVersions
    tensors: list[weakref.ref[Tensor]]
    addresses: list[int]

    def alive(self) -> list[Tensor] | None:
        """Return the tensors; None if one was freed."""
        tensors = [tensor for ref in self.tensors if (tensor := ref()) is not None]
        return tensors if len(tensors) == len(self.tensors) else None


class _Planner:
    """Makes the plan of a run for given shapes.

    Results that only the extension reads and writes share an arena. Parts of an image's channels are read where they
    are, and the operands of a concatenation are computed in its memory.

    Args:
        layouts: what `_in_usual_layout` returns for each image.
    """

    def __init__(
        self, layers: list[Layer], images: list[int], outputs: list[int], shapes: Shapes, layouts: _Layouts
    ) -> None:
        self._layers, self._shapes = layers, shapes
        self._flat = {
            layer.result: layer.images[0]
            for layer in layers
            if layer.kind == "flat" and _keeps_order(shapes[layer.images[0]], shapes[layer.result])
        }
        self._in_rows = {layer.images[0] for layer in layers if layer.kind == "rows"}
        self._native = [self._is_native(layer, outputs) for layer in layers]
        by_torch = [layer for layer, native in zip(layers, self._native) if not native]
        torch_has = {n for layer in by_torch for n in (*layer.images, layer.result)}
        self._by_kernel = [layer for layer, native in zip(layers, self._native) if native]
        read = {n for layer in self._by_kernel for n in (self._source(layer), *layer.images)}
        unsuitable = {n: usual for n, usual in zip(images, layouts) if usual is not None and n in read}
        self._usual = {n for n, usual in unsuitable.items() if usual} - torch_has
        self._own = {*images, *outputs, *torch_has} - self._usual
        self._converted = [n for n in unsuitable if n not in self._usual]
        self._places = self._parts()
        self._concatenate()
        self._offsets: dict[int, int] = {}
        self._slots: dict[tuple[int, int], int] = {}
        self._packs: list[tuple[Layer, Shape]] = []
        self._packed = 1  # index of the next packed weight among the addresses
        self._first_slot = 1 + 2 * sum(
            len(self._parts_of(layer)) for layer in self._by_kernel if layer.sources
        )

    def plan(self) -> _Plan:
        """Return the plan."""
        size = self._place_in_arena()
        parts: list[bytes | Layer] = []
        own: dict[int, tuple[Shape, Shape]] = {}
        usual = set(self._usual)
        for layer, native in zip(self._layers, self._native):
            if not native:
                parts.append(layer)
                continue
            if layer.result in self._own:
                shape = self._shapes[layer.result]
                own[layer.result] = shape, _strides(shape)
            first_read = usual.intersection(self._place(n)[0] for n in layer.images)
            usual -= first_read
            row = b"".join([*map(self._relayout_row, first_read), *self._rows(layer)])
            if parts and isinstance(parts[-1], bytes):
                parts[-1] += row
            else:
                parts.append(row)
        return _Plan(parts, list(self._slots), self._packs, own, size, self._converted)

    def _is_native(self, layer: Layer, outputs: list[int]) -> bool:
        shapes = self._shapes
        data = shapes[layer.images[0]]
        if layer.kind == "dense":
            units = layer.a.num_hidden
            reads_most = data[0] <= FEW_ROWS and units * prod(data[1:]) > _LARGE_WEIGHT
            is_small = units * prod(data) <= _SHORT
            return not reads_most and (units >= _MIN_UNITS or is_small)
        if layer.kind == "flat":
            if layer.result not in self._flat or not 2 <= len(data) <= 4:
                return False
            readers = [each for each in self._layers if layer.result in each.images]
            return prod(data[2:]) == 1 or (
                layer.result not in outputs
                and all(each.kind == "dense" and self._is_native(each, outputs) for each in readers)
            )
        if layer.kind == "concat":
            return len(data) in (2, 3, 4)
        return len(data) in (2, 3, 4) and layer.is_native(shapes, len(self._layers) > 1)

    def _source(self, layer: Layer) -> int:
        """Return the value that a layer reads, before it was flattened."""
        value = layer.images[0]
        return self._flat.get(value, value) if layer.kind == "dense" else value

    def _window(self, layer: Layer) -> tuple[int, int]:
        _, _, height, width = as_image(self._shapes[self._source(layer)])
        return height, width

    def _dense_sizes(self, layer: Layer) -> Any:
        return dense(layer.a.num_hidden, self._window(layer)).sizes(
            as_image(self._shapes[self._source(layer)])
        )

    def _parts(self) -> dict[int, tuple[int, int]]:
        """Return the image, and the first channel in it, of each value that is a part of its channels."""
        places: dict[int, tuple[int, int]] = {}
        for layer in self._by_kernel:
            if layer.kind == "part" and layer.result not in self._own | self._in_rows:
                places[layer.result] = layer.images[0], self._first_channel(layer)
        return places

    def _first_channel(self, layer: Layer) -> int:
        """Return the first channel of the data that a layer reads."""
        return (layer.kind == "part" and first_channel(layer.move, self._shapes[layer.images[0]])) or 0

    def _concatenate(self) -> None:
        """Add the concatenation, and the first channel in it, of each value that is computed in its memory."""
        places = self._places
        made = {
            layer.result
            for layer in self._by_kernel
            if not (layer.sources and any(part.together > 1 for part in self._parts_of(layer)))
        }
        for layer in self._by_kernel:
            if layer.kind == "concat":
                first = 0
                for n in layer.images:
                    if n in made and n not in self._own and n not in places and n not in self._in_rows:
                        places[n] = layer.result, first
                    first += self._shapes[n][1]

    def _place(self, value: int) -> tuple[int, int]:
        """Return the value that owns a value's memory, and the first channel in it."""
        first = 0
        while value in self._places:
            value, more = self._places[value]
            first += more
        return value, first

    def _place_in_arena(self) -> int:
        """Find the first number of each result in the arena; return the arena's size."""
        spans: dict[int, list[int]] = {}
        for at, layer in enumerate(self._layers):
            for n in (layer.result, *layer.images, self._source(layer)):
                owner = self._place(n)[0]
                if owner not in self._own:
                    spans.setdefault(owner, [at, at])[1] = at
        size = 0
        taken: list[tuple[int, int, int]] = []  # last layer, begin, end
        for n, (first, last) in sorted(spans.items(), key=lambda item: item[1][0]):
            taken = [each for each in taken if each[0] >= first]
            length = -(-prod(self._shapes[n]) // _LINE) * _LINE
            begin = 0
            for _, low, high in sorted(taken, key=lambda each: each[1]):
                if begin + length <= low:
                    break
                begin = max(begin, high)
            self._offsets[n] = begin
            taken.append((last, begin, begin + length))
            size = max(size, begin + length)
        return size

    def _slot(self, value: int, channel: int = 0) -> tuple[int, int]:
        """Return the index of the address of a value's channel, and the value's numbers per pixel."""
        owner, first = self._place(value)
        channel += first
        at = (owner, channel) if owner in self._own else (_ARENA, self._offsets[owner] + channel)
        return self._address(*at), as_image(self._shapes[owner])[1]

    def _address(self, memory: int, number: int) -> int:
        """Return the index of the address of a number in a tensor or in the arena."""
        return self._first_slot + self._slots.setdefault((memory, 4 * number), len(self._slots))

    def _rows(self, layer: Layer) -> Iterator[bytes]:
        """Yield the arguments of a layer."""
        kind, images, shapes = layer.kind, layer.images, self._shapes
        if kind == "concat":
            channel = 0
            for n in images:
                if self._places.get(n) != (layer.result, channel):
                    yield self._row(layer, "copy", [n], channel)
                channel += shapes[n][1]
        elif kind == "part":
            if layer.result not in self._places:
                yield self._row(layer, "copy", images)
        elif kind in ("flat", "rows"):
            if kind == "rows" or prod(shapes[images[0]][2:]) == 1:
                yield self._flat_row(images[0], layer.result)
        elif kind == "scale" and prod(shapes[images[0]][2:]) == 1:
            yield self._row(layer, kind, images[::-1])
        elif layer.sources:
            yield from self._part_rows(layer)
        else:
            yield self._row(layer, kind, images)

    def _relayout_row(self, image: int) -> bytes:
        """Return the arguments of a copy of an image in the usual layout to the arena."""
        images, channels, *size = as_image(self._shapes[image])
        axes = [(side, side, 1, 1, 1, 0) for side in size]
        to, pixel = self._slot(image)
        counts, addresses = (images, channels, channels, 1), (self._address(image, 0), 0, 0, 0, to)
        return layer_row("relayout", counts, axes, 0, NO_FUNCTION, (0, 0, pixel), addresses)

    def _flat_row(self, image: int, result: int) -> bytes:
        """Return the arguments of a copy of the pixels of each image to a row."""
        images, size = _flat_shape(self._shapes[image])
        (at, gap), (to, row) = self._slot(image), self._slot(result)
        # an image of several pixels is not part of another one: its pixels follow each other
        gaps = gap * prod(self._shapes[image][2:]), 0, row
        counts, axes = (images, size, size, 1), [(1, 1, 1, 1, 1, 0)] * 2
        return layer_row("copy", counts, axes, 0, NO_FUNCTION, gaps, (at, 0, 0, 0, to))

    def _part_rows(self, layer: Layer) -> Iterator[bytes]:
        images = [self._source(layer), *layer.images[1:]]
        self._packs.append((layer, as_image(self._shapes[images[0]])))
        for part in self._parts_of(layer):
            if part.axes[0][1] > 0 < part.axes[1][1]:  # a small result lacks some rows or columns
                yield self._row(layer, part.kind, images, part=part)
            self._packed += 2

    def _parts_of(self, layer: Layer) -> list[WindowPart]:
        """Return the layers that compute a layer with parameters."""
        data = as_image(self._shapes[self._source(layer)])
        if layer.fused is not None:
            return layer.fused.parts(data)
        if layer.kind == "dense":
            return [WindowPart("convolution", self._dense_sizes(layer).axes)]
        return [WindowPart(layer.kind, layer.windows(data, as_image(self._shapes[layer.result])))]

    def _row(
        self, layer: Layer, kind: str, images: list[int], channel: int = 0, part: WindowPart | None = None
    ) -> bytes:
        data, result = (as_image(self._shapes[n]) for n in (images[0], layer.result))
        axes = layer.windows(data, result) if part is None else part.axes
        channels, groups, block = result[1] if layer.kind == "part" else data[1], 1, 0
        if kind == "pooling":
            kind, block = layer.pooling
        elif isinstance(layer.step.function, ChannelShuffle):
            groups = layer.step.function.groups(data)
        elif layer.fused is not None:
            groups = 1 if kind == "depthwise" else layer.a.num_group
        weight = bias = other = other_gap = 0
        if part is None:
            part = WindowPart(kind, axes)
        else:
            weight, bias = self._packed, self._packed + 1
        channels //= groups
        filters = part.together * result[1] // groups if kind in ("convolution", "grouped") else channels
        if kind == "convolution":
            block = kernels().convolution_block(filters)
        at, gap = self._slot(images[0], self._first_channel(layer))
        _, pixel = self._slot(layer.result)
        (y, x), (down, right) = part.first, part.steps
        to, _ = self._slot(layer.result, channel + (y * result[3] + x) * pixel)
        if len(images) > 1:
            other, other_gap = self._slot(images[1])
        counts, gaps = (data[0], channels, filters, groups), (gap, other_gap, right * pixel)
        function, addresses = layer.function or NO_FUNCTION, (at, weight, bias, other, to)
        row_gap, image_gap = down * result[3] * pixel, prod(result[2:]) * pixel
        return layer_row(kind, counts, axes, int(block), function, gaps, addresses, row_gap, image_gap)


class ImageRun:
    """Some consecutive layers.

    The operands of all of them are checked before the first one runs. If an operand is not supported, they run one by
    one.

    Attributes:
        inputs: numbers of the values that they read and do not compute.
    """

    def __init__(self, layers: list[Layer], outputs: list[int]) -> None:
        self.outputs = outputs
        self._layers = layers
        made = {layer.result for layer in layers}
        read = [n for layer in layers for n in layer.images]
        self._images = [n for n in dict.fromkeys(read) if n not in made]
        sources = [n for layer in layers for n in layer.sources]
        self.inputs = list(dict.fromkeys([*self._images, *sources]))
        self._positions = {n: at for at, n in enumerate(self.inputs)}
        read = [n for layer in layers for n in layer.read()]
        self._read = [self._positions[n] for n in dict.fromkeys(read)]
        self._results = [(at, n) for at, n in enumerate(outputs) if n in made]
        fused = layers[0].fused
        self._single = fused if len(layers) == 1 and isinstance(fused, FusedConvolution) else None
        self._plans: dict[_Key, _Plan | None] = {}
        self._packs: _Packs | None = None

    def __call__(self, env: Env, *inputs: Tensor) -> list[Tensor | None] | None:
        """Return the outputs; None if the layers must run one by one."""
        images = inputs[: len(self._images)]
        if torch.is_grad_enabled():
            return None
        if not all(map(is_plain, images)) or torch_private.is_transformed(*images):
            return None
        key = torch.get_num_threads() > 1, *[(image.shape, image.stride()) for image in images]
        plan = self._plan(key, inputs)
        if plan is None or (env.is_train and any(layer.trains(env) for layer in self._layers)):
            return None
        weights = self._weights(inputs, plan)
        if weights is None:
            return None
        parameters, addresses = weights
        tensors = self._run(plan, env, inputs, addresses)
        del parameters  # kept alive during the run
        return self._found_outputs(tensors)

    def _run(
        self, plan: _Plan, env: Env, inputs: Sequence[Tensor], addresses: list[int]
    ) -> dict[int, Tensor]:
        """Return images and results; `addresses` are those of the parameters."""
        arena = _take_arena(plan.arena)
        tensors = dict(zip(self._images, inputs))
        for n, sizes in plan.own.items():
            tensors[n] = torch.empty_strided(*sizes, dtype=torch.float32)
        addresses = [*addresses, arena.data_ptr()]
        if plan.calls == 1:
            self._compute(plan, env, tensors, inputs, addresses)
        else:
            parts = {n: tensor.chunk(plan.calls) for n, tensor in tensors.items()}
            for call in range(plan.calls):
                part = {n: several[call] for n, several in parts.items()}
                self._compute(plan, env, part, inputs, addresses)
        if arena.numel() <= _MAX_ARENA:
            _arenas.append(arena)
        return tensors

    def _found_outputs(self, tensors: dict[int, Tensor]) -> list[Tensor | None]:
        """Return the outputs; None for states, which are not written."""
        outputs: list[Tensor | None] = [None] * len(self.outputs)
        for at, n in self._results:
            outputs[at] = tensors[n]
        return outputs

    def _compute(
        self,
        plan: _Plan,
        env: Env,
        tensors: dict[int, Tensor],
        inputs: Sequence[Tensor],
        addresses: list[int],
    ) -> None:
        """Compute results from the images, both in `tensors`; `addresses` are those of parameters and the arena."""
        for n in plan.converted:
            tensors[n] = channels_innermost(tensors[n])
        begins = {n: tensor.data_ptr() for n, tensor in tensors.items()}
        *parameters, begins[_ARENA] = addresses
        for part in plan.parts:
            if isinstance(part, bytes):
                places = [begins.get(n, 0) + byte for n, byte in plan.slots]
                kernels().run_layers(part, torch.get_num_threads(), 0, *parameters, *places)
            else:
                read = part.step.inputs
                result = part(env, [tensors[n] if n in tensors else inputs[self._positions[n]] for n in read])
                tensors[part.result], begins[part.result] = result, result.data_ptr()

    def _weights(self, inputs: Sequence[Tensor], plan: _Plan) -> tuple[list[Tensor], list[int]] | None:
        """Return the packed parameters, and their addresses; None if some are unsuitable."""
        read, packs = [inputs[at] for at in self._read], self._packs
        if packs is not None and packs.plan is plan and packs.sources.match(read):
            alive = packs.alive()
            if alive is not None:
                return alive, packs.addresses
        if self._single is not None:
            weight = inputs[self._positions[self._layers[0].sources[0]]]
            if self._single.packs_in_vain(inputs[0], weight):
                return None
        versions = TensorVersions(read)
        tensors: list[Tensor] = []
        for layer, shape in plan.packs:
            sources = [inputs[self._positions[n]] for n in layer.sources]
            pack = layer.packed(sources, shape)
            if not pack:
                return None
            tensors += pack
        addresses = [tensor.data_ptr() for tensor in tensors]
        self._packs = _Packs(plan, versions, list(map(weakref.ref, tensors)), addresses)
        return tensors, addresses

    def _plan(self, given: _Key, inputs: Sequence[Tensor]) -> _Plan | None:
        try:
            return self._plans[given]
        except KeyError:
            if len(self._plans) >= _MAX_PLANS:  # bounds the memory when every batch has a new size
                self._plans.clear()
            shapes = {n: tuple(inputs[at].shape) for n, at in self._positions.items()}
            layouts = [_in_usual_layout(image) for image in inputs[: len(self._images)]]
            is_slower = self._single is not None and self._single.keeps_layout(inputs[0])
            return self._plans.setdefault(given, None if is_slower else self._planned(shapes, layouts))

    def _planned(self, shapes: Shapes, layouts: _Layouts) -> _Plan | None:
        """Return the plan for the shapes of the inputs; None if the layers must run one by one."""
        every = dict(shapes)
        whole = self._plan_at_once(every, layouts)
        if whole is None:
            return None
        batches = {every[n][0] for n in (*self._images, *(layer.result for layer in self._layers))}
        if len(batches) > 1 or batches == {1}:
            return whole
        (images,) = batches

        def of_some(count: int) -> _Plan | None:
            return self._plan_at_once(shapes | {n: (count, *shapes[n][1:]) for n in self._images}, layouts)

        one = of_some(1)
        if one is None:
            return whole
        count = max(
            n for n in range(1, images + 1) if images % n == 0 and (n == 1 or one.arena * n <= _MAX_ARENA)
        )
        part = of_some(count)
        if part is None or not all(map(self._may_divide, part.parts)):
            return whole
        own = {n: ((images, *shape[1:]), strides) for n, (shape, strides) in part.own.items()}
        return part._replace(own=own, calls=images // count)

    def _may_divide(self, part: bytes | Layer) -> bool:
        """Return True if a part of a plan may run for some of the images."""
        return isinstance(part, bytes) or not (part.kind in _MIXING or part.result in self.outputs)

    def _plan_at_once(self, shapes: Shapes, layouts: _Layouts) -> _Plan | None:
        """Return the plan that computes all images layer by layer."""
        for layer in self._layers:
            shape = layer.shape(shapes)
            if shape is None or not prod(shape):
                return None
            shapes[layer.result] = tuple(shape)
        plan = _Planner(self._layers, self._images, self.outputs, shapes, layouts).plan()
        return plan if any(isinstance(part, bytes) for part in plan.parts) else None


def runs(low: Lowered, kept: set[int]) -> Iterator[tuple[list[Step], ImageRun | None]]:
    """Yield the steps in lists, in order: runs of layers with a convolution among them, and the steps between them.

    Args:
        kept: numbers of the values that are read outside the steps.
    """
    readers = Counter(number for step in low.steps for number in step.inputs)
    readers.update(kept)
    layers = {id(step): layers_of(low, step) for step in low.steps} if has_kernels() else {}
    last = {number: at for at, step in enumerate(low.steps) for number in step.inputs}
    end = 0
    for joined, group in groupby(low.steps, lambda step: bool(layers.get(id(step)))):
        members = list(group)
        end += len(members)
        outputs = [n for step in members for n in step.outputs if n in kept or last.get(n, -1) >= end]
        found = [layer for step in members for layer in layers.get(id(step), [])]
        runs_at_once = joined and any(layer.fused for layer in found)
        yield members, ImageRun(with_activations(found, readers), outputs) if runs_at_once else None
