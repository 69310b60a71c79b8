"""Registry of user-defined operators, the operator `Custom`, and arguments of operators by name."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ..base import ArgumentError, OpError, Shape
from ..ops import get, names
from ..ops.attrs import string
from ..ops.registry import op
from ..ops.sparse import add_rule
from ..ops.spec import NEVER, REQUIRED, Attr, Env, Input, Onnx
from .base import CustomOpProp, PropCall
from .run import SPARSE, run


class OperatorArguments(NamedTuple):
    """Arguments of an operator: inputs first, then attributes.

    Attributes:
        narg: number of arguments.
        names: names of the arguments.
        types: as text, such as "int, required".
    """

    narg: int
    names: list[str]
    types: list[str]


_WORDS = {
    "int": "int",
    "float": "float",
    "bool": "boolean",
    "str": "string",
    "tuple[int, ...]": "Shape(tuple)",
    "int | tuple[int, ...]": "Shape(tuple)",
    "tuple[float, ...]": "tuple of <float>",
    "Any": "dtype",
}


def get_all_registered_operators() -> list[str]:
    """Return the names of all operators, aliases included."""
    return list(names())


def get_operator_arguments(op_name: str) -> Any:
    """Return an operator's arguments.

    Args:
        op_name: registry name or alias.

    Returns:
        `OperatorArguments` (narg, names, types); types as text, such as "int, required".

    Raises:
        OpError: the operator does not exist.

    Example:
        >>> mx.operator.get_operator_arguments("Activation").names
        ['data', 'act_type']
    """
    op = get(op_name)
    if op.variadic is not None:
        inputs = [("data", "NDArray-or-Symbol[]")]
    elif isinstance(op.inputs, tuple):
        inputs = [(inp.name, "NDArray-or-Symbol") for inp in op.inputs]
    else:
        inputs = [("data", "NDArray-or-Symbol[]")]
    attributes = [(key, _text(attr)) for key, attr in op.attrs.items()]
    rows = [*inputs, *attributes]
    return OperatorArguments(len(rows), [name for name, _ in rows], [kind for _, kind in rows])


def _text(attr: Attr) -> str:
    """Return the type of an attribute in MXNet's notation."""
    kind = attr.type.annotation
    is_optional = kind.endswith(" | None")
    kind = kind.removesuffix(" | None")
    if attr.type.expects.startswith("one of "):
        choices = attr.type.expects.removeprefix("one of ").split(", or None")[0].split(", ")
        word = "{" + ", ".join(map(repr, sorted(choices))) + "}"
    else:
        word = _WORDS.get(kind, kind)
    word += " or None" if is_optional and not word.startswith("{") else ""
    if attr.default is REQUIRED:
        return f"{word}, required"
    default = int(attr.default) if isinstance(attr.default, bool) else attr.default
    return f"{word}, optional, default={default!r}"


Prop = TypeVar("Prop", bound=type)


class _RegisteredClass(NamedTuple):
    """A registered class; its number distinguishes it from a later one of the same name."""

    prop: Callable[..., Any]
    number: int


_numbers = itertools.count()
_entries: dict[str, _RegisteredClass] = {}
_lock = threading.Lock()


def register(reg_name: str) -> Callable[[Prop], Prop]:
    """Register a subclass of `CustomOpProp`, as a class decorator.

    A class registered later under the same name replaces it in new symbols.

    Args:
        reg_name: name of the operator, the ``op_type`` of ``Custom``.

    Raises:
        ArgumentError: the name is not a str, or the decorated object is not such a class.

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
            raise ArgumentError(f"register: {prop_cls!r} is not a subclass of CustomOpProp")
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
    """Declare an operator that runs user-defined operators.

    Args:
        attrs: attributes in addition to those of the user-defined class.
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
        needs_head=lambda a: a.reads_out_grad,
        stateful=True,
        batch=NEVER,
        onnx=Onnx(missing="it runs user-defined Python code"),
    )(run_it)


declare_prop_op(
    "Custom",
    {"op_type": Attr(string, "name under which the operator was registered")},
    prop_of,
    """Run an operator registered with `mx.operator.register`.

    Inputs come first or by name, auxiliary states after them; all other keyword arguments go to the constructor of
    the registered class, as strings.

    Shape:
        inputs: defined by the class.
        returns: result of its `infer_shape`.

    Source: MXNet 1.9.1 `Custom`.
    """,
)
add_rule("Custom", SPARSE, alone=lambda a: bool(a.infers_storage))
register("custom_op")(CustomOpProp)
