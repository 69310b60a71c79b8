"""MXNet's operators as functions of torch tensors: what the source of a module that `to_torch` makes calls.

``fx.Convolution(data, weight, kernel=(3, 3), num_filter=8, no_bias=True)`` computes what the operator does.
Each function is made when it is first asked for, and is an attribute of this module, so that `torch.fx` finds it by
name. It calls torch alone: no kernel that is chosen by size, which would fix the size of a batch in a trace.

Beside the operator's attributes a function takes ``training``; ``like``, a tensor whose device and floating type what
is made from nothing gets; ``out_shapes``, the shapes of outputs that no input tells; ``bodies``, the subgraphs of a
loop or branch as modules; and ``memory``, in which an operator keeps what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Proxy

from ..base import ArgumentError, StateError
from .dtypes import name_of
from .fx_forms import FORMS
from .fx_opaque import call, is_opaque
from .recording import is_traced
from .registry import find
from .spec import AUX, Env, Op

RESERVED = frozenset({"training", "like", "out_shapes", "bodies", "memory"})
"""Keywords that every function takes."""

Function = Callable[..., Any]

_made: dict[str, Function] = {}


class Memory(torch.nn.Module):
    """What an operator of the user's keeps from one call to the next; a copy of it begins with nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}}

    def __deepcopy__(self, memo: Any) -> Memory:
        return Memory()


class _Body(NamedTuple):
    """A subgraph as operators call it."""

    module: torch.nn.Module

    def __call__(self, env: Env, tensors: Sequence[torch.Tensor], step: int = 0) -> list[torch.Tensor]:
        return list(self.module(*tensors))


class _Head(torch.autograd.Function):
    """A loss's output: whatever gradient comes, the loss's own one goes on."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, out: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(grad)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return grad, None, None


_head: Callable[..., torch.Tensor] = _Head.apply


def part(values: Any, number: int) -> Any:
    """Return one of several outputs of an operator; of one that a missing label has kept from running, None."""
    return None if values is None else values[number]


def function_of(op: Op) -> Function:
    """Return the function of an operator; of one that the registry has, always the same."""
    if op.owner is not None:
        return _made_for(op)
    if op.name not in _made:
        _made[op.name] = _made_for(op)
    return _made[op.name]


def __getattr__(name: str) -> Any:
    found = None if name.startswith("__") else find(name)
    if found is None:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}, since there is no such operator"
        )
    return function_of(found)


def _made_for(op: Op) -> Function:
    """Return a new function for an operator."""
    name, read, compute, is_plain = op.name, _reader(op), _computation(op), op.loss is None

    def function(
        *tensors: Any,
        training: bool = False,
        like: torch.Tensor | None = None,
        out_shapes: tuple[tuple[int, ...], ...] = (),
        bodies: tuple[torch.nn.Module, ...] = (),
        memory: Memory | None = None,
        **attributes: Any,
    ) -> Any:
        given = tensors[0] if tensors else like
        if isinstance(given, Proxy):
            around = _Around(training, like, out_shapes, bodies, memory)
            return _traced(given, function, tensors, attributes, around)
        if is_plain and any(each is None for each in tensors):
            return None  # works on labels, and there are none
        if is_opaque(name) and tensors:
            return call(name, attributes, tensors)
        device = torch.device("cpu") if given is None else given.device
        env = Env(device, None, training, out_shapes, None, None if memory is None else memory.kept)
        return compute(read(attributes, like, bodies), env, *tensors)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = __name__
    function.__doc__ = op.doc
    return function


class _Around(NamedTuple):
    """What a call has beside tensors and attributes."""

    training: Any
    like: Any
    out_shapes: Any
    bodies: Sequence[torch.nn.Module]
    memory: Memory | None


def _traced(
    proxy: Proxy, function: Function, tensors: Sequence[Any], attributes: dict[str, Any], around: _Around
) -> Any:
    """Record a call as one of `torch.fx`, whose tracers need not look into it."""
    tracer: Any = proxy.tracer

    def path(module: torch.nn.Module) -> Any:
        return tracer.create_proxy("get_attr", tracer.path_of_module(module), (), {})

    named = zip(around._fields[:3], around)
    keywords = {**attributes, **{key: value for key, value in named if isinstance(value, Proxy) or value}}
    if around.bodies:
        keywords["bodies"] = tuple(map(path, around.bodies))
    if around.memory is not None:
        keywords["memory"] = path(around.memory)
    return tracer.create_proxy("call_function", function, tuple(tensors), keywords)


def _reader(op: Op) -> Callable[..., Any]:
    """Return what makes an operator's record of attributes."""
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
    """Return ``(a, env, *tensors) -> what the function returns``."""
    if op.loss is not None:
        return _loss(op)
    form, bind, run = FORMS.get(op.name), op.bind, op.run
    if form is not None:
        run = form
    elif bind is not None:

        def compute(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
            bound = bind(a)
            return run(a, env, *tensors) if bound is None else bound(*tensors)

        return compute
    return _writing(op, run) if op.mutates else run


def _loss(op: Op) -> Function:
    """Return the computation of a loss, which gives its prediction alone where there is no label."""
    loss, name = op.loss, op.name
    forward, rule = loss.forward, loss.grad  # type: ignore[union-attr]

    def compute(a: Any, env: Env, data: torch.Tensor, *rest: Any) -> torch.Tensor:
        if any(label is None for label in rest):
            if env.is_train:
                raise ArgumentError(
                    f"{name}: no label was given, which a loss needs in train mode; give it, or call eval()"
                )
            return forward(a, env, data, *rest)
        if is_traced() and env.is_train:
            raise StateError(
                f"{name}: torch.jit.trace cannot record the gradient of a loss; call eval() before tracing, or use "
                "torch.compile"
            )
        if not (torch.is_grad_enabled() and data.requires_grad) or is_traced():
            return forward(a, env, data, *rest)
        fixed, others = data.detach(), [label.detach() for label in rest]
        out = forward(a, env, fixed, *others)
        return _head(data, out, rule(a, env, out, fixed, *others))

    return compute


def _writing(op: Op, run: Function) -> Function:
    """Return the computation of an operator that gives its states new values: in train mode they are written."""
    outputs = op.outputs
    inputs = () if callable(op.inputs) else op.inputs
    names = [one.name for one in inputs]
    places = [names.index(name) for name in op.mutates]
    states = [(i, place) for i, place in enumerate(places) if inputs[place].kind == AUX]

    def compute(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
        count = len(outputs(a)) if callable(outputs) else len(outputs)
        results = run(a, env, *tensors)
        if env.is_train:
            for i, place in states:
                new = results[count + i]
                if new is not None:
                    with torch.no_grad():
                        tensors[place].copy_(new)
        return results[0] if count == 1 else results[:count]

    return compute
