"""Axis numbers: negative ones counted from the end, out-of-range ones refused."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import OpError


def normal_axis(axis: int, ndim: int, name: str = "axis") -> int:
    """Return `axis` as a number from 0 to ndim - 1."""
    if not -ndim <= axis < ndim:
        raise OpError(f"{name} is {axis}, expected {-ndim} to {ndim - 1} for an array of {ndim} dimensions")
    return axis % ndim


def normal_axes(axes: Iterable[int], ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Return several axes as ascending numbers from 0 to ndim - 1."""
    found = sorted(normal_axis(axis, ndim, name) for axis in axes)
    if len(set(found)) != len(found):
        raise OpError(f"{name} names one axis twice: {tuple(axes)} for an array of {ndim} dimensions")
    return tuple(found)
