"""Where boxes stand in a layered drawing: each below what it reads, none over another, lines around boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

_ACROSS, _DOWN = 18.0, 26.0
"""Least distance between boxes of a layer, and between layers, in pixels."""
_WIRE = 4.0
"""Room that a line takes where it passes a layer."""
_SWEEPS = 8
_MOST_STEPS = 60_000
"""Cells times sweeps, so that very tangled graphs are drawn in about a second, too."""

Curve = tuple[float, float, float, float, float, float]
"""A line from a box or a passing point to one a layer below: x, bottom of the box, bottom of its layer, x there, top of
the next layer, bottom of the passing point (of a box: its top)."""


class LayeredLayout:
    """A drawing of boxes in layers.

    Layers are as few as the edges allow. An edge over several layers passes those between at points that have room of
    their own. Edges from one box share such points, or edges to one, where more come to it than leave each of the
    others. Within layers order follows the mean place of neighbours, a few times down and up, and places come as close
    to the mean of the neighbours' as boxes allow.

    Args:
        edges: pairs of boxes, the first one's number below the second's.

    Attributes:
        height: of the drawing.
    Source: K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding of hierarchical system structures"
    (1981).
    """

    def __init__(self, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> None:
        self._widths = [width for width, _ in sizes]
        self._heights = [height for _, height in sizes]
        self._boxes = len(sizes)
        self._layer = _layer_numbers(len(sizes), edges)
        self._above: list[list[int]] = [[] for _ in sizes]
        self._below: list[list[int]] = [[] for _ in sizes]
        self._connect(edges)
        self._rows: list[list[int]] = [[] for _ in range(max(self._layer, default=-1) + 1)]
        for cell, layer in enumerate(self._layer):
            self._rows[layer].append(cell)
        self._sweeps = max(2, min(_SWEEPS, _MOST_STEPS // max(len(self._layer), 1)))
        self._order()
        self._x = self._x_positions()
        self._tops, self._ends = self._y_positions()
        self.places = [
            (self._x[i] - self._widths[i] / 2, self._tops[self._layer[i]]) for i in range(self._boxes)
        ]
        self.width = max((x + width for (x, _), width in zip(self.places, self._widths)), default=0.0)
        self.width = max([self.width, *(x + _WIRE / 2 for x in self._x)])
        self.height = self._ends[-1] if self._ends else 0.0

    def _connect(self, edges: Sequence[tuple[int, int]]) -> None:
        """Put passing points into the layers that edges skip: one chain for all edges from a box, or all to one."""
        layer = self._layer
        edges = list(dict.fromkeys(edges))
        skipping = [(start, end) for start, end in edges if layer[end] - layer[start] > 1]
        leaving, arriving = Counter(start for start, _ in skipping), Counter(end for _, end in skipping)
        spread: dict[int, list[int]] = {}
        gathered: dict[int, list[int]] = {}
        for start, end in edges:
            if layer[end] - layer[start] == 1:
                self._join(start, end)
            elif arriving[end] > leaving[start]:
                gathered.setdefault(end, []).append(start)
            else:
                spread.setdefault(start, []).append(end)
        for start, ends in spread.items():
            chain = self._chain(layer[start] + 1, max(layer[end] for end in ends))
            self._join(start, chain[0])
            for end in ends:
                self._join(chain[layer[end] - layer[start] - 2], end)
        for end, starts in gathered.items():
            chain = self._chain(min(layer[start] for start in starts) + 1, layer[end])
            self._join(chain[-1], end)
            for start in starts:
                self._join(start, chain[layer[start] + 1 - layer[end]])

    def _chain(self, first: int, last: int) -> list[int]:
        """Return new passing points, one below the other, in a layer and all others before another one."""
        chain = list(range(len(self._layer), len(self._layer) + last - first))
        self._layer += range(first, last)
        self._widths += [_WIRE] * len(chain)
        self._heights += [0.0] * len(chain)
        self._above += [[] for _ in chain]
        self._below += [[] for _ in chain]
        for above, below in pairwise(chain):
            self._join(above, below)
        return chain

    def _join(self, above: int, below: int) -> None:
        self._below[above].append(below)
        self._above[below].append(above)

    def _order(self) -> None:
        """Sort each layer by the mean place of neighbours, down and up in turn."""
        at = [0.0] * len(self._layer)
        for row in self._rows:
            self._number(row, at)
        for sweep in range(self._sweeps):
            rows, near = (
                (self._rows[1:], self._above) if sweep % 2 == 0 else (self._rows[-2::-1], self._below)
            )
            for row in rows:
                key = {
                    cell: sum(at[n] for n in near[cell]) / len(near[cell]) if near[cell] else at[cell]
                    for cell in row
                }
                row.sort(key=key.__getitem__)
                self._number(row, at)

    def _number(self, row: Sequence[int], at: list[float]) -> None:
        """Write down where the cells of a layer stand when they are packed around 0."""
        place = -sum(self._widths[cell] + _ACROSS for cell in row) / 2
        for cell in row:
            half = (self._widths[cell] + _ACROSS) / 2
            at[cell] = place + half
            place += 2 * half

    def _x_positions(self) -> list[float]:
        """Return the middle of each cell, the leftmost cell's left edge at 0."""
        x = [0.0] * len(self._layer)
        for row in self._rows:
            self._number(row, x)
        for sweep in range(self._sweeps):
            rows, near = (self._rows[::-1], self._below) if sweep % 2 else (self._rows, self._above)
            for row in rows:
                self._align_to_neighbours(row, x, near)
        near = [self._straight(cell) for cell in range(len(x))]
        for _ in range(self._sweeps):
            for row in self._rows:
                self._align_to_neighbours(row, x, near)
        left = min((x[i] - self._widths[i] / 2 for i in range(len(x))), default=0.0)
        return [each - left for each in x]

    def _straight(self, cell: int) -> list[int]:
        """Return the cell above another if they have only each other there, else all neighbours."""
        above = self._above[cell]
        if len(above) == 1 and len(self._below[above[0]]) == 1:
            return above
        return [*above, *self._below[cell]]

    def _align_to_neighbours(self, row: Sequence[int], x: list[float], near: Sequence[Sequence[int]]) -> None:
        """Move the cells of a layer to the mean of their neighbours, as far as each other's room allows."""
        offsets, wanted, weights = [], [], []
        offset = 0.0
        for number, cell in enumerate(row):
            if number:
                offset += (self._widths[row[number - 1]] + self._widths[cell]) / 2 + _ACROSS
            others = near[cell]
            mean = sum(x[n] for n in others) / len(others) if others else x[cell]
            offsets.append(offset)
            wanted.append(mean - offset)
            # a line that bends looks worse than a box beside the middle of its neighbours
            weights.append(0.1 if not others else 4.0 if cell >= self._boxes else 1.0)
        for cell, offset, place in zip(row, offsets, _isotonic(wanted, weights)):
            x[cell] = place + offset

    def _y_positions(self) -> tuple[list[float], list[float]]:
        """Return where each layer begins and ends."""
        tops, ends = [], []
        y = 0.0
        for row in self._rows:
            tops.append(y)
            ends.append(y + max(self._heights[cell] for cell in row))
            y = ends[-1] + _DOWN
        return tops, ends

    def lines(self) -> list[tuple[Curve, int]]:
        """Return the lines between neighbouring layers, and where each ends: a box's number, or a higher one."""
        found = []
        for cell, ends in enumerate(self._below):
            layer = self._layer[cell]
            top, border = self._tops[layer], self._ends[layer]
            bottom = top + self._heights[cell] if cell < self._boxes else border
            for end in ends:
                below = self._tops[layer + 1]
                stop = below if end < self._boxes else self._ends[layer + 1]
                found.append(((self._x[cell], bottom, border, self._x[end], below, stop), end))
        return found


def svg_path(line: Curve, x: float = 0.0, y: float = 0.0) -> str:
    """Return a line between two layers as commands of a path."""
    start, bottom, border, end, below, stop = line
    start, end = start + x, end + x
    half = y + (border + below) / 2
    path = f"M{start:.1f} {y + bottom:.1f}" + (f"V{y + border:.1f}" if border != bottom else "")
    path += f"C{start:.1f} {half:.1f} {end:.1f} {half:.1f} {end:.1f} {y + below:.1f}"
    return path + (f"V{y + stop:.1f}" if stop != below else "")


def _layer_numbers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: below all it reads; what reads nothing stands just above its first reader."""
    layer = [0] * count
    readers: list[list[int]] = [[] for _ in range(count)]
    reads = [False] * count
    for start, end in edges:
        readers[start].append(end)
        reads[end] = True
    for box in range(count):
        for end in readers[box]:
            layer[end] = max(layer[end], layer[box] + 1)
    for box in range(count):
        if readers[box] and not reads[box]:
            layer[box] = min(layer[end] for end in readers[box]) - 1
    return layer


def _isotonic(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the rising numbers that are closest to those wanted, by weighted squares.

    Source: M. Ayer et al., "An empirical distribution function for sampling with incomplete information" (1955).
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(wanted, weights):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] > mean:
            other, more, number = pools.pop()
            mean = (mean * total + other * more) / (total + more)
            total, count = total + more, count + number
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
