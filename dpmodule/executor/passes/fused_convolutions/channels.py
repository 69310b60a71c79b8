"""Layers that only move channels: parts of an image's channels, and channel shuffles.

What a step does is read off the strides of its result, which hold for all ways of writing it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...lowering import Lowered, Step

Tensor = torch.Tensor
Shape = tuple[int, ...]

_SHUFFLE = ({"Reshape"}, {"SwapAxis", "transpose"}, {"Reshape"})


class ChannelShuffle:
    """Three functions, of which the first two may split the channels into groups and exchange both axes.

    In a shuffle, the result has the first channel of all groups, then their second one.
    """

    def __init__(self, functions: list[Callable[[Tensor], Tensor]]) -> None:
        self._split, self._exchange, self._join = functions

    def __call__(self, x: Tensor) -> Tensor:
        """Run the functions."""
        return self._join(self._exchange(self._split(x)))

    def groups(self, shape: Shape) -> int:
        """Return the number of groups of an image's channels that are shuffled; 0 for other functions."""
        x = torch.empty(shape, device="meta")
        views = self._exchange(self._split(x))
        if x.dim() != 4 or views.dim() != 5 or views._base is not x or self(x).shape != shape:
            return 0
        image, _, row, column = x.stride()
        groups, size = views.shape[2], views.shape[1]
        pixels = shape[2] * shape[3]
        is_shuffle = views.stride() == (image, pixels, size * pixels, row, column)
        return groups if is_shuffle and views.shape[0] == shape[0] else 0


def first_channel(part: Callable[[Tensor], Tensor], shape: Shape) -> int | None:
    """Return the first of the consecutive channels of an image that a function returns; None for other functions."""
    x = torch.empty(shape, device="meta")
    found = part(x)
    if x.dim() != 4 or found._base is not x or found.dim() != 4 or found.stride() != x.stride():
        return None
    if (found.shape[0], *found.shape[2:]) != (shape[0], *shape[2:]):
        return None
    return found.storage_offset() // (shape[2] * shape[3])


def channel_shuffles(low: Lowered, only_reader: Callable[[int], Step | None]) -> None:
    """Make three steps one that may be a channel shuffle.

    Args:
        only_reader: returns the only reader of a value, else None.
    """
    shuffles: dict[int, Step] = {}
    gone: set[int] = set()
    for step in low.steps:
        chain: list[Step] = []
        after: Step | None = step
        while after is not None and len(chain) < len(_SHUFFLE):
            op, _ = low.operator(after)
            if op is None or op.name not in _SHUFFLE[len(chain)] or after.takes_env or after.covers:
                break
            chain.append(after)
            after = only_reader(after.outputs[0])
        if len(chain) == len(_SHUFFLE) and not any(id(each) in gone for each in chain):
            call, covers = (
                ChannelShuffle([each.function for each in chain]),
                [each.node for each in chain[1:]],
            )
            first, _, last = chain
            made = Step(
                call, "channel_shuffle", None, first.inputs, last.outputs, first.node, takes_env=False
            )
            made.covers = tuple(covers)
            shuffles[id(last)] = made
            gone.update(map(id, chain))
    low.steps = [shuffles.get(id(s), s) for s in low.steps if id(s) in shuffles or id(s) not in gone]
