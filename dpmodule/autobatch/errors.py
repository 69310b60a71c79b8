"""Errors of automatic batching; each is also the built-in type that DyNet raises in the same place.

They belong to the family of `dpmodule.base`::

    MXNetError [RuntimeError]
    ├── ShapeError [ValueError]                   operands whose shapes do not fit an operation
    ├── StateError [AssertionError]               a second `backward` from the same expression
    │   ├── StaleExpressionError [ValueError]     an expression from before `renew_cg`
    │   └── NoGradientError                       `gradient` without the `backward` it needs
    ├── ArgumentError [ValueError]
    │   ├── BoundsError [IndexError]              an index, label or word outside its range
    │   │   └── NegativeIndexError [OverflowError]
    │   ├── EmptySequenceError [AssertionError]   a sum, concatenation or average of nothing
    │   ├── NotBatchableError                     a function that cannot be batched in the way declared
    │   └── NotScalarError                        `backward` or `scalar_value` of more than one number
    └── ForeignValueError [TypeError]             an argument of a wrong type
"""

from __future__ import annotations

import os
import sys

from ..base import ArgumentError as ArgumentError
from ..base import BoundsError as BoundsError
from ..base import MXNetError
from ..base import NonFiniteError as NonFiniteError
from ..base import ShapeError as ShapeError
from ..base import StateError as StateError


class StaleExpressionError(StateError, ValueError):
    """An expression that belongs to a graph which `renew_cg` or `cg_revert` has thrown away."""


class NoGradientError(StateError):
    """A gradient that no `backward` has computed."""


class NegativeIndexError(BoundsError, OverflowError):
    """A negative number where DyNet takes an unsigned one."""


class EmptySequenceError(ArgumentError, AssertionError):
    """An empty list where at least one expression is needed."""


class NotBatchableError(ArgumentError):
    """A function that `torch.vmap` refuses, or that does not work row by row although it was declared to."""


class NotScalarError(ArgumentError):
    """An expression of several numbers where exactly one is needed."""


class ForeignValueError(MXNetError, TypeError):
    """An argument of a wrong type: no expression, number, text, list or collection, where one is needed."""


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line() -> str:
    """Return "file:line" of the innermost caller outside this package, to name it in an error."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def wrong_type(what: str, value: object, problem: str) -> ForeignValueError:
    """Return the error of an argument of a wrong type.

    Args:
        what: the argument, as errors name it; "" if the value says enough.
        problem: goes on after type and value, such as "is no list".
    """
    name = f"{what}: " if what else ""
    return ForeignValueError(f"{name}{type(value).__name__} {value!r} {problem} (at {user_line()})")
