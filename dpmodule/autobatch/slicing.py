"""From what stands in square brackets behind an expression to an operation."""

from __future__ import annotations

from typing import Any

from .arguments import whole
from .errors import ArgumentError, BoundsError, ForeignValueError, user_line
from .ops.pick import PICK, PICK_RANGE, STRIDED
from .ops.spec import Dim, Operation

__all__ = ["picked"]


def picked(dim: Dim, index: Any) -> tuple[Operation, tuple[Any, ...], Any]:
    """Return operation, attributes and own argument (`Operation.aux`) of ``x[index]``.

    Args:
        dim: the shape of ``x``.
        index: an integer, a slice, or a tuple of slices; for a minibatch, one slice more may pick its elements.

    Raises:
        BoundsError: an integer is outside, or a slice is empty.
        ArgumentError: it is something else.
    """
    if isinstance(index, slice):
        return _slices(dim, (index,))
    if isinstance(index, tuple):
        return _slices(dim, index)
    size = dim.d[0]
    at = whole(index, "index of an expression")
    if not -size <= at < size:
        raise BoundsError(f"Index too large: {at} > {size - 1} (at {user_line()})")
    return PICK, (0,), at % size


def _indices(given: slice, size: int) -> tuple[int, int, int]:
    try:
        return given.indices(size)
    except TypeError as failure:
        raise ForeignValueError(f"{given!r}: {failure} (at {user_line()})") from None
    except ValueError as failure:
        raise ArgumentError(f"{given!r}: {failure} (at {user_line()})") from None


def _slices(dim: Dim, index: tuple[Any, ...]) -> tuple[Operation, tuple[Any, ...], Any]:
    sizes = (*dim.d, dim.batch) if len(index) > len(dim.d) else dim.d
    if len(index) > len(sizes):
        raise BoundsError(f"{len(index)} indices for {len(sizes)} dimensions (at {user_line()})")
    steps, starts, stops = [], [], []
    for each, size in zip(index, sizes):
        if not isinstance(each, slice):
            raise ArgumentError(f"{each!r} among slices: take one dimension at a time (at {user_line()})")
        start, stop, step = _indices(each, size)
        if step < 1:
            raise ArgumentError(f"step {step}: only steps of 1 and more are possible (at {user_line()})")
        if start >= stop:
            raise BoundsError(
                f"the slice {start}:{stop} of a dimension of {size} is empty (at {user_line()})"
            )
        steps.append(step)
        starts.append(start)
        stops.append(stop)
    if len(index) == 1 and steps[0] == 1:
        return PICK_RANGE, (0, starts[0], stops[0]), None
    return STRIDED, (tuple(steps), tuple(starts), tuple(stops)), None
