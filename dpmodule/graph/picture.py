"""Drawing a graph as SVG: boxes in layers, with inputs at the top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from .._core.markup import LINE, text
from ..base import Shape
from ..ops.spec import AUX, PARAM
from .node import Graph, Node

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


_MAX_BLOCK = 200
"""Maximal number of operators of a repeated block."""
_MIN_SAVED = 4
"""Minimal number of operators that folding a repetition saves."""


class Repeat(NamedTuple):
    """A repeated block: its start, its number of operators, and its number of repetitions."""

    start: int
    size: int
    times: int

    @property
    def end(self) -> int:
        """The first position after the last repetition."""
        return self.start + self.size * self.times


def find_repeats(
    kinds: Sequence[int], inputs: Sequence[Sequence[int]], first: int, last: int
) -> dict[int, Repeat]:
    """Return the repeated blocks in a part of a graph, by their first position; they do not overlap.

    Two operators are equal if they are of one kind, and each input of the second has the same offset as that of the
    first, or is the same node before all repetitions. Operators after the repetitions may read the last one, or the
    same outputs of all of them.

    Args:
        kinds: kind of each node, in topological order.

    Example:
        >>> find_repeats([0, 1, 2, 1, 2, 1, 2], [[], [0], [1], [2], [3], [4], [5]], 0, 7)
        {1: Repeat(start=1, size=2, times=3)}
    """
    ends: dict[int, int] = {}
    for position in range(first, len(inputs)):
        for node in inputs[position]:
            ends[node] = position
    repeats = []
    for size in range(1, min((last - first) // 2, _MAX_BLOCK) + 1):
        for repeat, end in _of_size(kinds, inputs, size, first, last):
            repeats += _trimmed(_best(inputs, ends, repeat, end), ends)
    repeats.sort(key=lambda repeat: (-repeat.size * (repeat.times - 1), repeat.size, repeat.start))
    taken = [False] * (last - first)
    chosen = {}
    for repeat in repeats:
        span = slice(repeat.start - first, repeat.end - first)
        if not any(taken[span]):
            taken[span] = [True] * (repeat.end - repeat.start)
            chosen[repeat.start] = repeat
    return chosen


def _of_size(
    kinds: Sequence[int], inputs: Sequence[Sequence[int]], size: int, first: int, last: int
) -> list[tuple[Repeat, int]]:
    """Return the repetitions of one block size that are worth folding, and the end of the equal nodes."""
    repeats = []
    start = first
    for position in range(first, last - size + 1):
        common = _common(kinds, inputs, position, size) if position + size < last else None
        if common is not None and common < start:
            continue
        count = (position - start) // size + 1
        if size * (count - 1) >= _MIN_SAVED:
            repeats.append((Repeat(start, size, count), position + size))
        start = position + 1 if common is None else common + 1
    return repeats


def _common(kinds: Sequence[int], inputs: Sequence[Sequence[int]], position: int, size: int) -> int | None:
    """Return None if a node differs from the one a block later, else the last input they share, or -1."""
    here, there = inputs[position], inputs[position + size]
    if kinds[position] != kinds[position + size] or len(here) != len(there):
        return None
    common = -1
    for a, b in zip(here, there):
        if b - a != size:
            if a != b:
                return None
            common = max(common, a)
    return common


def _trimmed(repeat: Repeat, ends: Mapping[int, int]) -> list[Repeat]:
    """Drop leading blocks whose outputs are read after the repetition, unless those of all blocks are."""
    while repeat.size * (repeat.times - 1) >= _MIN_SAVED:
        start, size, _ = repeat
        outside = [
            {i - block for i in range(block, block + size) if ends.get(i, -1) >= repeat.end}
            for block in range(start, repeat.end, size)
        ]
        if set().union(*outside[:-1]) <= set.intersection(*outside):
            return [repeat]
        repeat = Repeat(start + size, size, repeat.times - 1)
    return []


def _best(inputs: Sequence[Sequence[int]], ends: Mapping[int, int], repeat: Repeat, end: int) -> Repeat:
    """Shift the repetition to the start at which the fewest values leave a block."""

    def leaving(start: int) -> int:
        border, last = start + repeat.size, start + repeat.size * repeat.times
        block = range(border, border + repeat.size)
        crossing = {a for i in block for a in inputs[i] if start <= a < border}
        return len(crossing) + sum(ends.get(i, -1) >= last for i in range(last - repeat.size, last))

    starts = range(repeat.start, end - repeat.size * repeat.times + 1)
    return repeat._replace(start=min(starts, key=leaving))


LARGEST = 2000
"""Maximal number of nodes of a graph that is drawn."""

_COLORS = ("#8dd3c7", "#fb8072", "#ffffb3", "#bebada", "#80b1d3", "#fdb462", "#b3de69", "#fccde5")
_KINDS = {
    "Convolution": 1,
    "Deconvolution": 1,
    "FullyConnected": 1,
    "Activation": 2,
    "LeakyReLU": 2,
    "BatchNorm": 3,
    "Pooling": 4,
    "Flatten": 5,
    "Reshape": 5,
    "Concat": 5,
    "Softmax": 6,
}
_INK, _EDGE = "#1a1a1a", "#555555"
_LETTER, _ROW, _PAD = 6.8, 14.0, 8.0
"""Width of a letter, height of a row of text, and padding of a box, in pixels."""
_MAX_LETTERS = 30
"""Maximal number of letters of a row of text."""
_MARGIN = 18.0
"""Margin between a frame and its boxes."""


def color(node: Node) -> str:
    """Return the colour of a node's box, which depends on the kind of its operator."""
    if node.op is None:
        return _COLORS[0]
    kind = "Softmax" if "softmax" in node.op.name.lower() else node.op.name
    return _COLORS[_KINDS.get(kind, 7)]


def detail(node: Node) -> str:
    """Return a summary of an operator's main attributes, such as "3x3/1, 8"; "" for most operators."""
    if node.op is None:
        return ""
    a, kind = node.a, node.op.name

    def size(value: Any) -> str:
        return "x".join(map(str, value or (1,)))

    if kind in ("Convolution", "Deconvolution"):
        return f"{size(a.kernel)}/{size(a.stride)}, {a.num_filter}"
    if kind == "FullyConnected":
        return str(a.num_hidden)
    if kind in ("Activation", "LeakyReLU"):
        return str(a.act_type)
    if kind == "Pooling":
        return f"{a.pool_type}, {size(a.kernel)}/{size(a.stride)}"
    return ""


def draw(
    graph: Graph, shapes: Mapping[Node, Sequence[Shape | None]] | None = None, hide_weights: bool = True
) -> str | None:
    """Return a graph as SVG; None if it has more than `LARGEST` nodes.

    Repeated blocks are drawn once, in a frame with the number of repetitions.

    Args:
        shapes: shapes of every node's outputs; boxes show the first one.
    """
    if len(graph.nodes) > LARGEST:
        return None
    sheet = _Drawing(graph, shapes or {}, hide_weights)
    whole = sheet.frame(0, len(sheet.nodes), 1)
    parts: list[str] = []
    whole.write(parts, 0.0, 0.0)
    names = ", ".join(graph.output_names)
    width, height = f"{whole.width:.0f}", f"{whole.height:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="network of {text(names)}"'
        f' width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-size="11"'
        f' font-family="ui-monospace, Menlo, Consolas, monospace" text-anchor="middle">\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


def _weights(graph: Graph) -> set[Node]:
    """Return the variables that are only parameters and auxiliary states."""
    read: dict[Node, bool] = {}
    for node in graph.nodes:
        declared = [] if node.op is None else node.op.active_inputs(node.a, len(node.inputs))
        for number, (child, _) in enumerate(node.inputs):
            is_weight = number < len(declared) and declared[number].kind in (PARAM, AUX)
            read[child] = read.get(child, True) and is_weight
    heads = {node for node, _ in graph.heads}
    return {node for node, only in read.items() if only and node.op is None and node not in heads}


class _Drawing:
    """The drawn nodes of a graph in order, with numbers that are equal for equal nodes.

    Args:
        shapes: shapes of every node's outputs, or nothing.
    """

    def __init__(
        self, graph: Graph, shapes: Mapping[Node, Sequence[Shape | None]], hide_weights: bool
    ) -> None:
        hidden = _weights(graph) if hide_weights else set()
        self.nodes = [node for node in graph.nodes if node not in hidden]
        self._shapes = {
            node: "x".join(map(str, shapes[node][0] or ())) if node in shapes else "" for node in self.nodes
        }
        self._heads = {node for node, _ in graph.heads}
        index = {node: number for number, node in enumerate(self.nodes)}
        self._inputs = [[index[c] for c, _ in node.inputs if c in index] for node in self.nodes]
        self._last_reader = list(range(len(self.nodes)))
        for number, inputs in enumerate(self._inputs):
            for value in inputs:
                self._last_reader[value] = number
        kinds: dict[Any, int] = {}
        self._kinds = [kinds.setdefault(self._kind(node), len(kinds)) for node in self.nodes]

    def _kind(self, node: Node) -> tuple[Any, ...]:
        subgraphs = tuple(len(graph.nodes) for graph in node.subgraphs)
        return node.op and node.op.name, tuple(node.params.items()), subgraphs, self._shapes[node]

    def frame(self, first: int, last: int, count: int) -> _Frame:
        """Return the layout of a part of the nodes.

        Args:
            first: index of the first node.
        """
        repeats = find_repeats(self._kinds, self._inputs, first, last)
        items: list[_Box | _Frame] = []
        owner: dict[int, int] = {}
        position = first
        while position < last:
            repeat = repeats.get(position)
            end = repeat.end if repeat else position + 1
            owner.update(dict.fromkeys(range(position, end), len(items)))
            items.append(
                self.frame(position, position + repeat.size, repeat.times) if repeat else self._box(position)
            )
            position = end
        edges = [(owner[a], owner[b]) for b in owner for a in self._inputs[b] if a in owner]
        entered = {owner[b] for b in owner if any(a < first for a in self._inputs[b])}
        left = {owner[a] for a in owner if self._last_reader[a] >= last}
        return _Frame(items, [(a, b) for a, b in edges if a != b], count, entered, left)

    def _box(self, number: int) -> _Box:
        node = self.nodes[number]
        return _Box(node, self._shapes[node], node in self._heads)


def _length(words: str) -> int:
    """Return the width of a text in letters; wide characters such as Chinese count twice."""
    return len(words) + sum(east_asian_width(letter) in "WF" for letter in words)


def _shortened(words: str) -> str:
    """Return a text that fits into a row, with its middle cut out if necessary."""
    if _length(words) <= _MAX_LETTERS:
        return words
    half = _MAX_LETTERS // (4 if _length(words) > len(words) else 2) - 1
    return f"{words[:half]}\u2026{words[-half:]}"


class _Box:
    """A node: a rectangle with its operator and name.

    Args:
        shape: shape of its first output as text, or "".
    """

    def __init__(self, node: Node, shape: str, is_head: bool) -> None:
        self._node = node
        self._is_head = is_head
        inside = f"{len(node.subgraphs[0].nodes)} nodes inside" if node.subgraphs else ""
        kind = "" if node.op is None else node.op.name
        rows = [kind, detail(node), inside, node.name, shape]
        self._rows = [_shortened(row) for row in rows if row]
        self.width = max(map(_length, self._rows), default=0) * _LETTER + 2 * _PAD
        self.height = len(self._rows) * _ROW + 2 * _PAD - 2

    def write(self, parts: list[str], x: float, y: float) -> None:
        """Add the box, with its top left corner at (x, y)."""
        node, width, height = self._node, self.width, self.height
        about = "\n".join([node.describe(), *(f"{key} = {value}" for key, value in node.params.items())])
        corner = 4 if node.op is not None else height / 2
        parts.append(
            f'<g><title>{text(about)}</title><rect class="box" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
            f' height="{height:.1f}" rx="{corner:.0f}" fill="{color(node)}" stroke="{_EDGE}"'
            f' stroke-width="{2.5 if self._is_head else 1}"/>'
        )
        for number, row in enumerate(self._rows):
            weight = ' font-weight="bold"' if number == 0 else ""
            down = y + _PAD + _ROW * number + 10
            parts.append(
                f'<text x="{x + width / 2:.1f}" y="{down:.1f}" fill="{_INK}"{weight}>{text(row)}</text>'
            )
        parts.append("</g>")


class _Frame:
    """A layout of boxes and frames with lines; the frame itself is drawn around repeated blocks."""

    def __init__(
        self,
        items: Sequence[_Box | _Frame],
        edges: Sequence[tuple[int, int]],
        count: int,
        entered: set[int],
        left: set[int],
    ) -> None:
        self._items = items
        self._count = count
        sizes = [(item.width, item.height) for item in items]
        joined = list(edges)
        if count > 1:  # inputs and outputs pass through two points
            sizes = [(0.0, 0.0), *sizes, (0.0, 0.0)]
            joined = [(a + 1, b + 1) for a, b in edges]
            joined += [(0, each + 1) for each in sorted(entered)]
            joined += [(each + 1, len(items) + 1) for each in sorted(left)]
        self._layers = LayeredLayout(sizes, joined)
        self.width: float = max(self._layers.width, 24.0) + 2 * _MARGIN
        self.height: float = self._layers.height + 2 * _MARGIN

    def write(self, parts: list[str], x: float, y: float) -> None:
        """Add the contents and the frame, with the top left corner at (x, y)."""
        across, down = x + _MARGIN, y + _MARGIN
        positions, end = self._layers.positions, len(self._items)
        lines = self._layers.lines()
        strokes = [svg_path(line, across, down) for line, _ in lines]
        if self._count > 1:
            strokes += self._write_frame(parts, x, y)
            positions, end = positions[1:-1], end + 1
        tips = [
            f"M{line[3] + across:.1f} {line[5] + down:.1f}l-3.5 -7h7z" for line, cell in lines if cell < end
        ]
        if strokes:
            parts.append(f'<path d="{"".join(strokes)}" fill="none" stroke="{LINE}"/>')
        if tips:
            parts.append(f'<path d="{"".join(tips)}" fill="{LINE}"/>')
        for item, (left, top) in zip(self._items, positions):
            item.write(parts, across + left, down + top)

    def _write_frame(self, parts: list[str], x: float, y: float) -> list[str]:
        """Add the frame and its number of repetitions; return the paths from its edge to its entry and exit points."""
        parts.append(
            f'<g><title>repeats {self._count} times</title><rect class="frame" x="{x:.1f}" y="{y:.1f}"'
            f' width="{self.width:.1f}" height="{self.height:.1f}" rx="8" fill="none" stroke="{LINE}"'
            f' stroke-dasharray="5 3"/><text x="{x + 6:.1f}" y="{y + 14:.1f}" fill="{LINE}" font-weight="bold"'
            f' text-anchor="start">\u00d7{self._count}</text></g>'
        )
        middle, bottom = x + self.width / 2, y + self.height
        first, last = (
            place[0] + x + _MARGIN for place in (self._layers.positions[0], self._layers.positions[-1])
        )
        return [
            svg_path((middle, y, y, first, y + _MARGIN, y + _MARGIN), 0.0, 0.0),
            svg_path((last, bottom - _MARGIN, bottom - _MARGIN, middle, bottom, bottom), 0.0, 0.0),
        ]
