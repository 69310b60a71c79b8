"""Functions of ``sym.contrib`` that are made of several operators."""

from __future__ import annotations

import math

from .random import uniform
from .symbol import Symbol, call


def rand_zipfian(true_classes: Symbol, num_sampled: int, range_max: int) -> tuple[Symbol, Symbol, Symbol]:
    """Draw classes, with replacement, from an approximately Zipfian distribution.

    Class k has a chance of ``log((k + 2) / (k + 1)) / log(range_max + 1)``.

    Args:
        range_max: number of classes.

    Returns:
        The classes drawn, (num_sampled,) int64; the expected count of each true class, float64; and of each class
        drawn, (num_sampled,) float64.
    """
    span = math.log(range_max + 1)
    drawn = uniform(0, span, shape=(num_sampled,), dtype="float64")
    sampled = call("Cast", call("exp", drawn) - 1, dtype="int64") % range_max

    def expected(classes: Symbol) -> Symbol:
        number = call("Cast", classes, dtype="float64")
        return call("log", (number + 2.0) / (number + 1.0)) / span * num_sampled

    return sampled, expected(true_classes), expected(sampled)
