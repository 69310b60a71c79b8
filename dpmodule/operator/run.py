"""Running a user's operator on tensors, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import mode
from ..context import Context
from ..ndarray import NDArray
from ..ops.dtypes import name_of, torch_dtype
from ..ops.exposure import expose
from ..ops.spec import Env
from ..ops.user_code import user_code
from .prop_call import Made, PropCall

__all__ = ["run"]

Tensor = torch.Tensor


def run(a: PropCall, env: Env, *tensors: Tensor) -> Any:
    """Call a user's operator.

    Its states are written where they lie, in forward and in backward, as in MXNet.

    Args:
        a: the property object.
        env: context, mode, and what is kept of the operator between calls.
        tensors: arguments, then auxiliary states.

    Raises:
        OpError: a method of the property object returned something wrong. What users' code raises comes through.
    """
    ctx = env.context or _context_of(env.device)
    job = _Job(a, ctx, env.is_train, _operator(a, env, ctx, tensors), tensors[len(a.arguments) :])
    arguments = tensors[: len(a.arguments)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in arguments):
        outputs = _Recorded.apply(job, *arguments)  # type: ignore[no-untyped-call]
    else:
        outputs = job.forward(arguments)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _context_of(device: torch.device) -> Context:
    return Context("gpu", device.index or 0) if device.type == "cuda" else Context("cpu", 0)


def _operator(a: PropCall, env: Env, ctx: Context, tensors: Sequence[Tensor]) -> Made:
    """Return the operator for these inputs: the one made before in this place, or a new one."""
    shapes = tuple(tuple(t.shape) for t in tensors)
    dtypes = tuple(name_of(t.dtype) for t in tensors)
    key = repr(a), shapes, dtypes
    if env.memo is None:
        return a.create(ctx, shapes, dtypes)
    found: Made | None = env.memo.get(key)
    if found is None:
        found = env.memo[key] = a.create(ctx, shapes, dtypes)
    return found


class _Job:
    """One call of an operator, with what forward leaves for backward.

    Args:
        a: the property object.
        ctx: where it runs.
        is_train: training mode.
        made: the operator.
        states: auxiliary states.
    """

    def __init__(
        self, a: PropCall, ctx: Context, is_train: bool, made: Made, states: Sequence[Tensor]
    ) -> None:
        self._a, self._ctx, self._is_train, self._made = a, ctx, is_train, made
        self._states = self._arrays(states)
        self._inputs: list[NDArray] = []
        self._outputs: list[NDArray] = []

    def _arrays(self, tensors: Sequence[Tensor]) -> list[NDArray]:
        """Wrap tensors for users' code; `data` has no history and a count of writes of its own."""
        for tensor in tensors:
            expose(tensor)
        return [NDArray(t.data, self._ctx, pinned=True) for t in tensors]

    def forward(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs."""
        device = self._ctx.torch_device if not arguments else arguments[0].device
        outputs = [
            torch.zeros(shape, dtype=torch_dtype(dtype), device=device)
            for shape, dtype in zip(self._made.shapes, self._made.dtypes)
        ]
        self._inputs, self._outputs = self._arrays(arguments), self._arrays(outputs)
        with torch.no_grad(), mode.scope(recording=False, training=self._is_train), self._ctx, user_code():
            self._made.op.forward(
                is_train=self._is_train,
                req=["write"] * len(outputs),
                in_data=list(self._inputs),
                out_data=list(self._outputs),
                aux=list(self._states),
            )
        return outputs

    def backward(self, grads: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
        """Return the gradients of the arguments, None for those that nobody wants."""
        made = [
            torch.zeros_like(x.tensor) if is_wanted else torch.empty_like(x.tensor)
            for x, is_wanted in zip(self._inputs, wanted)
        ]
        with torch.no_grad(), mode.scope(recording=False, training=self._is_train), self._ctx, user_code():
            self._made.op.backward(
                req=["write" if is_wanted else "null" for is_wanted in wanted],
                out_grad=self._arrays([g.contiguous() for g in grads]),
                in_data=list(self._inputs),
                out_data=list(self._outputs),
                in_grad=self._arrays(made),
                aux=list(self._states),
            )
        return [grad if is_wanted else None for grad, is_wanted in zip(made, wanted)]


class _Recorded(torch.autograd.Function):
    """A call that torch's engine differentiates by calling the user's backward."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *arguments: Tensor) -> tuple[Tensor, ...]:
        ctx.job = job
        outputs = job.forward(arguments)
        ctx.like = [(o.shape, o.dtype, o.device) for o in outputs]
        ctx.mark_non_differentiable(*(o for o in outputs if not o.is_floating_point()))
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
            for grad, (shape, dtype, device) in zip(grads, ctx.like)
        ]
        return None, *ctx.job.backward(given, ctx.needs_input_grad[1:])
