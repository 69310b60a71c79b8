"""Running an operator by its sparse rule, recorded for autograd where a gradient is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter, is_, methodcaller
from typing import Any

import torch

from ..spec import Env, Op
from .records import Csr, Rows, Sparse, anchor_for, as_rows, leaf_of, row_gradient
from .rule import SparseRule

Tensor = torch.Tensor
_RECORDS, _DETACHED = attrgetter("requires_grad"), methodcaller("detach")


class _Densify(torch.autograd.Function):
    """A record's elements as a dense tensor; the gradient goes to its anchor."""

    @staticmethod
    def forward(ctx: Any, record: Sparse, anchor: Tensor) -> Tensor:
        found = record.dense()
        return found.clone() if found is record.values else found

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return None, grads[0]


class _Anchored(torch.autograd.Function):
    """The anchor of a record made of a dense tensor; the gradient goes to that tensor, which may not take rows."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return anchor_for(tensor.shape, tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to_dense() if grads[0].is_sparse else grads[0]


def densify(value: Any) -> Tensor:
    """Return a value as a dense tensor, with its history."""
    if not isinstance(value, Sparse):
        tensor: Tensor = value
        return tensor
    if torch.is_grad_enabled() and value.requires_grad:
        dense: Tensor = _Densify.apply(value.detach(), value.anchor)  # type: ignore[no-untyped-call]
        return dense
    return value.dense()


def stored_as(value: Any, stype: str) -> Any:
    """Return a value in a storage type, with its history; one sparse type becomes the other by way of dense."""
    have = value.stype if isinstance(value, Sparse) else "default"
    if have == stype:
        return value
    dense = densify(value)
    if stype == "default":
        return dense
    plain = dense.detach()
    found: Sparse
    if stype == "row_sparse":
        found = as_rows(plain)
    else:
        rows, columns = plain.ne(0).nonzero(as_tuple=True)
        found = Csr.from_places(rows, columns, plain[rows, columns], plain.shape)
    if torch.is_grad_enabled() and dense.requires_grad:
        found.anchor = _Anchored.apply(dense)  # type: ignore[no-untyped-call]
    return found


class _RuleCall(torch.autograd.Function):
    """A rule that gives its own gradient."""

    @staticmethod
    def forward(
        ctx: Any, call: SparseCall, a: Any, env: Env, made: list[Any], inputs: Any, *leaves: Tensor
    ) -> Any:
        found = call.rule.run(a, env, *inputs)
        results = found if isinstance(found, tuple) else (found,)
        made.extend(results)
        ctx.call, ctx.a, ctx.env, ctx.inputs = call, a, env, inputs
        ctx.set_materialize_grads(False)
        tensors, fixed = [], []
        for result in results:
            tensor = anchor_for(result.shape, result.values) if isinstance(result, Sparse) else result
            tensors.append(tensor)
            if not tensor.is_floating_point():
                fixed.append(tensor)
        ctx.mark_non_differentiable(*fixed)
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        wanted = tuple(ctx.needs_input_grad[5:])
        if all(map(is_, grads, repeat(None))):
            return (None,) * (5 + len(wanted))
        found = ctx.call.rule.grad(ctx.a, ctx.env, wanted, grads, *ctx.inputs)
        return (*(None,) * 5, *map(fitting, found, ctx.call.takes_rows, wanted))


def fitting(grad: Any, takes_rows: bool, wanted: bool) -> Any:
    """Return a gradient as what it goes to can take it.

    Args:
        grad: a tensor, a record, or None.
    """
    if not wanted or grad is None:
        return None
    if isinstance(grad, Rows):
        grad = row_gradient(grad.rows, grad.values, grad.shape)
    elif isinstance(grad, Sparse):
        grad = grad.dense()
    return grad if takes_rows or not grad.is_sparse else grad.to_dense()


class SparseCall:
    """An operator run by its sparse rule, callable like an operator's `run`.

    Args:
        takes_rows: for each input, whether its gradient may be one of rows: variables and sparse values take them,
            dense values made by other operators do not.
    """

    def __init__(self, op: Op, rule: SparseRule, stypes: Sequence[str], takes_rows: Sequence[bool]) -> None:
        self.op, self.rule, self.stypes = op, rule, tuple(stypes)
        self.takes_rows = tuple(takes_rows)

    def __call__(self, a: Any, env: Env, *inputs: Any) -> Any:
        """Run on tensors and records; what comes out carries history where gradients are recorded."""
        if not (torch.is_grad_enabled() and any(map(_RECORDS, inputs))):
            return self.rule.run(a, env, *inputs)
        if self.rule.recorded is not None:
            return self.rule.recorded(a, env, self.takes_rows, *inputs)
        if self.rule.grad is None:
            return self._dense(a, env, inputs)
        made: list[Any] = []
        plain = list(map(_DETACHED, inputs))
        tensors = _RuleCall.apply(self, a, env, made, plain, *map(leaf_of, inputs))  # type: ignore[no-untyped-call]
        results = list(map(with_history, made, tensors))
        return results[0] if len(results) == 1 else tuple(results)

    def _dense(self, a: Any, env: Env, inputs: Sequence[Any]) -> Any:
        """Run on dense copies, which torch differentiates."""
        found = self.op.run(a, env, *map(densify, inputs))
        if not isinstance(found, tuple):
            return stored_as(found, self.stypes[0])
        return tuple(stored_as(one, stype) for one, stype in zip(found, self.stypes, strict=False))


def with_history(result: Any, tensor: Tensor) -> Any:
    """Return what an operator made, its gradient flowing through a tensor that torch's engine gave back for it."""
    if isinstance(result, Sparse):
        result.anchor = tensor
        return result
    return tensor
