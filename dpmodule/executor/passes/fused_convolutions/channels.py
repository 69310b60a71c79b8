"""Layers that only move channels: parts of an image's channels, channel shuffles, and images as rows of pixels.

What a step does is read off the strides of its result, which hold for all ways of writing it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...lowering import Lowered, Step

Tensor = torch.Tensor
Shape = tuple[int, ...]


class ChannelShuffle:
    """Three functions, of which the first two may split the channels into groups and exchange both axes.

    In a shuffle, the result has the first channel of all groups, then their second one.
    """

    name = "channel_shuffle"

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


class PixelRows:
    """Two functions: the first moves the channels last, and the second may make each image or sequence a row."""

    name = "pixel_rows"

    def __init__(self, functions: list[Callable[[Tensor], Tensor]]) -> None:
        self._move, self._flatten = functions

    def __call__(self, x: Tensor) -> Tensor:
        """Run the functions."""
        return self._flatten(self._move(x))

    def are_rows(self, shape: Shape) -> bool:
        """Return True if the results for images of a shape are such rows."""
        x = torch.empty(shape, device="meta")
        moved, wanted = self._move(x), x.movedim(1, -1)
        is_moved = x.dim() > 2 and (moved.shape, moved.stride()) == (wanted.shape, wanted.stride())
        return is_moved and self(x).shape == (shape[0], x[0].numel())


def first_channel(part: Callable[[Tensor], Tensor], shape: Shape) -> int | None:
    """Return the first of the consecutive channels of an image that a function returns; None for other functions."""
    x = torch.empty(shape, device="meta")
    found = part(x)
    if x.dim() != 4 or found._base is not x or found.dim() != 4 or found.stride() != x.stride():
        return None
    if (found.shape[0], *found.shape[2:]) != (shape[0], *shape[2:]):
        return None
    return found.storage_offset() // (shape[2] * shape[3])


_CHAINS: tuple[tuple[type[ChannelShuffle | PixelRows], tuple[set[str], ...]], ...] = (
    (ChannelShuffle, ({"Reshape"}, {"SwapAxis", "transpose"}, {"Reshape"})),
    (PixelRows, ({"transpose"}, {"Flatten", "Reshape"})),
)


def join_moves(low: Lowered, only_reader: Callable[[int], Step | None]) -> None:
    """Make consecutive steps one that may be a channel shuffle, or rows of pixels.

    Args:
        only_reader: returns the only reader of a value, else None.
    """
    joined: dict[int, Step] = {}
    gone: set[int] = set()
    for step in low.steps:
        for kind, names in _CHAINS:
            chain: list[Step] = []
            after: Step | None = step
            while after is not None and len(chain) < len(names):
                op, _ = low.operator(after)
                if op is None or op.name not in names[len(chain)] or after.takes_env or after.covers:
                    break
                chain.append(after)
                after = only_reader(after.outputs[0])
            if len(chain) < len(names) or not gone.isdisjoint(map(id, chain)):
                continue
            if kind is PixelRows and low.operator(step)[1].axes not in ((0, 2, 1), (0, 2, 3, 1)):
                continue
            first, last = chain[0], chain[-1]
            call = kind([each.function for each in chain])
            made = Step(call, call.name, None, first.inputs, last.outputs, first.node, takes_env=False)
            made.covers = tuple(each.node for each in chain[1:])
            joined[id(last)] = made
            gone.update(map(id, chain))
    low.steps = [joined.get(id(s), s) for s in low.steps if id(s) in joined or id(s) not in gone]
