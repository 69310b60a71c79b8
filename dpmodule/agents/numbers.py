"""Numbers among options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..base import ArgumentError

__all__ = ["real", "whole"]


def whole(opt: Mapping[str, Any], name: str, default: int | None, least: int = 1) -> int:
    """Return an option that is a whole number.

    Args:
        opt: options.
        name: of the option.
        default: what an option that is missing or None is; None: there has to be one.
        least: the smallest that it may be.

    Raises:
        ArgumentError: it is something else.
    """
    number = default if opt.get(name) is None else opt[name]
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ArgumentError(f"{name} is {number!r}, expected a whole number from {least}")
    return number


def real(opt: Mapping[str, Any], name: str, default: float, least: float, below: float = math.inf) -> float:
    """Return an option that is a number.

    Args:
        opt: options.
        name: of the option.
        default: what an option that is missing or None is.
        least: the smallest that it may be.
        below: what it has to be below of.

    Raises:
        ArgumentError: it is something else.
    """
    number = opt.get(name)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not least <= number < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"{name} is {number!r}, expected a number from {least:g}{limit}")
    return float(number)
