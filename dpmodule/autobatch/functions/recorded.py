"""Functions that are made of the records of their operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from ..arguments import number
from ..expression import Expression, apply, fast, single
from ..ops.spec import Argument, Operation


class OfOne(Protocol):
    """A function of an expression, and perhaps of a number beside it."""

    def __call__(self, x: Expression, *beside: float, **named: float) -> Expression:
        """Add its operation to the graph."""


def _with_number(op: Operation, argument: Argument) -> Callable[..., Expression]:
    """Return the function of an operation on one expression with a number beside it."""
    what = f"{op.name}: {argument.name}"

    def made(x: Expression, beside: float = argument.default) -> Expression:
        return apply(op, (x,), (number(beside, what),))

    made.__annotations__[argument.name] = made.__annotations__.pop("beside")
    made.__code__ = made.__code__.replace(co_varnames=("x", argument.name))
    return made


def function_of(op: Operation) -> OfOne:
    """Make the function of an operation as its record describes it.

    Args:
        op: the operation, which has a `text`.
    """
    argument = op.argument
    found = single(op) if argument is None else _with_number(op, argument)
    found.__name__ = found.__qualname__ = op.name
    found.__module__ = __name__.rpartition(".functions.")[0]  # where it is found by its name, as pickles ask
    found.__doc__ = f"{op.text}\n\nArgs:\n    x: the operand."
    if argument is not None:
        found.__doc__ += f"\n    {argument.name}: {argument.text}"
    return cast(OfOne, fast(op.name, found))
