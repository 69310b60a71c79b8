"""Sizes to try a graph with whose dimensions are not all given.

A graph with dimensions that the file leaves open is worked out for a few sets of sizes at once: worlds. What has the
same size in all of them is constant; what has the sizes of an input's dimension in all of them is that dimension. In
this way a chain that computes a shape is simply computed, and what it meant is read off its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Dims = tuple[int, ...]
Sizes = tuple[int, ...]
"""One dimension's size in every world."""

# no row is a linear function of another one, lest a multiple of one be taken for another
_LEADING: tuple[Sizes, ...] = (
    (2, 3, 5),
    (3, 7, 4),
    (5, 4, 9),
    (7, 11, 6),
    (4, 13, 14),
    (11, 6, 15),
    (6, 17, 22),
)
_LENGTHS: tuple[Sizes, ...] = ((12, 20, 17), (16, 10, 23), (18, 25, 14), (21, 15, 32), (10, 27, 19))
_SIDES: tuple[Sizes, ...] = ((224, 288, 416), (256, 320, 192), (192, 256, 480), (320, 224, 288))
_SMALL: tuple[Sizes, ...] = ((32, 64, 160), (64, 96, 32), (96, 32, 128), (128, 160, 64))
_LONG: tuple[Sizes, ...] = ((16000, 24000, 20000), (24000, 16000, 30000), (20000, 32000, 24000))
_EQUAL: tuple[Sizes, ...] = ((224, 224, 224),)
ATTEMPTS: tuple[tuple[tuple[Sizes, ...], tuple[Sizes, ...]], ...] = (
    (_LENGTHS, _SIDES),
    (_SMALL, _SMALL),
    (_LONG, _SMALL),
    (_EQUAL, _EQUAL),
)
"""Sizes of the axes of sequences and of pictures, tried in turn: few networks take every size."""


def _kind(shape: Sequence[object], axis: int) -> int:
    """Return 0 for a leading axis, 1 for one of a sequence, 2 for a side of a picture."""
    return 0 if axis == 0 else 2 if len(shape) >= 4 and axis >= 2 else 1


def sizes_of(
    shapes: Mapping[str, Sequence[int | str]], attempt: int
) -> tuple[int, dict[str, tuple[Dims, ...]]]:
    """Choose the sizes of open dimensions.

    Args:
        shapes: shape of each input; a name stands for an open dimension.

    Returns:
        The number of worlds, and the shapes of each input in all of them.
    """
    kinds: dict[str, int] = {}
    for shape in shapes.values():
        for axis, d in enumerate(shape):
            if isinstance(d, str):
                kinds[d] = min(_kind(shape, axis), kinds.get(d, 2))
    lists = (_LEADING, *ATTEMPTS[attempt])
    used = [0, 0, 0]
    chosen: dict[str, Sizes] = {}
    for name, kind in kinds.items():
        row, number = lists[kind], used[kind]
        # more open dimensions than rows: the rows again, stretched and moved
        turn, place = divmod(number, len(row))
        chosen[name] = tuple(n * (turn + 1) + turn * (i % 2) for i, n in enumerate(row[place]))
        used[kind] += 1
    worlds = 1 + min(len(chosen), 2)
    return worlds, {
        name: tuple(tuple(chosen[d][w] if isinstance(d, str) else d for d in shape) for w in range(worlds))
        for name, shape in shapes.items()
    }
