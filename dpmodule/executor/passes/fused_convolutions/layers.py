"""Steps that the extension can run as layers for images, several in one call; see `run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ....base import MXNetError
from ....ops.nn.activation import activation_name
from ....ops.nn.image_layers import NO_FUNCTION, Axes, Function, TiledConvolution, as_image
from ....ops.nn.linear import ACTIVATIONS, FUNCTIONS
from ....ops.nn.relayout import in_channels_last
from ....ops.shapes import infer_shape
from ....ops.spec import Env
from ...lowering import Lowered, Step
from ...packed_weights import packed
from ..dense_layers import DenseLayers
from ..gated_activations import GatedActivation
from ..pooling_first import PoolingFirst
from .call import Activation, BatchNorm, FusedConvolution
from .channels import ChannelShuffle, PixelRows, first_channel
from .deconvolution import PackedDeconvolution

Tensor = torch.Tensor
Shape = tuple[int, ...]
Shapes = dict[int, Shape]
Pack = tuple[Tensor, ...]

_BY_NAME = frozenset({"relu", "sigmoid", "tanh"})
_PARTS = frozenset({"SliceChannel", "_split_v2", "slice", "slice_axis"})
_PIXELS = ({2}, {-1}, {2, 3}, {-2, -1})
"""Axes of sequences and images, without those of samples and channels."""
_GATED = {"hardswish": "hardswish", "silu": "swish"}
_KINDS = {
    "BatchNorm": "affine",
    "Concat": "concat",
    "Flatten": "flat",
    "FullyConnected": "dense",
    "Pooling": "pooling",
    "Reshape": "flat",
    "expand_dims": "flat",
    "broadcast_add": "sum",
    "broadcast_mul": "scale",
    "elemwise_add": "sum",
    "max": "pooling",
    "mean": "pooling",
}


def activation(low: Lowered, step: Step) -> Activation | None:
    """Return a step as an activation of the kernels; None for an activation that they lack, and for other steps."""
    op, a = low.operator(step)
    if op is None or step.takes_env or (step.covers and not isinstance(step.function, GatedActivation)):
        return None
    if isinstance(step.function, GatedActivation):
        name = _GATED[step.function.name]
        return Activation(step.function, name, native=(name, 0.0, 0.0))
    if op.name == "clip":
        limits = a.a_min, a.a_max
        clip = Activation(step.function, "none", over=lambda x: x.clamp_(*limits), native=("clamp", *limits))
        return None if a.a_min > a.a_max else clip
    if op.name == "relu":  # oneDNN would turn NaN into numbers
        return Activation(step.function, "none", over=torch.relu_, native=("clamp", 0.0, torch.inf))
    kind = activation_name(op.name, a)
    if kind in _BY_NAME:
        return Activation(step.function, kind, native=(kind, 0.0, 0.0))
    if kind == "leaky":
        return Activation(step.function, "leaky_relu", (a.slope,), native=("leaky_relu", a.slope, 0.0))
    if kind == "gelu":
        return Activation(step.function, "gelu", (), "none", native=("gelu", 0.0, 0.0))
    return None


def channels_innermost(x: Tensor) -> Tensor:
    """Return images, sequences or rows with channels innermost in memory."""
    if x.dim() == 3:
        return in_channels_last(x.unsqueeze(2)).squeeze(2)
    return in_channels_last(x) if x.dim() == 4 else x.contiguous()


class Layer(NamedTuple):
    """A step of a run.

    Attributes:
        kind: kind of the extension's layer, or "concat", "dense", "flat", "part", "pooling" and "rows", which become
            one.
        images: numbers of the values that it reads, other than parameters.
        sources: numbers of its parameters.
        then: the activation that follows it, whose function is `function`.
    """

    step: Step
    op: Any
    a: Any
    kind: str
    images: list[int]
    sources: list[int]
    result: int
    function: Function | None
    then: Step | None = None

    @property
    def fused(self) -> FusedConvolution | PackedDeconvolution | None:
        """The convolution with the steps fused with it, if it is one."""
        call = self.step.function
        return call if isinstance(call, (FusedConvolution, PackedDeconvolution)) else None

    @property
    def norm(self) -> BatchNorm | None:
        """The normalisation that it is, or that is fused with a convolution."""
        if self.kind == "affine":
            return BatchNorm(self.step.function, self.a)
        return None if self.fused is None else self.fused.norm

    @property
    def takes_function(self) -> bool:
        """True if it may apply the function of an activation that follows it."""
        moves = self.kind in ("concat", "flat", "part", "rows", "shuffle")
        return self.fused is None and self.function == NO_FUNCTION and not moves

    def trains(self, env: Env) -> bool:
        """Return True if a normalisation uses the batch's statistics."""
        norm = self.norm
        return norm is not None and norm.trains(env)

    def read(self) -> list[int]:
        """Return the numbers of the parameters that the packed ones depend on."""
        norm = self.norm
        return self.sources if norm is None else list(norm.read(self.sources))

    def shape(self, shapes: Shapes) -> Shape | None:
        """Return the shape of the result; None if the operator does not take these shapes."""
        if self.fused is not None:
            sizes = self.fused.sizes(*self.shapes_read(shapes))
            axes = len(shapes[self.images[0]])  # sequences have no axis for rows
            return None if sizes is None else (*sizes.result[:2], *sizes.result[2 - axes :])
        given = [shapes.get(n) for n in self.step.inputs]
        try:
            if self.kind in ("part", "rows", "shuffle"):
                return tuple(self.move(torch.empty(shapes[self.images[0]], device="meta")).shape)
            return infer_shape(self.op, self.a, given, [None] * len(self.step.outputs))[1][0]
        except (MXNetError, RuntimeError):
            return None

    def move(self, x: Tensor) -> Tensor:
        """Run a step that only moves numbers, and return the layer's result."""
        return self._own(self.step.function(x))

    def _own(self, results: Any) -> Tensor:
        found: Tensor = results
        if isinstance(results, tuple):
            found = results[self.step.outputs.index(self.result) if self.kind == "part" else 0]
        return found

    def shapes_read(self, shapes: Shapes) -> tuple[Shape, Shape | None]:
        """Return the shapes of the data and of the other summand."""
        return shapes[self.images[0]], shapes[self.images[1]] if len(self.images) > 1 else None

    def windows(self, data: Shape, result: Shape) -> Axes:
        """Return the windows of a pooling, or of one pixel, for data and result with four axes."""
        sides = list(zip(data[2:], result[2:]))
        if self.kind != "pooling":
            return [(size, size, 1, 1, 1, 0) for size, _ in sides]
        if self.op.name != "Pooling" or self.a.global_pool:
            return [(size, 1, size, 1, 1, 0) for size, _ in sides]
        lacking = 2 - len(self.a.kernel)
        kernel, stride = (1,) * lacking + self.a.kernel, (1,) * lacking + (self.a.stride or (1, 1))
        pad = (0,) * lacking + (self.a.pad or (0, 0))
        return [(*sides[i], kernel[i], stride[i], 1, pad[i]) for i in range(2)]

    def is_native(self, shapes: Shapes, in_run: bool) -> bool:
        """Return True if the extension runs it, and is the fastest, for these shapes; the result's shape is known."""
        data, other = self.shapes_read(shapes)
        result = shapes[self.result]
        if self.function is None:
            return False
        if self.fused is not None:
            sizes = self.fused.sizes(data, other)
            return sizes is not None and self.fused.is_faster(sizes, in_run)
        if self.kind == "pooling":
            if self.op.name != "Pooling" and len(_axes(self.a)) != len(data) - 2:
                return False
            axes = self.windows(as_image(data), as_image(result))  # every window has a number
            return all(
                pad < kernel and (count - 1) * stride - pad < size
                for size, count, kernel, stride, _, pad in axes
            )
        if self.kind == "part":
            return first_channel(self.move, data) is not None
        if isinstance(self.step.function, ChannelShuffle):
            return self.step.function.groups(data) > 0
        if isinstance(self.step.function, PixelRows):
            return self.step.function.are_rows(data)
        if self.kind == "sum":
            return data == other
        if self.kind == "scale":
            pixel = (*data[:2], 1, 1)
            return len(data) == 4 and (other == pixel or data == (*(other or ())[:2], 1, 1))
        return True

    @property
    def pooling(self) -> tuple[str, bool]:
        """The kernel's kind of a pooling, and True if a mean counts the padding of its window."""
        if "max" in (self.op.name, getattr(self.a, "pool_type", None)):
            return "max", False
        return "mean", getattr(self.a, "count_include_pad", None) is not False

    def packed(self, sources: Sequence[Tensor], shape: Shape) -> Pack:
        """Return weight and bias of each part, cached from their second use; () if they are unsuitable.

        Args:
            shape: of the data.
        """
        fused, norm = self.fused, self.norm
        kind: Any = (self.kind, *(getattr(self.a, name, None) for name in ("eps", "fix_gamma")))
        kind = kind if fused is None else fused.kind
        detail: Any = shape[1:] if fused is None else fused.detail(shape)
        sources = sources if norm is None else norm.read(sources)
        found: Pack | None = packed(kind, sources, lambda: self._packed(sources, shape), detail)
        return self._packed(sources, shape) if found is None else found

    def _packed(self, sources: Sequence[Tensor], shape: Shape) -> Pack:
        if self.fused is not None:
            return self.fused.pack(sources, shape)
        if any(source.dtype is not torch.float32 for source in sources):
            return ()
        if self.norm is not None:
            return self.norm.factors(sources)
        weight = sources[0].reshape(-1, *shape[1:])
        bias = sources[1].reshape(-1) if len(sources) > 1 else None
        return dense(self.a.num_hidden, shape[2:]).pack(weight, bias, shape[1])

    def __call__(self, env: Env, operands: Sequence[Tensor]) -> Tensor:
        """Run the step itself."""
        step = self.step
        result = step.function(step.fixed, env, *operands) if step.takes_env else step.function(*operands)
        found = self._own(result)
        if self.then is not None:
            found = self.then.function(found)
        return channels_innermost(found)


@lru_cache(maxsize=64)
def dense(units: int, size: tuple[int, int]) -> TiledConvolution:
    """Return the convolution whose only window is the whole image, as a dense layer."""
    return TiledConvolution(units, size, (1, 1), (1, 1), (0, 0))


def layers_of(low: Lowered, step: Step) -> list[Layer]:
    """Return a step as a layer, or as one for each of its results; an empty list for other steps."""
    op, a = low.operator(step)
    moves = {ChannelShuffle: "shuffle", PixelRows: "rows"}.get(type(step.function))
    if moves or (op is not None and op.name in _PARTS and not (step.takes_env or step.covers)):
        kind = moves or "part"
        return [Layer(step, op, a, kind, step.inputs, [], n, NO_FUNCTION) for n in step.outputs]
    layer = _layer_of(low, step)
    return [] if layer is None else [layer]


def _layer_of(low: Lowered, step: Step) -> Layer | None:
    op, a = low.operator(step)
    call = step.function
    if op is None or step.needs_shapes or step.own_env or step.detach_first or step.keeps:
        return None
    variables, inputs = low.num_variables, step.inputs
    if isinstance(call, (FusedConvolution, PackedDeconvolution)):
        sources = inputs[1:-1] if call.sums else inputs[1:]
        if max(sources) >= variables:  # computed: another one in every run
            return None
        images = [inputs[0], *inputs[-1:]] if call.sums else inputs[:1]
        return Layer(step, op, a, call.kind[0], images, sources, step.outputs[0], call.native)
    applied = activation(low, step)
    if op.name == "hard_sigmoid":
        applied = Activation(call, "none", native=("hard_sigmoid", a.alpha, a.beta))
    if applied is not None and applied.native is not None:
        return Layer(step, op, a, "copy", inputs, [], step.outputs[0], applied.native)
    kind = _KINDS.get(op.name)
    function: Function | None = NO_FUNCTION
    if isinstance(call, (DenseLayers, PoolingFirst)):
        function = _last_function(low, call)
    elif step.covers:
        return None
    if kind is None or not _is_supported(kind, a, step):
        return None
    takes_parameters = kind in ("affine", "dense")
    images, sources = (inputs[:1], inputs[1:]) if takes_parameters else (inputs, [])
    if takes_parameters and (inputs[0] < variables or max(sources) >= variables):
        return None
    return Layer(step, op, a, kind, images, sources, step.outputs[0], function)


def _last_function(low: Lowered, call: DenseLayers | PoolingFirst) -> Function | None:
    """Return the function of the activation in a step; None if the kernels lack it."""
    if isinstance(call, DenseLayers):
        name = FUNCTIONS[ACTIVATIONS[call.activations[0]]]
        return name, 0.0, torch.inf if name == "clamp" else 0.0
    applied = activation(low, call.activation)
    return None if applied is None else applied.native


def _axes(a: Any) -> set[int]:
    """Return the axes over which a maximum or a mean is taken; an empty set for all."""
    return {a.axis} if isinstance(a.axis, int) else set(a.axis or ())


def _is_supported(kind: str, a: Any, step: Step) -> bool:
    if kind == "pooling":
        if not hasattr(a, "pool_type"):  # a maximum or a mean
            return _axes(a) in _PIXELS and not a.exclude
        axes = len(a.kernel)
        fits = a.global_pool or (axes in (1, 2) and {len(a.stride), len(a.pad)} <= {0, axes})
        mean = a.pool_type == "avg" and (a.global_pool or a.pooling_convention == "valid")
        return fits and a.layout in (None, "NCHW", "NCW") and (mean or a.pool_type == "max")
    if kind == "concat":
        return a.dim == 1 and len(step.inputs) > 1
    if kind == "affine":
        return a.axis == 1 and not a.output_mean_var and len(step.outputs) == 4
    if kind == "dense":
        return bool(a.flatten)
    return True


def with_activations(layers: list[Layer], readers: Counter[int]) -> list[Layer]:
    """Return layers that apply the activation that follows them, if nothing else reads their result.

    Args:
        readers: number of readers of each value, in and outside of the layers.
    """
    found: dict[int, Layer] = {}
    for layer in layers:
        before = found.get(layer.images[0]) if layer.kind == "copy" else None
        if before is not None and before.takes_function and readers[before.result] == 1:
            del found[before.result]
            layer = before._replace(function=layer.function, result=layer.result, then=layer.step)
        found[layer.result] = layer
    return list(found.values())
