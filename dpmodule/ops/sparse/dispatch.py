"""What an operator does with sparse values: which storage comes out, how, and which storage gradients have.

A `SparseCall` runs an operator by its rule, recorded for autograd where a gradient is wanted.
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
    "Embedding": lambda a: bool(a.sparse_grad),
    "_contrib_SparseEmbedding": lambda a: True,
    "cast_storage": lambda a: a.stype != "default",
    "dot": lambda a: a.forward_stype in ("csr", "row_sparse"),
}
"""From the attributes, whether an operator's rule counts even where all inputs are dense; the others' never does."""


@dataclass(frozen=True, slots=True)
class SparseRule:
    """How an operator works on stored parts.

    Attributes:
        storage: ``(a, stypes of the inputs) -> stypes of the outputs``; None where the rule does not apply, so that
            the operator reads dense copies.
        run: ``(a, env, *inputs) -> output or tuple``: inputs and outputs are tensors, `RowSparse` or `Csr`.
        grad: ``(a, env, wanted, grads, *inputs) -> gradients``, one for each input, None for those not in `wanted`
            (a tuple of booleans); tensors, dense or made by `row_gradient`. Without it, dense copies are
            differentiated.
        grad_storage: ``(a, stypes of the inputs) -> stypes`` of the inputs' gradients; None = all dense.
        recorded: ``(a, env, takes_rows, *inputs) -> output or tuple``, replaces `run` and `grad` if gradients are
            recorded: inputs and outputs carry autograd history; see `SparseCall` for `takes_rows`.
        variable_storage: ``(a, stypes of the inputs) -> stypes`` of variables among the inputs that declare none;
            None = dense.
        check: ``(a, number of axes)`` of the first input: raises OpError if the rule does not apply after all; None =
            it always does.
    """

    storage: Callable[[Any, Stypes], Stypes | None]
    run: Callable[..., Any]
    grad: Callable[..., Sequence[Any]] | None = None
    grad_storage: Callable[[Any, Stypes], Stypes] | None = None
    recorded: Callable[..., Any] | None = None
    variable_storage: Callable[[Any, Stypes], Stypes] | None = None
    check: Callable[[Any, int], None] | None = None

    @property
    def differentiates(self) -> bool:
        """Whether gradients are worked out on stored parts, too."""
        return self.grad is not None or self.recorded is not None


# what many rules have in common


def only(*kinds: str, to: str) -> Callable[[Any, Stypes], Stypes | None]:
    """Return the `storage` of a rule that makes one kind of value of inputs stored in one way."""
    return lambda a, stypes: (to,) if stypes == kinds else None


def as_first(a: Any, stypes: Stypes) -> Stypes | None:
    """Return the `storage` of a rule whose output is stored as its first input is."""
    return stypes[:1] if stypes[0] != "default" else None


def unchanged(a: Any, stypes: Stypes) -> Stypes:
    """Return the `grad_storage` of a rule whose gradients are stored as the inputs are."""
    return stypes


def pass_gradient(a: Any, env: Env, wanted: Sequence[bool], grads: Sequence[Any], *inputs: Any) -> list[Any]:
    """Return the `grad` of a rule whose output has the gradient that each of its inputs has."""
    return [grads[0]] * len(inputs)


def differentiated_by_torch(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule's `run` as its `recorded`, too: torch differentiates what it does."""
    return lambda a, env, takes_rows, *inputs: run(a, env, *inputs)


_sparse_rules: dict[str, SparseRule] = {}
_ragged_rules: dict[str, SparseRule] = {}
_ragged_rule_finders: list[Callable[[Op], SparseRule | None]] = []


def add_rule(
    names: str | Sequence[str], rule: SparseRule, alone: Callable[[Any], bool] | None = None
) -> None:
    """Enter a rule for operators by name.

    Args:
        alone: tells from the attributes whether the rule counts even where all inputs are dense; None = never, unless
            the table here says otherwise.
    """
    for name in names.split() if isinstance(names, str) else names:
        _sparse_rules[name] = rule
        if alone is not None:
            _DENSE_RULES[name] = alone


def add_ragged_rule(name: str, rule: SparseRule, alone: Callable[[Any], bool] | None = None) -> None:
    """Enter what an operator does where one of its inputs is ragged, if that is not to run on the values.

    Args:
        rule: what it does; a storage of None means that it does not take these inputs.
        alone: as for `add_rule`; the rule then counts where no input is ragged, too.
    """
    _ragged_rules[name] = rule
    if alone is not None:
        add_rule(name, rule, alone)


def add_ragged_rule_finder(find: Callable[[Op], SparseRule | None]) -> None:
    """Let a function give the rules for ragged inputs of operators for which none was entered.

    Args:
        find: returns None for an operator that takes no ragged inputs.
    """
    _ragged_rule_finders.append(find)


def rule_of(op: Op, stypes: Stypes = ()) -> SparseRule | None:
    """Return an operator's rule, None if it reads dense values.

    Args:
        stypes: storage types of its inputs; operators on ragged values have rules of their own.
    """
    _import_rules()
    if "ragged" not in stypes:
        return _sparse_rules.get(op.name)
    rule = _ragged_rules.get(op.name)
    others = _ragged_rule_finders if rule is None else ()
    rule = next(filter(None, (find(op) for find in others)), rule)
    if rule is None:
        raise OpError(
            f"{op.name} takes no ragged input, its inputs are stored as {', '.join(stypes)}; make a dense value of "
            "the ragged one first, as sequence_pool does"
        )
    return rule


def has_dense_rule(op: Op, a: Any) -> bool:
    """Return True if an operator has to do with sparse arrays even where its inputs are dense."""
    test = _DENSE_RULES.get(op.name)
    return test is not None and test(a)


@cache
def _import_rules() -> None:
    """Import the modules that enter rules, which most programs do without."""
    for module in ("ragged_rowwise", "elementwise", "lookup", "matrix", "recurrent", "sequences"):
        import_module(f".{module}", __package__)


def log_fallback(name: str, kinds: Stypes) -> None:
    """Log, once for each case, that an operator works on dense copies of sparse arrays.

    The environment variable ``MXNET_STORAGE_FALLBACK_LOG_VERBOSE=0`` keeps that quiet, as in MXNet.
    """
    if set(kinds) <= {"default"} or (name, kinds) in _logged_fallbacks:
        return
    _logged_fallbacks.add((name, kinds))
    if os.environ.get("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "1") != "0":
        logging.getLogger("dpmodule.sparse").warning(
            "%s has no sparse form for inputs stored as %s; it works on dense copies, which take more memory and time",
            name,
            ", ".join(kinds),
        )


# running an operator by its rule

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
    found: Sparse = as_rows(plain) if stype == "row_sparse" else Csr.of_dense(plain)
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
        return (*(None,) * 5, *map(fit_gradient, found, ctx.call.takes_rows, wanted))


def fit_gradient(grad: Any, takes_rows: bool, wanted: bool) -> Any:
    """Return a gradient as what it goes to can take it.

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
        results = list(map(attach_gradient, made, tensors))
        return results[0] if len(results) == 1 else tuple(results)

    def _dense(self, a: Any, env: Env, inputs: Sequence[Any]) -> Any:
        """Run on dense copies, which torch differentiates."""
        found = self.op.run(a, env, *map(densify, inputs))
        if not isinstance(found, tuple):
            return stored_as(found, self.stypes[0])
        return tuple(stored_as(one, stype) for one, stype in zip(found, self.stypes, strict=False))


def attach_gradient(result: Any, tensor: Tensor) -> Any:
    """Return what an operator made, its gradient flowing through a tensor that torch's engine gave back for it."""
    if isinstance(result, Sparse):
        result.anchor = tensor
        return result
    return tensor
