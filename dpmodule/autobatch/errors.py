"""Errors of automatic batching; each also derives from the built-in type that DyNet raises.

The hierarchy, with `dpmodule.base` at its root::

    MXNetError [RuntimeError] ├── ShapeError [ValueError] operands whose shapes do not fit an operation ├── StateError
    [AssertionError] a second `backward` from the same expression │ ├── StaleExpressionError [ValueError] an expression
    from before `renew_cg` │ └── NoGradientError `gradient` without the `backward` it needs ├── ArgumentError
    [ValueError] │ ├── BoundsError [IndexError] an index, label or word outside its range │ │ └── NegativeIndexError
    [OverflowError] │ ├── EmptySequenceError [AssertionError] a sum, concatenation or average of nothing │ ├──
    NotBatchableError a function that cannot be batched in the way declared │ └── NotScalarError `backward` or
    `scalar_value` of more than one number └── ForeignValueError [TypeError] an argument of the wrong type
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
    """An expression of a graph, or part of one, that `renew_cg` or `cg_revert` has discarded."""


class NoGradientError(StateError):
    """A gradient that `backward` has not computed."""


class NegativeIndexError(BoundsError, OverflowError):
    """A negative number where DyNet requires an unsigned one."""


class EmptySequenceError(ArgumentError, AssertionError):
    """An empty list where at least one expression is needed."""


class NotBatchableError(ArgumentError):
    """A function that `torch.vmap` does not support, or that was wrongly declared to work row by row."""


class NotScalarError(ArgumentError):
    """An expression of several numbers where exactly one is needed."""


class ForeignValueError(MXNetError, TypeError):
    """An argument of the wrong type, where an expression, number, string, list or collection is needed."""


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line(*others: str) -> str:
    """Return "file:line" of the innermost caller outside this package, and other folders, for messages."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, *others)):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def wrong_type(what: str, value: object, problem: str) -> ForeignValueError:
    """Return the error for an argument of the wrong type.

    Args:
        what: name of the argument in the message; may be "".
        problem: follows type and value in the message, such as "is not a list".
    """
    name = f"{what}: " if what else ""
    return ForeignValueError(f"{name}{type(value).__name__} {value!r} {problem} (at {user_line()})")
