"""Functions of ``nd.contrib`` that are made of several operators.

Source: MXNet 1.9.1 `ndarray.contrib`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .op_functions import face
from .random import uniform

if TYPE_CHECKING:
    from ..types import ContextLike
    from .ndarray import NDArray


def isinf(data: NDArray) -> Any:
    """Return 1 where an element is infinite, else 0, in the type of `data`."""
    return data.abs() == math.inf


def isnan(data: NDArray) -> Any:
    """Return 1 where an element is NaN, else 0, in the type of `data`."""
    return data != data


def isfinite(data: NDArray) -> Any:
    """Return 1 where an element is neither infinite nor NaN, else 0, in the type of `data`."""
    return face("_mul")(data == data, data.abs() != math.inf)


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: ContextLike | None = None
) -> tuple[Any, Any, Any]:
    """Draw classes, with replacement, from an approximately Zipfian distribution.

    Class k has a chance of ``log((k + 2) / (k + 1)) / log(range_max + 1)``: numbers should be given in order of
    falling frequency.

    Args:
        true_classes: classes whose expected count is wanted as well, any shape.
        range_max: number of classes.
        ctx: where to draw; None = the current context.

    Returns:
        The classes drawn, (num_sampled,) int64; the expected count of each true class, float64; and of each class
        drawn, (num_sampled,) float64.

    Example:
        >>> drawn, of_true, of_drawn = mx.nd.contrib.rand_zipfian(mx.nd.array([3]), 4, 5)
    """
    span = math.log(range_max + 1)
    drawn = uniform(0, span, shape=(num_sampled,), dtype="float64", ctx=ctx)
    sampled = (drawn.exp() - 1).astype("int64") % range_max

    def expected(classes: NDArray) -> Any:
        number = classes.astype("float64")
        return ((number + 2.0) / (number + 1.0)).log() / span * num_sampled

    return sampled, expected(true_classes.as_in_context(sampled.context)), expected(sampled)
