"""Nested lists of arrays or symbols as flat lists, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .base import ArgumentError

Form: TypeAlias = "int | list[Any]"
"""How leaves lie in a nested list: 0 for one of them, a number for several that belong together, or a list of such."""


def flatten(value: Any, parts: Callable[[Any], Sequence[Any] | None], what: str) -> tuple[list[Any], Form]:
    """Return the leaves of a nested list in order, and a description of how they lie in it.

    Args:
        value: one leaf, or a list or tuple of such, to any depth.
        parts: returns what a leaf counts as, such as the single outputs of a symbol; None for what is no leaf.
    """
    found = parts(value)
    if found is not None:
        return list(found), 0 if len(found) == 1 else len(found)
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(
            f"{what} must be one array or symbol, or a (nested) list of them, got {type(value).__name__} {value!r}"
        )
    flat: list[Any] = []
    form: list[Form] = []
    for each in value:
        leaves, inner = flatten(each, parts, what)
        flat.extend(leaves)
        form.append(inner)
    return flat, form


def regroup(leaves: Sequence[Any], form: Form) -> Any:
    """Return leaves nested as `flatten` found them; tuples have become lists."""
    taken = iter(leaves)

    def build(form: Form) -> Any:
        if isinstance(form, int):
            return next(taken) if form == 0 else [next(taken) for _ in range(form)]
        return [build(each) for each in form]

    return build(form)
