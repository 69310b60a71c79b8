"""Calling an operator as users do: inputs and attributes by position or name, and where the result goes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from ..attribute import is_free
from ..base import ArgumentError, OpError
from ..context import Context, context_of, current_context
from ..ops.dtypes import name_of
from ..ops.signature import split_call
from ..ops.spec import Op
from .call_cache import Forms, keep
from .execution import execute
from .handle import Handle, Out
from .op_dispatch import plan_for

if TYPE_CHECKING:
    from ..types import ContextLike

_EXTRA = ("name", "out", "ctx")


def as_context(ctx: ContextLike | str | None) -> Context:
    """Return the context meant by `ctx`: a Context, torch device, text such as "cpu(0)", or None (the current one)."""
    if ctx is None:
        return current_context().check()
    if isinstance(ctx, (Context, torch.device)):
        return context_of(ctx).check()
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(\d{1,9})\s*\))?\s*", ctx) if isinstance(ctx, str) else None
    if match is None:
        raise ArgumentError(f'ctx is {ctx!r}, expected a Context such as mx.cpu(0), or text such as "cpu(0)"')
    return Context(match[1], int(match[2] or 0)).check()


def _inputs_of(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Sort arguments into positional inputs, named inputs and attributes."""
    return split_call(op, args, kwargs, lambda value: isinstance(value, Handle))


def _ordered(op: Op, positional: list[Any], named: dict[str, Any], attributes: dict[str, Any]) -> list[Any]:
    """Return the inputs in the operator's order."""
    if op.variadic is not None:
        total = op.variadic.total(op.variadic.units(len(positional) + len(named)))
        a = op.parse(attributes) if op.variadic.fixed is not None else None
        names = [i.name for i in op.wanted(a, total)] if named else []
        return positional + [named[k] for k in sorted(named, key=names.index)]
    while positional and positional[-1] is None:
        positional.pop()
    static = op.inputs if isinstance(op.inputs, tuple) else None
    if (
        static is not None
        and not named
        and len(positional) == len(static)
        and all(i.when is None for i in static)
    ):
        return positional
    wanted = op.wanted(op.parse(attributes))
    names = [i.name for i in static or wanted]
    given = {n: v for n, v in zip(names, positional, strict=False) if v is not None}
    given.update(named)
    found = []
    for each in wanted:
        if each.name not in given:
            need = ", ".join(i.name for i in wanted)
            raise OpError(f"{op.name}: input {each.name!r} is missing; it takes {need}")
        found.append(given.pop(each.name))
    if given or len(positional) > len(names):
        extra = ", ".join(given) or f"number {len(names) + 1}"
        raise OpError(f"{op.name}: input {extra} is given, but does not exist with these attributes")
    return found


def call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], forms: Forms | None = None) -> Any:
    """Run an operator as a user called it: inputs first, then attributes, by position or name.

    Args:
        kwargs: inputs and attributes by name; also `out`, `name` (accepted, unused) and, for operators
            without inputs, `ctx`.
        forms: where to keep what has been found out about the call, for the next one like it.
    """
    out = kwargs.get("out")
    rest = {k: v for k, v in kwargs.items() if k not in _EXTRA}
    positional, named, attributes = _inputs_of(op, args, rest)
    ctx = attributes.pop("ctx", None) if kwargs.get("ctx") is None else kwargs["ctx"]
    if op.read_attrs is None:  # what a symbol would only keep has no effect here
        attributes = {
            k: v for k, v in attributes.items() if k in op.attrs or not (op.takes_any or is_free(k))
        }
    arrays = _ordered(op, positional, named, attributes)
    if not arrays:
        where = _place(ctx, out, attributes, op)
        if "ctx" in op.attrs:
            attributes["ctx"] = str(where)
    elif ctx is not None and not op.takes_any:
        raise OpError(f"{op.name}: ctx is given, but the result goes where the first input is")
    else:
        where = None
    plan = plan_for(op, attributes, len(arrays))
    if forms is not None and arrays:
        keep(forms, op, args, kwargs, plan)
    return execute(plan, arrays, where, out)


def _place(ctx: ContextLike | str | None, out: Out, attributes: dict[str, Any], op: Op) -> Context:
    """Return where an operator without inputs puts its result; shape and type may come from `out`."""
    first = out[0] if isinstance(out, (list, tuple)) and out else out
    if not isinstance(first, Handle):
        return as_context(ctx)
    if "shape" in op.attrs and attributes.get("shape") is None:
        attributes["shape"] = first.shape
    if "dtype" in op.attrs and attributes.get("dtype") is None:
        attributes["dtype"] = name_of(first.raw.dtype)
    return first.context
