"""What an operator does with sparse values: which storage comes out, how, and which storage gradients have."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from ...base import OpError
from ..spec import Op

Stypes = tuple[str, ...]
_noted: set[tuple[str, Stypes]] = set()
_ALONE: dict[str, Callable[[Any], bool]] = {
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
        run: ``(a, env, *inputs) -> output or tuple``: inputs and outputs are tensors, `Rows` or `Csr`.
        grad: ``(a, env, wanted, grads, *inputs) -> gradients``, one for each input, None for those not in `wanted`
            (a tuple of booleans); tensors, dense or made by `row_gradient`. Without it, dense copies are
            differentiated.
        grad_storage: ``(a, stypes of the inputs) -> stypes`` of the inputs' gradients; None = all dense.
        recorded: ``(a, env, takes_rows, *inputs) -> output or tuple``, in place of `run` and `grad` where gradients are
            wanted: inputs come and outputs go with their history; see `SparseCall` for `takes_rows`.
        wanted: ``(a, stypes of the inputs) -> stypes`` that variables among the inputs get if they declare none; None =
            none.
        check: ``(a, number of axes)`` of the first input: raises OpError if the rule does not apply after all; None =
            it always does.
    """

    storage: Callable[[Any, Stypes], Stypes | None]
    run: Callable[..., Any]
    grad: Callable[..., Sequence[Any]] | None = None
    grad_storage: Callable[[Any, Stypes], Stypes] | None = None
    recorded: Callable[..., Any] | None = None
    wanted: Callable[[Any, Stypes], Stypes] | None = None
    check: Callable[[Any, int], None] | None = None

    @property
    def differentiates(self) -> bool:
        """Whether gradients are worked out on stored parts, too."""
        return self.grad is not None or self.recorded is not None


_rules: dict[str, SparseRule] = {}
_ragged_rules: dict[str, SparseRule] = {}
_for_other_ragged: list[Callable[[Op], SparseRule | None]] = []


def add_rule(
    names: str | Sequence[str], rule: SparseRule, alone: Callable[[Any], bool] | None = None
) -> None:
    """Enter a rule for operators by name.

    Args:
        alone: tells from the attributes whether the rule counts even where all inputs are dense; None = never, unless
            the table here says otherwise.
    """
    for name in names.split() if isinstance(names, str) else names:
        _rules[name] = rule
        if alone is not None:
            _ALONE[name] = alone


def add_ragged_rule(name: str, rule: SparseRule, alone: Callable[[Any], bool] | None = None) -> None:
    """Enter what an operator does where one of its inputs is ragged, if that is not to run on the values.

    Args:
        rule: what it does; a storage of None means that it does not take these inputs.
        alone: as for `add_rule`; the rule then counts where no input is ragged, too.
    """
    _ragged_rules[name] = rule
    if alone is not None:
        add_rule(name, rule, alone)


def find_ragged_rules_by(find: Callable[[Op], SparseRule | None]) -> None:
    """Let a function give the rules for ragged inputs of operators for which none was entered.

    Args:
        find: returns None for an operator that takes no ragged inputs.
    """
    _for_other_ragged.append(find)


def rule_of(op: Op, stypes: Stypes = ()) -> SparseRule | None:
    """Return an operator's rule, None if it reads dense values.

    Args:
        stypes: storage types of its inputs; operators on ragged values have rules of their own.
    """
    _import_rules()
    if "ragged" not in stypes:
        return _rules.get(op.name)
    rule = _ragged_rules.get(op.name)
    others = _for_other_ragged if rule is None else ()
    rule = next(filter(None, (find(op) for find in others)), rule)
    if rule is None:
        raise OpError(
            f"{op.name} takes no ragged input, its inputs are stored as {', '.join(stypes)}; make a dense value of "
            "the ragged one first, as sequence_pool does"
        )
    return rule


def counts_alone(op: Op, a: Any) -> bool:
    """Say whether an operator has to do with sparse arrays even where its inputs are dense."""
    test = _ALONE.get(op.name)
    return test is not None and test(a)


@cache
def _import_rules() -> None:
    """Import the modules that enter rules, which most programs do without."""
    for module in (
        "by_values",
        "elementwise",
        "graph",
        "lookup",
        "matrix",
        "recurrent",
        "scatter",
        "sequences",
        "storage",
    ):
        import_module(f".{module}", __package__)


def note_fallback(name: str, kinds: Stypes) -> None:
    """Log, once for each case, that an operator works on dense copies of sparse arrays.

    The environment variable ``MXNET_STORAGE_FALLBACK_LOG_VERBOSE=0`` keeps that quiet, as in MXNet.
    """
    if set(kinds) <= {"default"} or (name, kinds) in _noted:
        return
    _noted.add((name, kinds))
    if os.environ.get("MXNET_STORAGE_FALLBACK_LOG_VERBOSE", "1") != "0":
        logging.getLogger("dpmodule.sparse").warning(
            "%s has no sparse form for inputs stored as %s; it works on dense copies, which take more memory and time",
            name,
            ", ".join(kinds),
        )
