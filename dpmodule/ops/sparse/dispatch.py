"""Sparse rules of operators: storage of outputs and gradients, and computation on stored parts.

A `SparseCall` runs an operator by its rule, and records it for autograd if needed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import repeat
from operator import attrgetter, is_, methodcaller
from typing import Any

import torch

from ...base import OpError
from ..spec import Env, Op
from .gradients import as_rows, row_gradient
from .storage import Csr, RowSparse, Sparse, anchor_for, leaf_of

Tensor = torch.Tensor
Stypes = tuple[str, ...]
_logged_fallbacks: set[tuple[str, Stypes]] = set()
_DENSE_RULES: dict[str, Callable[[Any], bool]] = {
    "Embedding": lambda a: bool(a.sparse_grad or a.hash_rows),
    "_contrib_SparseEmbedding": lambda a: True,
    "cast_storage": lambda a: a.stype != "default",
    "dot": lambda a: a.forward_stype in ("csr", "row_sparse"),
}
"""Functions of the attributes: True if an operator's rule applies although all inputs are dense."""


@dataclass(frozen=True, slots=True)
class SparseRule:
    """Computation of an operator on stored parts.

    Attributes:
        storage: ``(a, stypes of the inputs) -> stypes of the outputs``; None if the rule does not apply and
            the operator reads dense copies.
        run: ``(a, env, *inputs) -> output or tuple``: inputs and outputs are tensors, `RowSparse` or `Csr`.
        grad: ``(a, env, wanted, grads, *inputs) -> gradients``, one per input, None if not in `wanted` (a tuple of
            booleans); dense tensors or results of `row_gradient`. Without it, dense copies are differentiated.
        grad_storage: ``(a, stypes of the inputs) -> stypes`` of the inputs' gradients; None = all dense.
        recorded: ``(a, env, takes_rows, *inputs) -> output or tuple``, replaces `run` and `grad` if gradients are
            recorded: inputs and outputs carry autograd history; see `SparseCall` for `takes_rows`.
        variable_storage: ``(a, stypes of the inputs) -> stypes`` of variables among the inputs that declare none;
            None = dense.
        check: ``(a, number of axes)`` of the first input: raises OpError if the rule does not apply; None = no check.
    """

    storage: Callable[[Any, Stypes], Stypes | None]
    run: Callable[..., Any]
    grad: Callable[..., Sequence[Any]] | None = None
    grad_storage: Callable[[Any, Stypes], Stypes] | None = None
    recorded: Callable[..., Any] | None = None
    variable_storage: Callable[[Any, Stypes], Stypes] | None = None
    check: Callable[[Any, int], None] | None = None


# common parts of rules


def only(*kinds: str, to: str) -> Callable[[Any, Stypes], Stypes | None]:
    """Return a `storage` function: output type `to` for inputs of the types `kinds`."""
    return lambda a, stypes: (to,) if stypes == kinds else None


def as_first(a: Any, stypes: Stypes) -> Stypes | None:
    """`storage` function: the output is stored like the first input."""
    return stypes[:1] if stypes[0] != "default" else None


def unchanged(a: Any, stypes: Stypes) -> Stypes:
    """`grad_storage` function: gradients are stored like the inputs."""
    return stypes


def pass_gradient(a: Any, env: Env, wanted: Sequence[bool], grads: Sequence[Any], *inputs: Any) -> list[Any]:
    """`grad` function: each input has the gradient of the output."""
    return [grads[0]] * len(inputs)


def differentiated_by_torch(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `recorded` function that calls `run`, which torch differentiates."""
    return lambda a, env, takes_rows, *inputs: run(a, env, *inputs)


_sparse_rules: dict[str, SparseRule] = {}
_ragged_rules: dict[str, SparseRule] = {}
_ragged_rule_finders: list[Callable[[Op], SparseRule | None]] = []


def add_rule(
    names: str | Sequence[str], rule: SparseRule, alone: Callable[[Any], bool] | None = None
) -> None:
    """Register a rule for operators by name.

    Args:
        alone: function of the attributes, True if the rule applies although all inputs are dense; None = the default.
    """
    for name in names.split() if isinstance(names, str) else names:
        _sparse_rules[name] = rule
        if alone is not None:
            _DENSE_RULES[name] = alone


def add_ragged_rule(name: str, rule: SparseRule, alone: Callable[[Any], bool] | None = None) -> None:
    """Register a rule for ragged inputs of an operator that is not row-wise.

    Args:
        rule: the rule; a storage of None means that the inputs are not supported.
        alone: as for `add_rule`; the rule then also applies without ragged inputs.
    """
    _ragged_rules[name] = rule
    if alone is not None:
        add_rule(name, rule, alone)


def add_ragged_rule_finder(find: Callable[[Op], SparseRule | None]) -> None:
    """Register a function that finds rules for ragged inputs of operators without a registered rule.

    Args:
        find: returns None for an operator that does not support ragged inputs.
    """
    _ragged_rule_finders.append(find)


def rule_of(op: Op, stypes: Stypes = ()) -> SparseRule | None:
    """Return an operator's rule, or None if it reads dense values.

    Args:
        stypes: storage types of its inputs; ragged inputs have separate rules.
    """
    _import_rules()
    if "ragged" not in stypes:
        return _sparse_rules.get(op.name)
    rule = _ragged_rules.get(op.name)
    others = _ragged_rule_finders if rule is None else ()
    rule = next(filter(None, (find(op) for find in others)), rule)
    if rule is None:
        raise OpError(
            f"{op.name} takes no ragged input, but its inputs are stored as {', '.join(stypes)}; convert the ragged "
            "value to a dense one first, as sequence_pool does"
        )
    return rule


def has_dense_rule(op: Op, a: Any) -> bool:
    """Return True if an operator's sparse rule applies although its inputs are dense."""
    test = _DENSE_RULES.get(op.name)
    return test is not None and test(a)


@cache
def _import_rules() -> None:
    """Import the modules that register rules, which most programs do not need."""
    for module in ("ragged_rowwise", "elementwise", "lookup", "matrix", "recurrent", "sequences"):
        import_module(f".{module}", __package__)


def log_fallback(name: str, kinds: Stypes) -> None:
    """Log, once per case, that an operator uses dense copies of sparse arrays.

    The environment variable ``MXNET_STORAGE_FALLBACK_LOG_VERBOSE=0`` disables it, as in MXNet.
    """
    if set(kinds) <= {"default"} or (name, kinds) in _logged_fallbacks:
        return
    _logged_fallbacks.add((name, kinds))
    if os.environ.get("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "1") != "0":
        logging.getLogger("dpmodule.sparse").warning(
            "%s has no sparse implementation for inputs stored as %s; it uses dense copies, which need more memory "
            "and time",
            name,
            ", ".join(kinds),
        )


# calls of operators by their rules

_RECORDS, _DETACHED = attrgetter("requires_grad"), methodcaller("detach")


class _Densify(torch.autograd.Function):
    """Conversion of a record to a dense tensor; the gradient goes to its anchor."""

    @staticmethod
    def forward(ctx: Any, record: Sparse, anchor: Tensor) -> Tensor:
        dense = record.dense()
        return dense.clone() if dense is record.values else dense

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return None, grads[0]


class _Anchored(torch.autograd.Function):
    """Anchor of a record converted from a dense tensor, to which the gradient goes as a dense one."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return anchor_for(tensor.shape, tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].to_dense() if grads[0].is_sparse else grads[0]


def densify(value: Any) -> Tensor:
    """Return a value as a dense tensor, with its autograd history."""
    if not isinstance(value, Sparse):
        tensor: Tensor = value
        return tensor
    if torch.is_grad_enabled() and value.requires_grad:
        dense: Tensor = _Densify.apply(value.detach(), value.anchor)  # type: ignore[no-untyped-call]
        return dense
    return value.dense()


def stored_as(value: Any, stype: str) -> Any:
    """Convert a value to a storage type, with its autograd history; sparse types are converted via dense."""
    have = value.stype if isinstance(value, Sparse) else "default"
    if have == stype:
        return value
    dense = densify(value)
    if stype == "default":
        return dense
    plain = dense.detach()
    converted: Sparse = as_rows(plain) if stype == "row_sparse" else Csr.of_dense(plain)
    if torch.is_grad_enabled() and dense.requires_grad:
        converted.anchor = _Anchored.apply(dense)  # type: ignore[no-untyped-call]
    return converted


class _RuleCall(torch.autograd.Function):
    """Call of a rule with its own gradient."""

    @staticmethod
    def forward(
        ctx: Any, call: SparseCall, a: Any, env: Env, outputs_list: list[Any], inputs: Any, *leaves: Tensor
    ) -> Any:
        outputs = call.rule.run(a, env, *inputs)
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        outputs_list.extend(results)
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
        gradients = ctx.call.rule.grad(ctx.a, ctx.env, wanted, grads, *ctx.inputs)
        return (*(None,) * 5, *map(fit_gradient, gradients, ctx.call.takes_rows, wanted))


def fit_gradient(grad: Any, takes_rows: bool, wanted: bool) -> Any:
    """Convert a gradient to a form that its target supports.

    Args:
        grad: a tensor, a record, or None.
    """
    if not wanted or grad is None:
        return None
    if isinstance(grad, RowSparse):
        grad = row_gradient(grad.rows, grad.values, grad.shape)
    elif isinstance(grad, Sparse):
        grad = grad.dense()
    return grad if takes_rows or not grad.is_sparse else grad.to_dense()


class SparseCall:
    """Operator that runs by its sparse rule, callable like an operator's `run`.

    Args:
        takes_rows: for each input, True if its gradient may be row-sparse: variables and sparse values support it,
            dense results of other operators do not.
    """

    def __init__(self, op: Op, rule: SparseRule, stypes: Sequence[str], takes_rows: Sequence[bool]) -> None:
        self.op, self.rule, self.stypes = op, rule, tuple(stypes)
        self.takes_rows = tuple(takes_rows)

    def __call__(self, a: Any, env: Env, *inputs: Any) -> Any:
        """Run on tensors and records, recording gradients if enabled."""
        if not (torch.is_grad_enabled() and any(map(_RECORDS, inputs))):
            return self.rule.run(a, env, *inputs)
        if self.rule.recorded is not None:
            return self.rule.recorded(a, env, self.takes_rows, *inputs)
        if self.rule.grad is None:
            return self._dense(a, env, inputs)
        outputs: list[Any] = []
        plain = list(map(_DETACHED, inputs))
        tensors = _RuleCall.apply(self, a, env, outputs, plain, *map(leaf_of, inputs))  # type: ignore[no-untyped-call]
        results = list(map(attach_gradient, outputs, tensors))
        return results[0] if len(results) == 1 else tuple(results)

    def _dense(self, a: Any, env: Env, inputs: Sequence[Any]) -> Any:
        """Run on dense copies, which torch differentiates."""
        outputs = self.op.run(a, env, *map(densify, inputs))
        if not isinstance(outputs, tuple):
            return stored_as(outputs, self.stypes[0])
        return tuple(stored_as(output, stype) for output, stype in zip(outputs, self.stypes, strict=False))


def attach_gradient(result: Any, tensor: Tensor) -> Any:
    """Return an operator's result, attached to the tensor that autograd returned for it."""
    if isinstance(result, Sparse):
        result.anchor = tensor
        return result
    return tensor
