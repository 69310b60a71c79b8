"""Contexts as users give them, made into the ones that modules and executor groups run on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...base import ArgumentError
from ...context import Context, context_of, cpu

if TYPE_CHECKING:
    from ..types import ContextsLike, GroupContextsLike


def contexts_of(context: ContextsLike) -> list[Context]:
    """Return one context or several as a list.

    Args:
        context: a Context or torch device, several of them, or None for ``cpu(0)``.
    """
    if context is None:
        return [cpu()]
    found: list[Any] = list(context) if isinstance(context, Iterable) else [context]
    if not found or not all(isinstance(each, (Context, torch.device)) for each in found):
        raise ArgumentError(
            f"context is {context!r}, expected a Context or a list such as [mx.cpu(0), mx.cpu(1)]"
        )
    return [context_of(each) for each in found]


def distinct(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts with CPU contexts that are named again replaced by ones of other numbers.

    Each CPU context has a thread and random numbers of its own. A GPU named twice runs one executor after the other.
    """
    found: list[Context] = []
    for ctx in contexts:
        if ctx in found and ctx.device_type == "cpu":
            taken = {*contexts, *found}
            ctx = next(each for each in map(cpu, range(len(taken) + 1)) if each not in taken)
        found.append(ctx)
    return found


def per_context(group2ctxs: GroupContextsLike, count: int) -> list[dict[str, Context]]:
    """Return the contexts of groups for each context of a data-parallel group."""
    if not group2ctxs:
        return [{}] * count
    if isinstance(group2ctxs, Mapping):
        lists: dict[str, list[Any]] = {
            k: list(v) if isinstance(v, (list, tuple)) else [v] for k, v in group2ctxs.items()
        }
        lists = {k: v * count if len(v) == 1 else v for k, v in lists.items()}
        wrong = [k for k, v in lists.items() if len(v) != count]
        if wrong:
            raise ArgumentError(
                f"group2ctxs: {', '.join(wrong)} has not one context for each of {count} contexts"
            )
        return [{k: v[i] for k, v in lists.items()} for i in range(count)]
    if len(group2ctxs) != count:
        raise ArgumentError(f"group2ctxs has {len(group2ctxs)} entries for {count} contexts")
    return [dict(each or {}) for each in group2ctxs]
