"""Values that stay on the device: `Tensor`, with the few questions that programs ask of them there."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from .arguments import place, whole
from .base_graph import as_array
from .errors import ArgumentError, user_line
from .state import state

__all__ = ["Tensor"]


class Tensor:
    """A value on the device of the graph.

    Shape:
        values: (batch, *d).

    Args:
        values: what an expression was computed to be.

    Source: DyNet's `Tensor`.
    """

    __slots__ = ("values",)

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def _axis(self, dim: int) -> int:
        return place(dim, self.values.dim() - 1, "dim") + 1

    def as_numpy(self) -> NDArray[Any]:
        """Return an array.

        Shape:
            returns: (*d), or (*d, batch) of a minibatch of several elements.
        """
        return as_array(self.values)

    def argmax(self, dim: int = 0, num: int = 1) -> Tensor:
        """Return the places of the `num` greatest elements along a dimension.

        Shape:
            returns: as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: how many.

        Raises:
            BoundsError: there is no such dimension, or it has fewer elements.
            ForeignValueError: an argument is no integer.
        """
        return self.topk(dim, num)[1]

    def topk(self, dim: int = 0, num: int = 1) -> tuple[Tensor, Tensor]:
        """Return the `num` greatest elements along a dimension, and their places.

        Shape:
            returns: both as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: how many.

        Raises:
            BoundsError: there is no such dimension, or it has fewer elements.
            ForeignValueError: an argument is no integer.
        """
        axis = self._axis(dim)
        found, places = self.values.topk(place(num, self.values.shape[axis] + 1, "num"), axis)
        return Tensor(found), Tensor(places)

    def categorical_sample_log_prob(self, dim: int = 0, num: int = 1) -> Tensor:
        """Draw places along a dimension that holds logarithms of probabilities.

        Shape:
            returns: as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: how many draws.

        Raises:
            ArgumentError: `num` is below 1.
            BoundsError: there is no such dimension.
            ForeignValueError: an argument is no integer.
        """
        axis, num = self._axis(dim), whole(num, "num")
        if num < 1:
            raise ArgumentError(f"num is {num}, expected 1 or more (at {user_line()})")
        weights = self.values.exp().movedim(axis, -1)
        drawn = torch.multinomial(
            weights.reshape(-1, weights.shape[-1]), num, True, generator=state.options.generator
        )
        return Tensor(drawn.reshape(*weights.shape[:-1], num).movedim(-1, axis))
