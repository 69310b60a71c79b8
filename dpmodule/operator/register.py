"""Operators of users by name, and the operator `Custom` that runs them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ..base import ArgumentError, OpError, Shape
from ..ops.attrs import string
from ..ops.registry import op
from ..ops.sparse import add_rule
from ..ops.spec import NEVER, Attr, Env, Input, Onnx
from .base import CustomOpProp
from .prop_call import PropCall
from .run import SPARSE, run

Prop = TypeVar("Prop", bound=type)


class _RegisteredClass(NamedTuple):
    """A registered class; its number tells it from one registered later under the same name."""

    prop: Callable[..., Any]
    number: int


_numbers = itertools.count()
_entries: dict[str, _RegisteredClass] = {}
_lock = threading.Lock()


def register(reg_name: str) -> Callable[[Prop], Prop]:
    """Register a subclass of `CustomOpProp`, as a class decorator.

    A class registered later under the same name takes its place in symbols made from then on.

    Args:
        reg_name: name of the operator, given as ``op_type`` to ``Custom``.

    Raises:
        ArgumentError: the name is no text, or what is decorated no class of that kind.

    Example:
        >>> class Double(mx.operator.CustomOp):
        ...     def forward(self, is_train, req, in_data, out_data, aux):
        ...         self.assign(out_data[0], req[0], in_data[0] * 2)
        ...
        ...     def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        ...         self.assign(in_grad[0], req[0], out_grad[0] * 2)
        >>> @mx.operator.register("double")
        ... class DoubleProp(mx.operator.CustomOpProp):
        ...     def create_operator(self, ctx, in_shapes, in_dtypes):
        ...         return Double()
        >>> mx.nd.Custom(mx.nd.ones((2,)), op_type="double").asnumpy()
        array([2., 2.], dtype=float32)
    """
    if not isinstance(reg_name, str) or not reg_name:
        raise ArgumentError(f"register: the name is {reg_name!r}, expected a text")

    def do_register(prop_cls: Prop) -> Prop:
        if not callable(prop_cls) or not hasattr(prop_cls, "infer_shape"):
            raise ArgumentError(f"register: {prop_cls!r} is no subclass of CustomOpProp")
        with _lock:
            _entries[reg_name] = _RegisteredClass(prop_cls, next(_numbers))
        return prop_cls

    return do_register


def prop_of(given: Mapping[str, Any]) -> PropCall:
    """Return the property object that the attributes of a ``Custom`` node describe.

    Args:
        given: ``op_type``, and keyword arguments of the registered class.
    """
    texts = {key: value if isinstance(value, str) else str(value) for key, value in given.items()}
    name = texts.get("op_type")
    if not name:
        raise OpError("Custom: op_type is required: the name under which the operator was registered")
    entry = _entries.get(name)
    if entry is None:
        have = ", ".join(map(repr, _entries)) or "none"
        raise OpError(
            f"Custom: no operator is registered as {name!r} (registered: {have}); import the file that has "
            f"@mx.operator.register({name!r}) before the symbol is made or loaded"
        )
    keywords = {key: value for key, value in texts.items() if key != "op_type"}
    key = f"Custom {name!r} #{entry.number} {sorted(keywords.items())}"
    return PropCall(f"Custom {name!r}", key, lambda: entry.prop(**keywords), texts)


def _infer(a: PropCall, ins: list[Shape], outs: list[Shape]) -> tuple[list[Shape], list[Shape]]:
    return a.infer_shape(ins, outs)


def _infer_type(
    a: PropCall, ins: list[str | None], outs: list[str | None]
) -> tuple[list[str | None], list[str | None]]:
    return a.infer_type(ins, outs)


def _inputs(a: PropCall) -> tuple[Input, ...]:
    return a.inputs


def declare_prop_op(
    name: str, attrs: Mapping[str, Attr], read: Callable[[Mapping[str, Any]], PropCall], doc: str
) -> None:
    """Declare an operator that runs users' objects.

    Args:
        attrs: attributes that it has besides those of the users' class.
    """

    def run_it(a: PropCall, env: Env, *tensors: Any) -> Any:
        return run(a, env, *tensors)

    run_it.__doc__ = doc
    op(
        name,
        _inputs,
        attrs,
        outputs=lambda a: a.outputs,
        infer=_infer,
        infer_type=_infer_type,
        read_attrs=read,
        needs_head=lambda a: a.reads_head,
        stateful=True,
        batch=NEVER,
        onnx=Onnx(missing="it runs Python code of the user's"),
    )(run_it)


declare_prop_op(
    "Custom",
    {"op_type": Attr(string, "name under which the operator was registered")},
    prop_of,
    """Run an operator registered with `mx.operator.register`.

    Inputs come first or by name, auxiliary states after them; all other keyword arguments go to the constructor of
    the registered class, as strings.

    Shape:
        inputs: whatever the class takes.
        returns: what its `infer_shape` says.

    Source: MXNet 1.9.1 `Custom`.
    """,
)
add_rule("Custom", SPARSE, alone=lambda a: bool(a.asks_storage))
register("custom_op")(CustomOpProp)
