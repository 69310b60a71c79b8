"""What the array and symbol faces of an operator share: argument order, signature and docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..base import OpError
from .spec import REQUIRED, Input, Op, Variadic


def _declared(op: Op) -> tuple[Input, ...]:
    """Return every input an operator may have, for operators whose inputs depend on attributes too."""
    return op.inputs if isinstance(op.inputs, tuple) else ()


Split = tuple[list[Any], dict[str, Any], dict[str, Any]]


def _split_variadic(variadic: Variadic, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Split:
    """Sort the arguments of an operator that takes any number of inputs; they may come as one list too."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    named = {k: v for k, v in kwargs.items() if variadic.is_input(k)}
    names = [i.name for i in variadic.instead]
    named.update({k: v for k, v in kwargs.items() if k in names and not isinstance(v, (list, tuple))})
    for extra in ("data", "args"):
        if isinstance(kwargs.get(extra), (list, tuple)):
            args = (*args, *kwargs[extra])
            kwargs = {k: v for k, v in kwargs.items() if k != extra}
    return list(args), named, {k: v for k, v in kwargs.items() if k not in named}


def _split_by_kind(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], is_input: Callable[[Any], bool]
) -> Split:
    """Sort the arguments of an operator whose inputs depend on its attributes: inputs are known by what they are."""
    leading = next((i for i, x in enumerate(args) if x is not None and not is_input(x)), len(args))
    named = {k: v for k, v in kwargs.items() if is_input(v)}
    attributes = dict(zip(op.attrs, args[leading:], strict=False))
    attributes.update({k: v for k, v in kwargs.items() if k not in named})
    return list(args[:leading]), named, attributes


def split_call(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_input: Callable[[Any], bool] | None = None,
) -> Split:
    """Sort a call's arguments into positional inputs, inputs by name and attributes.

    Args:
        args: inputs in order, then attributes in order, as MXNet accepts; all of them inputs if variadic.
        kwargs: inputs and attributes by name.
        is_input: tells inputs from attributes where the operator's inputs depend on its attributes.

    Returns:
        The positional inputs, the named inputs (values of None left out), the raw attributes.
    """
    if op.variadic is not None:
        return _split_variadic(op.variadic, args, kwargs)
    if callable(op.inputs) and is_input is not None:
        return _split_by_kind(op, args, kwargs, is_input)
    input_names = [i.name for i in _declared(op)]
    positional, rest = list(args[: len(input_names)]), args[len(input_names) :]
    if len(rest) > len(op.attrs):
        total = len(input_names) + len(op.attrs)
        raise OpError(f"{op.name} takes at most {total} arguments, got {len(args)}")
    attributes = dict(zip(op.attrs, rest))
    twice = [k for k in kwargs if k in attributes or k in input_names[: len(positional)]]
    if twice:
        raise OpError(f"{op.name}: {', '.join(twice)} is given twice")
    named = {k: v for k, v in kwargs.items() if k in input_names and v is not None}
    attributes.update({k: v for k, v in kwargs.items() if k not in input_names})
    return positional, named, attributes


def signature(op: Op, extra: tuple[str, ...]) -> inspect.Signature:
    """Return the true signature of a face: inputs, attributes, then `extra` keywords such as name and out."""
    either, only = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    any_number = op.variadic is not None or callable(op.inputs)
    kind = only if any_number else either
    if any_number:
        parameters = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]
    else:
        parameters = [inspect.Parameter(i.name, either, default=None) for i in _declared(op)]
    for key, attr in op.attrs.items():
        default = None if attr.default is REQUIRED else attr.default
        parameters.append(inspect.Parameter(key, kind, default=default))
    parameters += [inspect.Parameter(key, only, default=None) for key in extra]
    if op.read_attrs is not None or op.takes_any:
        parameters.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def docstring(op: Op) -> str:
    """Return the operator's docstring followed by its attributes with types, defaults and meaning."""
    lines = [op.doc.rstrip()]
    if op.attrs:
        lines += ["", "Attributes:"]
        for key, attr in op.attrs.items():
            default = "required" if attr.default is REQUIRED else f"default {attr.default!r}"
            lines.append(f"    {key}: {attr.doc or attr.type.expects} ({attr.type.expects}; {default}).")
    return "\n".join(lines) + "\n"
