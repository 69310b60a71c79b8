"""MXNet's operators as functions of torch tensors, called by the source code of modules made by `to_torch`.

``fx.Convolution(data, weight, kernel=(3, 3), num_filter=8, no_bias=True)`` runs the operator.
A function is created when it is first used, and is an attribute of this module, so that `torch.fx` finds it by name. It
only calls torch: choosing a kernel by size would fix the batch size in a trace.

In addition to the operator's attributes, a function takes ``training``; ``like``, a tensor that determines device and
floating type of new tensors; ``out_shapes``, output shapes that do not follow from inputs; ``bodies``, the subgraphs of
a loop or branch as modules; and ``memory``, the operator's state between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Proxy
from torch.nn import functional as F

from ..base import ArgumentError, StateError
from .array.reshape_codes import resolve, resolve_numpy
from .attrs import literal
from .dtypes import name_of, torch_dtype
from .registry import find, get
from .shapes import infer_shape, infer_type
from .spec import AUX, Env, Op
from .tracing import is_jit_tracing, is_tracing


def _fully_connected(
    a: Any, env: Env, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply with the kernel that torch chooses."""
    if a.flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 1 else data.unsqueeze(1)
    return F.linear(data, weight, bias if bias is None or bias.dim() == 1 else bias.reshape(-1))


def _dropout(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Apply dropout with torch's operator, which compilers know, except for `axes` and p = 1."""
    if a.p == 0 or not (env.is_train or a.mode == "always"):
        return data
    if not a.axes and a.p < 1:
        return F.dropout(data, a.p, True)
    axes = {axis % data.dim() for axis in a.axes}
    dims = [1 if i in axes else n for i, n in enumerate(data.shape)]
    return data * torch.empty(dims, dtype=data.dtype, device=data.device).bernoulli_(1 - a.p).div_(1 - a.p)


def _reshape(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Reshape by codes, resolved on sizes that may be symbolic."""
    codes, reverse = a.shape, a.reverse
    if not codes:
        codes = tuple(
            0 if a.keep_highest and i == 0 else -1 if d == 0 else d for i, d in enumerate(a.target_shape)
        )
    if not reverse and min(codes) >= -1:
        return data.reshape([data.shape[i] if code == 0 else code for i, code in enumerate(codes)])
    return data.reshape(resolve.__wrapped__(tuple(data.shape), codes, reverse))


def _reshape_numpy(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Reshape by codes of the NumPy interface, resolved on sizes that may be symbolic."""
    return data.reshape(resolve_numpy.__wrapped__(tuple(data.shape), a.newshape, a.reverse))


def _run_cond(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run one of two branches."""
    _refuse_export("_cond")
    return get("_cond").run(a, env, *tensors)


def _run_while_loop(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run a loop; without iterations, run one step to get the shapes of the stacked outputs."""
    _refuse_export("_while_loop")
    condition, body = a.bodies
    if condition(env, [tensors[i] for i in a.cond_input_locs])[0].item():
        sizes = ((a.max_iterations,),) * a.num_out_data
        return get("_while_loop").run(a, Env(env.device, env.generator, env.is_train, sizes), *tensors)
    values = [tensors[i] for i in a.func_input_locs]
    with torch.no_grad():
        outputs = body(Env(env.device, env.generator, False), values)[: a.num_out_data]
    stacked = [
        torch.zeros((a.max_iterations, *out.shape), dtype=out.dtype, device=out.device) for out in outputs
    ]
    results = (*stacked, *(values[i] for i in a.func_var_locs))
    return results[0] if len(results) == 1 else results


def _refuse_export(name: str) -> None:
    """Raise an error if `torch.export` records the operator."""
    if is_exporting():
        raise StateError(
            f"{name} chooses by its data what to run, which torch.export cannot record; export the symbol with "
            "mx.onnx.export_model, or export it without the loop or branch"
        )


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "Dropout": _dropout,
    "FullyConnected": _fully_connected,
    "Reshape": _reshape,
    "_cond": _run_cond,
    "_npx_reshape": _reshape_numpy,
    "_while_loop": _run_while_loop,
}
"""Functions ``(a, env, *tensors)`` that replace operators, by name."""


# Data-dependent operators, recorded as single calls by `torch.export` and `torch.compile`.
#
# Neither can trace data-dependent control flow, such as non-maximum suppression. They get the output shapes, and the
# program calls the operator as ``torch.ops.dpmodule.opaque``, which exists once dpmodule has made such a module or
# `dpmodule.ops.fx` has been imported.


def _is_non_dynamo_export() -> bool:
    """Return True during a non-strict `torch.export`, the fallback for torch without `torch.compiler.is_exporting`."""
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


is_exporting = getattr(torch.compiler, "is_exporting", _is_non_dynamo_export)
"""Return True during `torch.export`."""

_OPAQUE_WHEN_TRACED = frozenset(
    {"_contrib_MultiBoxTarget", "_contrib_MultiBoxDetection", "_contrib_Proposal", "_contrib_MultiProposal"}
)
_OPAQUE_IN_PREDICTION = frozenset(
    {
        "CTCLoss",
        "_contrib_RROIAlign",
        "_contrib_SparseEmbedding",
        "_contrib_bipartite_matching",
        "_contrib_box_nms",
        "_contrib_count_sketch",
        "_contrib_hawkesll",
        "_contrib_index_copy",
        "_cvimdecode",
        "_sparse_retain",
    }
)
_OPAQUE_IN_DYNAMO = frozenset({"_contrib_MultiBoxPrior"})
"""Operators that use NumPy on numbers, which `torch.compile` would treat as arrays."""


def is_opaque(name: str) -> bool:
    """Return True if the active tracer or compiler must record an operator as a single call."""
    if name in _OPAQUE_IN_DYNAMO:
        return torch.compiler.is_dynamo_compiling()
    if name in _OPAQUE_WHEN_TRACED:
        return is_tracing()
    if name not in _OPAQUE_IN_PREDICTION:
        return False
    return (
        is_exporting() or is_jit_tracing() or (torch.compiler.is_compiling() and not torch.is_grad_enabled())
    )


def call(name: str, attributes: dict[str, Any], tensors: Sequence[torch.Tensor]) -> Any:
    """Call an operator as one opaque call, without gradient."""
    outputs = _opaque(name, repr(list(attributes.items())), [tensor.detach() for tensor in tensors])
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _attribute_record(name: str, attributes: str) -> Any:
    """Return an operator's record of attributes."""
    op, values = get(name), dict(literal(attributes))
    return op.parse_record(*(values.get(key, attr.default) for key, attr in op.attrs.items()))


@torch.library.custom_op(
    "dpmodule::opaque", mutates_args=(), schema="(str name, str attributes, Tensor[] tensors) -> Tensor[]"
)
def _opaque(name: str, attributes: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    op, a = get(name), _attribute_record(name, attributes)
    env = Env(tensors[0].device, None, False)
    bound = op.bind(a) if op.bind is not None else None
    outputs = op.run(a, env, *tensors) if bound is None else bound(*tensors)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return [out.clone() for out in outputs[: len(op.output_names(a))]]


@_opaque.register_fake
def _opaque_shapes(name: str, attributes: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    op, a = get(name), _attribute_record(name, attributes)
    unknown: list[Any] = [None] * len(op.output_names(a))
    shapes = infer_shape(op, a, [tuple(tensor.shape) for tensor in tensors], unknown)[1]
    types = infer_type(op, a, [name_of(tensor.dtype) for tensor in tensors], unknown)[1]
    return [
        tensors[0].new_empty(shape or (), dtype=torch_dtype(kind or name_of(tensors[0].dtype)))
        for shape, kind in zip(shapes, types)
    ]


RESERVED = frozenset({"training", "like", "out_shapes", "bodies", "memory"})
"""Keyword arguments of every function."""

Function = Callable[..., Any]

_functions: dict[str, Function] = {}


class OperatorState(torch.nn.Module):
    """State of a user's operator between calls; a copy starts empty."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}}

    def __deepcopy__(self, memo: Any) -> OperatorState:
        return OperatorState()


class _Body(NamedTuple):
    """Subgraph in the form that operators call."""

    module: torch.nn.Module

    def __call__(self, env: Env, tensors: Sequence[torch.Tensor], step: int = 0) -> list[torch.Tensor]:
        return list(self.module(*tensors))


class _LossGradient(torch.autograd.Function):
    """Output of a loss; backward ignores the incoming gradient and returns the loss's own."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, out: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(grad)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return grad, None, None


_replace_gradient: Callable[..., torch.Tensor] = _LossGradient.apply


def select_output(values: Any, number: int) -> Any:
    """Return one of several outputs of an operator; None if a missing label has kept it from running."""
    return None if values is None else values[number]


def function_of(op: Op) -> Function:
    """Return the function of an operator; always the same object for operators in the registry."""
    if op.owner is not None:
        return _make_function(op)
    if op.name not in _functions:
        _functions[op.name] = _make_function(op)
    return _functions[op.name]


def __getattr__(name: str) -> Any:
    op = None if name.startswith("__") else find(name)
    if op is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, as there is no such operator")
    return function_of(op)


def _make_function(op: Op) -> Function:
    """Return a new function for an operator."""
    name, read, compute, is_plain = op.name, _attribute_reader(op), _computation(op), op.loss is None

    def function(
        *tensors: Any,
        training: bool = False,
        like: torch.Tensor | None = None,
        out_shapes: tuple[tuple[int, ...], ...] = (),
        bodies: tuple[torch.nn.Module, ...] = (),
        memory: OperatorState | None = None,
        **attributes: Any,
    ) -> Any:
        reference = tensors[0] if tensors else like
        if isinstance(reference, Proxy):
            options = _CallOptions(training, like, out_shapes, bodies, memory)
            return _record_call(reference, function, tensors, attributes, options)
        if is_plain and any(tensor is None for tensor in tensors):
            return None  # it reads labels, and there are none
        if is_opaque(name) and tensors:
            return call(name, attributes, tensors)
        device = torch.device("cpu") if reference is None else reference.device
        env = Env(device, None, training, out_shapes, None, None if memory is None else memory.kept)
        return compute(read(attributes, like, bodies), env, *tensors)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = __name__
    function.__doc__ = op.doc
    return function


class _CallOptions(NamedTuple):
    """Arguments of a call other than tensors and attributes."""

    training: Any
    like: Any
    out_shapes: Any
    bodies: Sequence[torch.nn.Module]
    memory: OperatorState | None


def _record_call(
    proxy: Proxy,
    function: Function,
    tensors: Sequence[Any],
    attributes: dict[str, Any],
    options: _CallOptions,
) -> Any:
    """Record a call in a `torch.fx` graph, as a leaf for its tracers."""
    tracer: Any = proxy.tracer

    def path(module: torch.nn.Module) -> Any:
        return tracer.create_proxy("get_attr", tracer.path_of_module(module), (), {})

    named = zip(options._fields[:3], options)
    keywords = {**attributes, **{key: value for key, value in named if isinstance(value, Proxy) or value}}
    if options.bodies:
        keywords["bodies"] = tuple(map(path, options.bodies))
    if options.memory is not None:
        keywords["memory"] = path(options.memory)
    return tracer.create_proxy("call_function", function, tuple(tensors), keywords)


def _attribute_reader(op: Op) -> Callable[..., Any]:
    """Return a function that builds an operator's record of attributes."""
    if op.read_attrs is not None:
        read_attrs = op.read_attrs
        return lambda attributes, like, bodies: read_attrs(attributes)
    defaults = tuple((key, attr.default) for key, attr in op.attrs.items())
    make, has_bodies = op.parse_record, bool(op.num_subgraphs)
    follows = "dtype" in op.attrs and op.attrs["dtype"].default in (None, "float32")

    def read(attributes: dict[str, Any], like: torch.Tensor | None, bodies: Sequence[torch.nn.Module]) -> Any:
        if follows and like is not None and "dtype" not in attributes:
            attributes["dtype"] = name_of(like.dtype)
        values = [attributes.get(key, default) for key, default in defaults]
        return make(*values, tuple(map(_Body, bodies))) if has_bodies else make(*values)

    return read


def _computation(op: Op) -> Function:
    """Return the implementation ``(a, env, *tensors) -> result`` of an operator."""
    if op.loss is not None:
        return _loss_computation(op)
    form, bind, run = IMPLEMENTATIONS.get(op.name), op.bind, op.run
    if form is not None:
        run = form
    elif bind is not None:

        def compute(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
            bound = bind(a)
            return run(a, env, *tensors) if bound is None else bound(*tensors)

        return compute
    return _with_state_updates(op, run) if op.mutates else run


def _loss_computation(op: Op) -> Function:
    """Return the implementation of a loss, which only predicts if there is no label."""
    loss, name = op.loss, op.name
    forward, rule = loss.forward, loss.grad  # type: ignore[union-attr]

    def compute(a: Any, env: Env, data: torch.Tensor, *rest: Any) -> torch.Tensor:
        if any(label is None for label in rest):
            if env.is_train:
                raise ArgumentError(
                    f"{name}: no label was given, but a loss needs one in train mode; pass it, or call eval()"
                )
            return forward(a, env, data, *rest)
        if is_jit_tracing() and env.is_train:
            raise StateError(
                f"{name}: torch.jit.trace cannot record the gradient of a loss; call eval() before tracing, or use "
                "torch.compile"
            )
        if not (torch.is_grad_enabled() and data.requires_grad) or is_jit_tracing():
            return forward(a, env, data, *rest)
        fixed, others = data.detach(), [label.detach() for label in rest]
        out = forward(a, env, fixed, *others)
        return _replace_gradient(data, out, rule(a, env, out, fixed, *others))

    return compute


def _with_state_updates(op: Op, run: Function) -> Function:
    """Return the implementation of an operator that updates states, which are written in train mode."""
    outputs = op.outputs
    inputs = () if callable(op.inputs) else op.inputs
    names = [one.name for one in inputs]
    positions = [names.index(name) for name in op.mutates]
    states = [(i, position) for i, position in enumerate(positions) if inputs[position].kind == AUX]

    def compute(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
        count = len(outputs(a)) if callable(outputs) else len(outputs)
        results = run(a, env, *tensors)
        if env.is_train:
            for i, position in states:
                new = results[count + i]
                if new is not None:
                    with torch.no_grad():
                        tensors[position].copy_(new)
        return results[0] if count == 1 else results[:count]

    return compute
