"""Recording one call of an operator: what goes in, what comes out, and the states that backward writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..context import Context
from ..ops.sparse import SparseCall, leaf_of, rule_of
from ..ops.spec import Env
from . import tape
from .handle import Handle, Out, array_of
from .input_checks import targets_of
from .op_dispatch import PreparedOp

Tensors = Sequence[torch.Tensor | None]


def is_wanted(arrays: Sequence[Handle], out: Out) -> bool:
    """Say whether an input is in a graph, after checking that `out` may be written."""
    if out is not None:
        for target in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(target, Handle):
                tape.check_writable(target, arrays)
    found = False
    for array in arrays:
        trace = array.trace
        found = found or (trace is not None and trace[1].live)
    return found


def has_copies(arrays: Sequence[Handle], tensors: Sequence[torch.Tensor]) -> bool:
    """Say whether a gradient flows through float64 copies of integers (see `tape.Variable`)."""
    return tape.TapeVariable.any_copies and any(
        array.stype == "default" and tensor.dtype is not array.raw.dtype
        for array, tensor in zip(arrays, tensors, strict=True)
    )


def states_of(
    plan: PreparedOp, arrays: Sequence[Handle], values: Tensors, again: Callable[[], Tensors]
) -> tape.States | None:
    """Return the auxiliary states that backward has to write; None if a call leaves them as they are.

    Args:
        values: the new values that the call returned after its outputs, None for what stays.
    """
    chosen = {i: position for i, position in plan.states if values[i] is not None}
    if not chosen:
        return None

    def taken(news: Tensors) -> list[torch.Tensor]:
        return [news[i].detach() for i in chosen]  # type: ignore[union-attr]  # those that are None are left out

    states = tuple(arrays[position] for position in chosen.values())
    versions = tuple(state.raw._version for state in states)
    return tape.States(states, taken(values), versions, lambda: taken(again()))


def arrays_of(
    plan: PreparedOp, results: list[torch.Tensor], node: tape.TapeNode, ctx: Context, out: Out
) -> Any:
    """Return traced results as arrays, or write them to `out`.

    Args:
        out: arrays to write to, or None.
    """
    if out is not None:
        targets = targets_of(plan, results, out)
        tape.attach(targets, [tape.copy_into(r, t) for r, t in zip(results, targets, strict=True)], node)
        return out
    make = Handle.result_type
    if plan.visible == 1:
        made = make(results[0].data, ctx)
        made.trace = results[0], node
        return made
    arrays = [make(r.data, ctx) for r in results]
    tape.attach(arrays, results, node)
    return arrays


def by_rule(plan: PreparedOp, env: Env, arrays: Sequence[Handle]) -> Any:
    """Run an operator on what sparse arrays store, and record it.

    Returns:
        The resulting array, or a list of several; None if the operator has no rule for these inputs that can be
        differentiated, or none of them is sparse.
    """
    kinds = tuple(array.stype for array in arrays)
    if not plan.alone and set(kinds) <= {"default"}:
        return None
    rule = rule_of(plan.op, kinds)
    if rule is None or not rule.differentiates:
        return None
    stypes = rule.storage(plan.a, kinds)
    if stypes is None:
        return None
    values, nodes = tape.values_of(arrays)
    takes_rows = [
        kind != "default" or (isinstance(n, tape.TapeVariable) and n.grad.stype == "row_sparse")
        for kind, n in zip(kinds, nodes, strict=True)
    ]
    with torch.enable_grad():
        found = SparseCall(plan.op, rule, stypes, takes_rows)(plan.a, env, *values)
    results = found if isinstance(found, tuple) else (found,)
    made = [array_of(result.data, arrays[0].context) for result in results]
    traced = [leaf_of(result) for result in results]
    tape.attach(made, traced, tape.TapeNode(plan, nodes))
    return made[0] if len(made) == 1 else made
