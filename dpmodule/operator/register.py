"""Registry of user-defined operators, the operator `Custom`, and arguments of operators by name."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from .._core import mode
from ..base import ArgumentError, OpError, Shape
from ..context import Context
from ..ndarray import NDArray, sparse
from ..ndarray.handle import Handle
from ..ops import get, names
from ..ops.attrs import string
from ..ops.dtypes import name_of, torch_dtype
from ..ops.registry import op
from ..ops.sparse import (
    Sparse,
    SparseRule,
    add_rule,
    anchor_for,
    as_rows,
    attach_gradient,
    fit_gradient,
    leaf_of,
    stored_as,
)
from ..ops.spec import NEVER, REQUIRED, Attr, Env, Input, Onnx
from ..ops.user_code import user_code
from ..ops.write_tracking import expose
from .base import CreatedOperator, CustomOpProp, PropCall

Tensor = torch.Tensor
Value = Any  # a tensor, or a record of what a sparse array stores


def run(a: PropCall, env: Env, *values: Value) -> Any:
    """Call a user-defined operator.

    Forward and backward write its states in place, as in MXNet.

    Args:
        env: context, mode, and the cache of the operator between calls.
    """
    return _run(a, env, (False,) * len(values), *values)


def _run(a: PropCall, env: Env, takes_rows: Sequence[bool], *values: Value) -> Any:
    """Implement `run`."""
    ctx = env.context or Context(env.device)
    job = _OperatorCall(a, ctx, env.is_train, _operator(a, env, ctx, values), values)
    arguments = values[: len(a.arguments)]
    if torch.is_grad_enabled() and any(value.requires_grad for value in arguments):
        made: list[Value] = []
        leaves = [leaf_of(value) for value in arguments]
        tensors = _CustomOpFunction.apply(job, tuple(takes_rows), made, *leaves)  # type: ignore[no-untyped-call]
        outputs = [attach_gradient(one, tensor) for one, tensor in zip(made, tensors, strict=True)]
    else:
        outputs = job.forward()
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _operator(a: PropCall, env: Env, ctx: Context, values: Sequence[Value]) -> CreatedOperator:
    """Return the cached operator for these inputs, or a new one."""
    shapes = tuple(tuple(value.shape) for value in values)
    dtypes = tuple(name_of(value.dtype) for value in values)
    key = repr(a), shapes, dtypes
    if env.memo is None:
        return a.create(ctx, shapes, dtypes)
    operator: CreatedOperator | None = env.memo.get(key)
    if operator is None:
        operator = env.memo[key] = a.create(ctx, shapes, dtypes)
    return operator


def _detached(value: Value) -> Value:
    """Return the value of an array of user code; sparse storage is detached from its history."""
    return value.detach() if isinstance(value, Sparse) else value


def _stype(value: Value) -> str:
    return value.stype if isinstance(value, Sparse) else "default"


class _OperatorCall:
    """One call of an operator, with the data that forward stores for backward."""

    def __init__(
        self, a: PropCall, ctx: Context, is_train: bool, made: CreatedOperator, values: Sequence[Value]
    ) -> None:
        self._a, self._ctx, self._is_train, self._made = a, ctx, is_train, made
        self._stypes = tuple(map(_stype, values))
        self._given_states = values[len(a.arguments) :]
        self._states = self._arrays(self._given_states)
        self._inputs = self._arrays(values[: len(a.arguments)])
        self._outputs: list[Any] = []
        self._device = values[0].device if values else ctx.torch_device

    def _arrays(self, values: Sequence[Value]) -> list[Any]:
        """Wrap values for user code; `data` has no history and a separate version counter."""
        for value in values:
            expose(value.values if isinstance(value, Sparse) else value)
        return [
            Handle.of_records[value.stype](value.detach(), self._ctx)
            if isinstance(value, Sparse)
            else NDArray(value.data, self._ctx, pinned=True)
            for value in values
        ]

    def _zeros(self, stype: str, shape: Sequence[int], dtype: torch.dtype) -> Any:
        """Return a new array for user code to write to."""
        if stype != "default":
            return sparse.zeros(stype, shape, self._ctx, name_of(dtype))
        return self._arrays([torch.zeros(tuple(shape), dtype=dtype, device=self._device)])[0]

    def _keep_states(self) -> None:
        """Store values that user code assigned to sparse states."""
        for given, array in zip(self._given_states, self._states, strict=True):
            owner = given.home and given.home() if isinstance(given, Sparse) else None
            if owner is not None:
                owner.take_over(array.stored.detach())

    def forward(self) -> list[Value]:
        """Return the outputs."""
        stypes = (
            self._a.infer_storage(self._stypes)
            if self._a.infers_storage
            else ("default",) * len(self._made.shapes)
        )
        self._outputs = [
            self._zeros(stype, shape, torch_dtype(dtype))
            for stype, shape, dtype in zip(stypes, self._made.shapes, self._made.dtypes, strict=True)
        ]
        with torch.no_grad(), mode.scope(recording=False, training=self._is_train), self._ctx, user_code():
            self._made.op.forward(
                is_train=self._is_train,
                req=["write"] * len(self._outputs),
                in_data=list(self._inputs),
                out_data=list(self._outputs),
                aux=list(self._states),
            )
        self._keep_states()
        return [_detached(array.stored) for array in self._outputs]

    def backward(self, grads: Sequence[Tensor], wanted: Sequence[bool]) -> list[Value]:
        """Return the gradients of the arguments, None for those that are not needed."""
        outputs = [array.stype for array in self._outputs]
        heads, stypes = self._a.infer_storage_backward(self._stypes, outputs)
        arrays = [
            self._zeros(stype, array.shape, array.stored.dtype)
            for stype, array in zip(stypes, self._inputs, strict=True)
        ]
        given = [_head(grad, stype) for grad, stype in zip(grads, heads, strict=True)]
        with torch.no_grad(), mode.scope(recording=False, training=self._is_train), self._ctx, user_code():
            self._made.op.backward(
                req=["write" if is_wanted else "null" for is_wanted in wanted],
                out_grad=self._arrays(given),
                in_data=list(self._inputs),
                out_data=list(self._outputs),
                in_grad=list(arrays),
                aux=list(self._states),
            )
        self._keep_states()
        return [array.stored if is_wanted else None for array, is_wanted in zip(arrays, wanted, strict=True)]


def _head(grad: Tensor, stype: str) -> Value:
    """Return the gradient of an output, a dense or row-sparse tensor, in a storage type."""
    if grad.is_sparse and stype == "row_sparse":
        return as_rows(grad)
    return stored_as((grad.to_dense() if grad.is_sparse else grad).contiguous(), stype)


class _CustomOpFunction(torch.autograd.Function):
    """A call whose gradient is the user-defined backward."""

    @staticmethod
    def forward(
        ctx: Any, job: _OperatorCall, takes_rows: tuple[bool, ...], made: list[Value], *leaves: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.job, ctx.takes_rows = job, takes_rows
        made.extend(job.forward())
        tensors = [anchor_for(one.shape, one.values) if isinstance(one, Sparse) else one for one in made]
        ctx.like = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        ctx.mark_non_differentiable(*(tensor for tensor in tensors if not tensor.is_floating_point()))
        return tuple(tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        given = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
            for grad, (shape, dtype, device) in zip(grads, ctx.like)
        ]
        wanted = ctx.needs_input_grad[3:]
        return None, None, None, *map(fit_gradient, ctx.job.backward(given, wanted), ctx.takes_rows, wanted)


def _storage(a: PropCall, stypes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the storage types of the outputs, None if nothing is sparse."""
    if not a.infers_storage and set(stypes) <= {"default"}:
        return None
    return a.infer_storage(stypes)


def _grad_storage(a: PropCall, stypes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the storage types of the gradients of all inputs; states have none."""
    states = ("default",) * len(a.states)
    if not a.infers_storage:
        return ("default",) * len(a.arguments) + states
    return a.infer_storage_backward(stypes, a.infer_storage(stypes))[1] + states


SPARSE = SparseRule(
    _storage,
    run,
    grad_storage=_grad_storage,
    recorded=_run,
    variable_storage=lambda a, stypes: a.required_storage(stypes)[0],
)
"""Sparse rule of `Custom`: the user-defined class defines the storage types."""


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
