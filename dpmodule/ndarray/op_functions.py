"""Functions of arrays generated from operator declarations, and the parsing of their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..attribute import is_free
from ..base import ArgumentError, OpError, did_you_mean
from ..context import Context, context_of, current_context
from ..ops import find, names, namespace_of
from ..ops.dtypes import name_of
from ..ops.registry import docstring, find_operator_name, signature, split_call
from ..ops.registry import names_in as names_in
from ..ops.spec import Op
from .execution import execute
from .handle import Handle, Out
from .op_dispatch import PreparedOp, can_be_key, plan_for

if TYPE_CHECKING:
    from ..types import ContextLike


_EXTRA = ("name", "out", "ctx")
_MOST_PLANS = 512

Forms = dict[tuple[Any, ...], "Form"]
"""Call forms of an operator by the number of positional arguments and the keywords, in order."""

PreparedCall = tuple[PreparedOp, tuple[Any, ...] | list[Any]]


class Form:
    """Parsing of calls with the same number of positional arguments and the same keywords.

    Attributes:
        lead: number of positional arguments that are inputs; the others are attributes.
        plans: by the values and types of the attributes: the plan, and the permutation from the order of the call to
            the operator's order of inputs, None if they agree.
    """

    __slots__ = ("attributes", "inputs", "lead", "plain", "plans")

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.lead = next((i for i, x in enumerate(args) if not isinstance(x, Handle)), len(args))
        rest = [k for k in kwargs if k not in _EXTRA]
        self.inputs = tuple(k for k in rest if isinstance(kwargs[k], Handle))
        self.attributes = tuple(k for k in rest if k not in self.inputs)
        self.plain = len(self.attributes) == len(kwargs)
        self.plans: dict[tuple[Any, ...], tuple[PreparedOp, tuple[int, ...] | None]] = {}

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the attributes of a call."""
        if self.plain:
            return (*args[self.lead :], *kwargs.values())
        return (*args[self.lead :], *[kwargs[k] for k in self.attributes])

    def find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PreparedCall | None:
        """Return the plan and the inputs of a call; None if the call must be parsed."""
        values = self.values(args, kwargs)
        try:
            cached = self.plans.get((values, *map(type, values)))  # types too, as 1 == True == 1.0
        except TypeError:  # a list
            return None
        if cached is None:
            return None
        arrays: tuple[Any, ...] = args[: self.lead]
        if self.inputs:
            arrays = (*arrays, *[kwargs[k] for k in self.inputs])
        for array in arrays:
            if not isinstance(array, Handle):
                return None
        plan, order = cached
        return plan, arrays if order is None else [arrays[i] for i in order]

    def add(self, op: Op, plan: PreparedOp, values: tuple[Any, ...]) -> None:
        """Cache the plan of a call with these values, if they determine it."""
        wanted = [i.name for i in op.active_inputs(plan.a, plan.count)]
        if op.variadic is not None:
            passed = wanted if self.lead == len(wanted) else []
        else:
            declared = [i.name for i in op.inputs] if isinstance(op.inputs, tuple) else wanted
            passed = [*declared[: self.lead], *self.inputs]
        if sorted(passed) != sorted(wanted) or not all(map(can_be_key, values)):
            return
        if len(self.plans) >= _MOST_PLANS:  # a sweep over scalars must not fill the memory
            self.plans.clear()
        order = None if passed == wanted else tuple(map(passed.index, wanted))
        self.plans[(values, *map(type, values))] = plan, order


def keep(forms: Forms, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], plan: PreparedOp) -> None:
    """Cache the plan of a parsed call.

    Args:
        forms: call forms of the operator, to which a new one is added.
    """
    if op.read_attrs is not None or "ctx" in kwargs or not plan.count:
        return
    key = (len(args), *kwargs)
    form = forms.get(key)
    if form is None:
        form = forms[key] = Form(args, kwargs)
    form.add(op, plan, form.values(args, kwargs))


def as_context(ctx: ContextLike | str | None) -> Context:
    """Return the context of `ctx`: a Context, torch device, text such as "cpu(0)", or None (the current one)."""
    if ctx is None:
        return current_context().check()
    if isinstance(ctx, (Context, torch.device)):
        return context_of(ctx).check()
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(\s*(\d{1,9})\s*\))?\s*", ctx) if isinstance(ctx, str) else None
    if match is None:
        raise ArgumentError(f'ctx is {ctx!r}, expected a Context such as mx.cpu(0), or text such as "cpu(0)"')
    return Context(match[1], int(match[2] or 0)).check()


def _ordered(op: Op, positional: list[Any], named: dict[str, Any], attributes: dict[str, Any]) -> list[Any]:
    """Return the inputs in the operator's order."""
    if op.variadic is not None:
        total = op.variadic.total(op.variadic.units(len(positional) + len(named)))
        a = op.parse(attributes) if op.variadic.fixed is not None else None
        names = [i.name for i in op.active_inputs(a, total)] if named else []
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
    wanted = op.active_inputs(op.parse(attributes))
    if not named and len(positional) == len(wanted) and not any(value is None for value in positional):
        return positional
    names = [i.name for i in static or wanted]
    by_name = {n: v for n, v in zip(names, positional, strict=False) if v is not None}
    by_name.update(named)
    ordered = []
    for each in wanted:
        if each.name not in by_name:
            need = ", ".join(i.name for i in wanted)
            raise OpError(f"{op.name}: input {each.name!r} is missing; it takes {need}")
        ordered.append(by_name.pop(each.name))
    if by_name or len(positional) > len(names):
        extra = ", ".join(by_name) or f"number {len(names) + 1}"
        raise OpError(f"{op.name}: input {extra} was passed, but does not exist with these attributes")
    return ordered


def call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], forms: Forms | None = None) -> Any:
    """Run an operator as a user called it: inputs first, then attributes, by position or name.

    Args:
        kwargs: inputs and attributes by name; also `out`, `name` (accepted, unused) and, for operators
            without inputs, `ctx`.
        forms: cache of call forms, to which the call is added.
    """
    out = kwargs.get("out")
    rest = {k: v for k, v in kwargs.items() if k not in _EXTRA}
    positional, named, attributes = split_call(op, args, rest, lambda value: isinstance(value, Handle))
    ctx = attributes.pop("ctx", None) if kwargs.get("ctx") is None else kwargs["ctx"]
    if op.read_attrs is None:  # attributes that a symbol only stores have no effect here
        attributes = {
            k: v for k, v in attributes.items() if k in op.attrs or not (op.accepts_any_keyword or is_free(k))
        }
    arrays = _ordered(op, positional, named, attributes)
    if not arrays:
        where = _place(ctx, out, attributes, op)
        if "ctx" in op.attrs:
            attributes["ctx"] = str(where)
    elif ctx is not None and not op.accepts_any_keyword:
        raise OpError(
            f"{op.name}: ctx was passed, but the result is created in the context of the first input"
        )
    else:
        where = None
    plan = plan_for(op, attributes, len(arrays))
    if forms is not None and arrays:
        keep(forms, op, args, kwargs, plan)
    return execute(plan, arrays, where, out)


def _place(ctx: ContextLike | str | None, out: Out, attributes: dict[str, Any], op: Op) -> Context:
    """Return the result's context of an operator without inputs; shape and type may come from `out`."""
    first = out[0] if isinstance(out, (list, tuple)) and out else out
    if not isinstance(first, Handle):
        return as_context(ctx)
    if "shape" in op.attrs and attributes.get("shape") is None:
        attributes["shape"] = first.shape
    if "dtype" in op.attrs and attributes.get("dtype") is None:
        attributes["dtype"] = name_of(first.raw.dtype)
    return first.context


OpFunction = Callable[..., Any]
_op_functions: dict[str, OpFunction] = {}


def make_op_function(op: Op, name: str) -> OpFunction:
    """Return the function of an operator under one of its names.

    Its arguments are the inputs, then the attributes, by position or name, and the keywords `out` and `name`.
    """
    forms: Forms = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        form = forms.get((len(args), *kwargs))
        found = form.find(args, kwargs) if form is not None else None
        if found is None:
            return call(op, args, kwargs, forms)
        return execute(found[0], found[1], None, kwargs.get("out"))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = docstring(op)
    run.__module__ = "dpmodule.ndarray"
    run.__signature__ = signature(op, ("out", "name"))  # type: ignore[attr-defined]
    return run


def op_function(name: str) -> OpFunction:
    """Return the function of an operator's name or alias; it is created at the first use."""
    function = _op_functions.get(name)
    if function is None:
        op = find(name)
        if op is None:
            raise AttributeError(f"there is no operator {name!r}{did_you_mean(name, names())}")
        function = _op_functions[name] = make_op_function(op, namespace_of(name)[1])
    return function


def op_function_in(space: str, name: str) -> OpFunction:
    """Return a namespace's function by its public name."""
    return op_function(find_operator_name("nd", space, name))
