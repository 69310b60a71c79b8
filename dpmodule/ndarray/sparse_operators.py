"""Arithmetic that looks at storage: arrays of one shape meet element by element, others are stretched."""

from __future__ import annotations

from typing import Any

from ..ops import get
from . import operators
from .execution import execute
from .handle import Handle
from .plan import plan_for

__all__ = ["add", "alike", "divide", "multiply", "subtract"]


def alike(name: str, lhs: Any, rhs: Any) -> Any:
    """Run an operator on two arrays of one shape; None if they are something else.

    The operators that stretch arrays know fewer storage types.
    """
    if isinstance(lhs, Handle) and isinstance(rhs, Handle) and lhs.shape == rhs.shape:
        return execute(plan_for(get(name), {}, 2), (lhs, rhs))
    return None


def add(lhs: Any, rhs: Any) -> Any:
    """Return lhs + rhs; either may be an array or a number. Two arrays stored alike give one stored alike."""
    found = alike("elemwise_add", lhs, rhs)
    return operators.add(lhs, rhs) if found is None else found


def subtract(lhs: Any, rhs: Any) -> Any:
    """Return lhs - rhs; either may be an array or a number. Two arrays stored alike give one stored alike."""
    found = alike("elemwise_sub", lhs, rhs)
    return operators.subtract(lhs, rhs) if found is None else found


def multiply(lhs: Any, rhs: Any) -> Any:
    """Return lhs * rhs; either may be an array or a number. A sparse array gives a sparse product."""
    found = alike("elemwise_mul", lhs, rhs)
    return operators.multiply(lhs, rhs) if found is None else found


def divide(lhs: Any, rhs: Any) -> Any:
    """Return lhs / rhs; either may be an array or a number. By a number, a sparse array stays sparse."""
    found = alike("elemwise_div", lhs, rhs)
    return operators.divide(lhs, rhs) if found is None else found
