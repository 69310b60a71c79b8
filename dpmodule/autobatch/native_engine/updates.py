"""Steps of trainers in one pass over values, gradients and moments, where the native extension is here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ... import native
from ..storage import ParameterStorage

Tensor = torch.Tensor


class ParameterAddress(NamedTuple):
    """What native code updates of one parameter.

    Shape:
        rows: (n,).

    Attributes:
        rows: those to update (int64), None for all.
        numbers: addresses of value, gradient, three moments and row numbers, 0 for none; how many rows there are, and
            how many numbers in each.
    """

    storage: ParameterStorage
    rows: Tensor | None
    numbers: tuple[int, ...]


def _fits(value: Tensor, gradient: Tensor) -> bool:
    return (
        native.core is not None
        and value.dtype is torch.float32
        and value.is_cpu
        and value.is_contiguous()
        and gradient.is_contiguous()
    )


class ParameterAddresses:
    """Where values and gradients lie; little is done while they lie where they did.

    Args:
        moments: returns what the trainer keeps for a parameter, always the same tensors.
    """

    def __init__(self, moments: Callable[[ParameterStorage], list[Tensor]]) -> None:
        self._moments = moments
        self._seen: dict[ParameterStorage, tuple[Tensor, Tensor, tuple[int, int], ParameterAddress]] = {}

    def of(self, storage: ParameterStorage, rows: Tensor | None = None) -> ParameterAddress | None:
        """Return where a parameter with a gradient lies, None where native code does not take it.

        Shape:
            rows: (n,).

        Args:
            rows: those that matter (int64), None for all.
        """
        value, gradient = storage.tensor, storage.gradient
        if gradient is None:
            return None
        here = value.data_ptr(), gradient.data_ptr()
        seen = self._seen.get(storage)
        if seen is None or seen[0] is not value or seen[1] is not gradient or seen[2] != here:
            storage.check_shape()
            if not _fits(value, gradient):
                return None
            addresses = [*here, *[each.data_ptr() for each in self._moments(storage)]]
            addresses += [0] * (5 - len(addresses))
            place = ParameterAddress(storage, None, (*addresses, 0, 1, value.numel()))
            seen = self._seen[storage] = value, gradient, here, place
        place = seen[3]
        if rows is None:
            return place
        extent = rows.data_ptr(), len(rows), value.numel() // len(value)
        return ParameterAddress(storage, rows, (*place.numbers[:5], *extent))


def length(places: Sequence[ParameterAddress]) -> float:
    """Return the length of all gradients together."""
    core = native.core
    return math.sqrt(core.autobatch_squared_length([each.numbers for each in places])) if core else 0.0


def step(kind: str, places: Sequence[ParameterAddress], factors: dict[str, float], scale: float) -> None:
    """Take a trainer's step, and make the gradients zero."""
    core = native.core
    if core is None or not places:
        return
    rule = {"kind": kind, "rescale_grad": scale, **factors}
    core.autobatch_rule(rule, [each.numbers for each in places])
    increment = torch.autograd.graph.increment_version
    for storage, _, _ in places:
        increment(storage.tensor)
        storage.gradient_is_zero()
