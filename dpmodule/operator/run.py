"""Running user-defined operators on tensors and sparse storage, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._core import mode
from ..context import Context
from ..ndarray import NDArray, sparse
from ..ndarray.handle import Handle
from ..ops.dtypes import name_of, torch_dtype
from ..ops.sparse import (
    Sparse,
    SparseRule,
    anchor_for,
    as_rows,
    attach_gradient,
    fit_gradient,
    leaf_of,
    stored_as,
)
from ..ops.spec import Env
from ..ops.user_code import user_code
from ..ops.write_tracking import expose
from .base import CreatedOperator, PropCall

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
