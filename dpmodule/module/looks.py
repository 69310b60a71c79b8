"""Looks at tensors that must be finite, with one small copy from each device, for which nobody has to wait."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..compat import torch_private
from ..devices.host_copy import HostCopy

__all__ = ["Findings", "LateFindings", "Look"]


class Look(NamedTuple):
    """A tensor that is to be looked at.

    Attributes:
        what: what messages call it.
        tensor: its numbers.
        may_be_infinite: only NaN counts.
    """

    what: str
    tensor: torch.Tensor
    may_be_infinite: bool = False


class Findings:
    """What is not finite in some tensors: their largest magnitudes, on their way to the host.

    Shape:
        looks[i].tensor: any.

    Args:
        looks: the tensors, as they are now.
    """

    __slots__ = ("_copies", "_rules")

    def __init__(self, looks: Sequence[Look]) -> None:
        looks = [look for look in looks if look.tensor.is_floating_point() and look.tensor.numel()]
        self._rules = [(look.what, look.may_be_infinite) for look in looks]
        devices: dict[torch.device, list[int]] = {}
        for place, look in enumerate(looks):
            devices.setdefault(look.tensor.device, []).append(place)
        self._copies = [
            (places, HostCopy(_extents([looks[place].tensor for place in places])))
            for places in devices.values()
        ]

    def is_there(self) -> bool:
        """Say whether `first` would return at once."""
        return all(copy.is_there() for _, copy in self._copies)

    def first(self) -> str | None:
        """Return what the first tensor is called in which something is not finite; waits until that is known."""
        found = [0.0] * len(self._rules)
        for places, copy in self._copies:
            for place, extent in zip(places, copy.numbers()):
                found[place] = extent
        for (what, may_be_infinite), extent in zip(self._rules, found):
            if math.isnan(extent) or (math.isinf(extent) and not may_be_infinite):
                return what
        return None


def _extents(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the largest magnitude of each tensor, NaN where one of its elements is.

    Shape:
        tensors: any, on one device, but not empty.
        returns: (number of tensors,) float64.
    """
    return torch.stack([each.double() for each in torch_private.foreach_norm(tensors, math.inf)])


class LateFindings:
    """Findings of batches after which training goes on whatever they are, told when they have come."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Findings, Callable[[str], None]]] = deque()

    def add(self, looks: Sequence[Look], tell: Callable[[str], None]) -> None:
        """Look at some tensors without waiting.

        Args:
            looks: the tensors.
            tell: is called by `hear` with what is not finite, if something is.
        """
        self._pending.append((Findings(looks), tell))

    def hear(self, wait: bool = False) -> None:
        """Tell of the batches whose findings have come, in their order.

        Args:
            wait: tell of all.
        """
        while self._pending and (wait or self._pending[0][0].is_there()):
            findings, tell = self._pending.popleft()
            what = findings.first()
            if what is not None:
                tell(what)
