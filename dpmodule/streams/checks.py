"""Checks of counts and durations, with uniform messages."""

from __future__ import annotations

from typing import Any

from ..base import ArgumentError


def check_count(owner: str, name: str, value: Any, low: int = 1, high: int | None = None) -> None:
    """Raise ArgumentError unless `value` is an integer from `low` to `high`."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ArgumentError(f"{owner}: {name} is {value!r}, expected an integer {bounds}")


def check_seconds(
    owner: str, name: str, value: Any, *, positive: bool = False, optional: bool = True
) -> None:
    """Raise ArgumentError unless `value` is 0 or more seconds (`positive`: more than 0), or None if `optional`."""
    if value is None and optional:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value >= 0 or (positive and value == 0):  # NaN, too
        bounds = ("more than 0 seconds" if positive else "seconds, 0 or more") + (
            ", or None" if optional else ""
        )
        raise ArgumentError(f"{owner}: {name} is {value!r}, expected {bounds}")
