"""Arithmetic that looks at storage: arrays of one shape meet element by element, others are stretched.

Source: MXNet 1.9.1 `ndarray.sparse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops import get
from . import operators
from .execution import execute
from .handle import Handle, Operand
from .op_dispatch import plan_for


def alike(name: str, otherwise: Callable[[Any, Any], Any], lhs: Operand, rhs: Operand) -> Any:
    """Run an operator on two arrays of one shape; hand anything else to another function.

    The operators that stretch arrays know fewer storage types.
    """
    if isinstance(lhs, Handle) and isinstance(rhs, Handle) and lhs.shape == rhs.shape:
        return execute(plan_for(get(name), {}, 2), (lhs, rhs))
    return otherwise(lhs, rhs)


def add(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs + rhs; either may be an array or a number. Two arrays stored alike give one stored alike.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_add", operators.add, lhs, rhs)


def subtract(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs - rhs; either may be an array or a number. Two arrays stored alike give one stored alike.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_sub", operators.subtract, lhs, rhs)


def multiply(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs * rhs; either may be an array or a number. A sparse array gives a sparse product.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_mul", operators.multiply, lhs, rhs)


def divide(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs / rhs; either may be an array or a number. By a number, a sparse array stays sparse.

    Args:
        lhs: left operand, sparse or dense.
        rhs: right operand; if it is an array, of the same shape.
    """
    return alike("elemwise_div", operators.divide, lhs, rhs)
