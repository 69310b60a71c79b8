"""Layered layout of boxes: each below its inputs, without overlap, with lines routed around boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

_ACROSS, _DOWN = 18.0, 26.0
"""Minimal distance between boxes of a layer, and between layers, in pixels."""
_WIRE = 4.0
"""Width of a line that passes through a layer."""
_SWEEPS = 8
_MAX_UPDATES = 60_000
"""Limit of cells times sweeps, so that very large graphs are drawn in about a second."""

Curve = tuple[float, float, float, float, float, float]
"""A line from a box or waypoint to one in the next layer: x, bottom of the box, bottom of its layer, x of the end, top
of the next layer, bottom of the waypoint (for a box: its top)."""


class LayeredLayout:
    """A layered drawing of boxes (Sugiyama's method).

    The number of layers is minimal. An edge over several layers passes the layers between at waypoints. Edges from one
    box share waypoints, as do edges to one box with more long edges than their starts. The order within a layer follows
    the mean position of neighbours in several sweeps, and positions are as close to the mean of the neighbours as the
    boxes allow.

    Args:
        edges: pairs of box numbers, the smaller first.

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
        self._sweeps = max(2, min(_SWEEPS, _MAX_UPDATES // max(len(self._layer), 1)))
        self._order()
        self._x = self._x_positions()
        self._tops, self._ends = self._y_positions()
        self.positions = [
            (self._x[i] - self._widths[i] / 2, self._tops[self._layer[i]]) for i in range(self._boxes)
        ]
        self.width = max((x + width for (x, _), width in zip(self.positions, self._widths)), default=0.0)
        self.width = max([self.width, *(x + _WIRE / 2 for x in self._x)])
        self.height = self._ends[-1] if self._ends else 0.0

    def _connect(self, edges: Sequence[tuple[int, int]]) -> None:
        """Insert waypoints into the layers that edges skip: one chain for all edges from a box, or to a box."""
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
        """Return a chain of new waypoints in the layers from `first` to before `last`."""
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
        """Sort each layer by the mean position of neighbours, down and up in turn."""
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
        """Store the positions of a layer's cells when packed around 0."""
        left_edge = -sum(self._widths[cell] + _ACROSS for cell in row) / 2
        for cell in row:
            half = (self._widths[cell] + _ACROSS) / 2
            at[cell] = left_edge + half
            left_edge += 2 * half

    def _x_positions(self) -> list[float]:
        """Return the centre of each cell, with the left edge of the leftmost cell at 0."""
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
        return [value - left for value in x]

    def _straight(self, cell: int) -> list[int]:
        """Return the cell above another if each is the other's only neighbour there, else all neighbours."""
        above = self._above[cell]
        if len(above) == 1 and len(self._below[above[0]]) == 1:
            return above
        return [*above, *self._below[cell]]

    def _align_to_neighbours(self, row: Sequence[int], x: list[float], near: Sequence[Sequence[int]]) -> None:
        """Move the cells of a layer towards the mean of their neighbours, without overlapping."""
        offsets, wanted, weights = [], [], []
        offset = 0.0
        for number, cell in enumerate(row):
            if number:
                offset += (self._widths[row[number - 1]] + self._widths[cell]) / 2 + _ACROSS
            others = near[cell]
            mean = sum(x[n] for n in others) / len(others) if others else x[cell]
            offsets.append(offset)
            wanted.append(mean - offset)
            # a bent line looks worse than a box off the centre of its neighbours
            weights.append(0.1 if not others else 4.0 if cell >= self._boxes else 1.0)
        for cell, offset, position in zip(row, offsets, _isotonic(wanted, weights)):
            x[cell] = position + offset

    def _y_positions(self) -> tuple[list[float], list[float]]:
        """Return the top and bottom of each layer."""
        tops, ends = [], []
        y = 0.0
        for row in self._rows:
            tops.append(y)
            ends.append(y + max(self._heights[cell] for cell in row))
            y = ends[-1] + _DOWN
        return tops, ends

    def lines(self) -> list[tuple[Curve, int]]:
        """Return the lines between neighbouring layers, with the number of the cell where each ends."""
        lines = []
        for cell, ends in enumerate(self._below):
            layer = self._layer[cell]
            top, border = self._tops[layer], self._ends[layer]
            bottom = top + self._heights[cell] if cell < self._boxes else border
            for end in ends:
                below = self._tops[layer + 1]
                stop = below if end < self._boxes else self._ends[layer + 1]
                lines.append(((self._x[cell], bottom, border, self._x[end], below, stop), end))
        return lines


def svg_path(line: Curve, x: float = 0.0, y: float = 0.0) -> str:
    """Return a line between two layers as commands of an SVG path."""
    start, bottom, border, end, below, stop = line
    start, end = start + x, end + x
    half = y + (border + below) / 2
    path = f"M{start:.1f} {y + bottom:.1f}" + (f"V{y + border:.1f}" if border != bottom else "")
    path += f"C{start:.1f} {half:.1f} {end:.1f} {half:.1f} {end:.1f} {y + below:.1f}"
    return path + (f"V{y + stop:.1f}" if stop != below else "")


def _layer_numbers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: below all its inputs; a box without inputs is directly above its first reader."""
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
    """Return the non-decreasing numbers closest to `wanted` in weighted least squares (isotonic regression).

    Source: M. Ayer et al., "An empirical distribution function for sampling with incomplete information" (1955).
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for value, weight in zip(wanted, weights):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] > mean:
            other, more, number = pools.pop()
            mean = (mean * total + other * more) / (total + more)
            total, count = total + more, count + number
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
