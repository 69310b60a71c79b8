"""Drawing a graph as SVG: boxes in layers, with inputs at the top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from .._core.markup import LINE, text
from ..base import Shape
from ..ops.spec import AUX, PARAM
from .layered_layout import LayeredLayout, svg_path
from .node import Graph, Node

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
