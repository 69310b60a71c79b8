"""`explain`: a report of batches and times; and Graphviz output of graphs."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from .._core import markup
from .errors import StateError
from .graph import ExecutedBatch
from .ops.spec import format_dim
from .python_engine.signature import EXTRA
from .session import state


@dataclass(frozen=True, slots=True)
class OperationRow:
    """Batches of the nodes of one kind: one operation with equal shapes, parameters and attributes.

    Attributes:
        operation: name of the operation; fused operations are joined with "+".
        label: operation with shapes.
        why: reason why nodes were computed alone, "" if none was.
        execution: how user code runs a batch, "" for one call.
        repeats: number of nodes reusing the value of an equal node; fused ones count once.
    """

    operation: str
    label: str
    nodes: int
    batches: int
    largest: int
    mean: float
    alone: int
    why: str = ""
    execution: str = ""
    repeats: int = 0

    def cells(self) -> list[str]:
        """Return the row's cells as strings."""
        repeats = f"{self.repeats:,} equal to others, computed once" if self.repeats else ""
        counts = [f"{self.nodes:,}", f"{self.batches:,}", f"{self.largest:,}", f"{self.mean:.1f}"]
        return [
            self.label,
            *counts,
            f"{self.alone:,}" if self.alone else "",
            "; ".join(filter(None, (self.execution, repeats, self.why))),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Report of the computations since `renew_cg`: a table and, in a notebook, also a picture.

    Attributes:
        engine: "native" or "python".
        is_batched: True if autobatching is on.
        nodes: number of computed operations.
        forwards: number of requests for values.
        rows: one row per kind of node, those with most nodes first.
        sequence: (operation, label, size) of every batch, in order.
        seconds: time spent in "build" (the program, between runs), "schedule", "run" and "backward".
    """

    engine: str
    is_batched: bool
    nodes: int
    forwards: int
    rows: tuple[OperationRow, ...]
    sequence: tuple[tuple[str, str, int], ...]
    seconds: Mapping[str, float]

    @property
    def batches(self) -> int:
        """Number of calls."""
        return len(self.sequence)

    @property
    def saved(self) -> int:
        """Number of calls saved: operations minus calls."""
        return self.nodes - self.batches

    @property
    def table(self) -> str:
        """The kinds of nodes as a table."""
        head = ["operation", "nodes", "batches", "largest", "mean", "alone", "note"]
        rows = [head, *(row.cells() for row in self.rows)]
        columns = [list(column) for column in zip(*rows) if any(column[1:])]
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                cell.ljust(width) if column[0] in ("operation", "note") else cell.rjust(width)
                for cell, width, column in zip(cells, widths, columns)
            ).rstrip()
            for cells in zip(*columns)
        ]
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule])

    @property
    def totals(self) -> str:
        """Total calls and times."""
        on = "on" if self.is_batched else "off"
        width = self.nodes / max(self.batches, 1)
        asked = f" in {self.forwards} forwards" if self.forwards > 1 else ""
        spent = sum(self.seconds.values()) or 1.0
        times = ", ".join(
            f"{name} {_duration(seconds)} ({seconds / spent:.0%})" for name, seconds in self.seconds.items()
        )
        return (
            f"{self.engine} engine, autobatching {on}: {self.nodes:,} operations in {self.batches:,} calls{asked},"
            f" {self.saved:,} calls saved, {width:.1f} operations a call\ntime: {times}"
        )

    def __str__(self) -> str:
        return f"{self.table}\n{self.totals}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_svg_(self) -> str:
        return _Picture(self.sequence).text()

    def _repr_html_(self) -> str:
        return f"<div>{self._repr_svg_()}<pre>{markup.text(str(self))}</pre></div>"


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


class _Picture:
    """Bar chart of batches in order of computation, with logarithmic height."""

    MOST = 600
    HEIGHT, LEFT, TOP, WIDTH = 160, 46, 12, 720

    def __init__(self, sequence: Sequence[tuple[str, str, int]]) -> None:
        self._sequence = sequence[: self.MOST]
        self._left_out = len(sequence) - len(self._sequence)
        self._names = list(dict.fromkeys(name for name, _, _ in self._sequence))
        # steps of the golden angle give neighbours distinct hues
        self._colours = {name: f"hsl({round(i * 137.5) % 360},55%,52%)" for i, name in enumerate(self._names)}
        self._top = max(size for _, _, size in self._sequence)

    def text(self) -> str:
        """Return the chart as SVG."""
        legend_rows = (len(self._names) + 3) // 4
        height = self.TOP + self.HEIGHT + 26 + 16 * legend_rows
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.WIDTH + self.LEFT + 10} {height}" '
            f'width="{self.WIDTH + self.LEFT + 10}" height="{height}" style="max-width:100%;height:auto" '
            'font-family="sans-serif" font-size="11" role="img">',
            "<title>Batches in order of computation, with their sizes</title>",
            *self._grid(),
            *self._bars(),
            *self._legend(),
            "</svg>",
        ]
        return "\n".join(parts)

    def _y(self, size: float) -> float:
        return self.TOP + self.HEIGHT * (1 - math.log2(size + 1) / math.log2(self._top + 1))

    def _grid(self) -> list[str]:
        marks = sorted({1, self._top, *(4**power for power in range(1, 12) if 4**power <= self._top / 2)})
        parts = []
        for size in marks:
            y = self._y(size)
            parts.append(
                f'<line x1="{self.LEFT}" y1="{y:.1f}" x2="{self.LEFT + self.WIDTH}" y2="{y:.1f}" stroke="#8888" '
                f'stroke-width="0.5"/><text x="{self.LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" '
                f'fill="currentColor">{size}</text>'
            )
        more = f"; {self._left_out:,} more are not drawn" if self._left_out else ""
        text = f"{len(self._sequence):,} batches in order of computation, height: size{more}"
        parts.append(
            f'<text x="{self.LEFT}" y="{self.TOP + self.HEIGHT + 15}" fill="currentColor">{text}</text>'
        )
        return parts

    def _bars(self) -> list[str]:
        step = self.WIDTH / len(self._sequence)
        gap = min(1.0, step / 5)
        bottom = self.TOP + self.HEIGHT
        parts = []
        for place, (name, label, size) in enumerate(self._sequence):
            y = self._y(size)
            title = f"<title>{markup.text(label)}: {size}</title>"
            parts.append(
                f'<rect x="{self.LEFT + place * step:.2f}" y="{y:.1f}" width="{step - gap:.2f}" '
                f'height="{bottom - y:.1f}" fill="{self._colours[name]}">{title}</rect>'
            )
        return parts

    def _legend(self) -> list[str]:
        parts = []
        for place, name in enumerate(self._names):
            x = self.LEFT + (place % 4) * self.WIDTH / 4
            y = self.TOP + self.HEIGHT + 34 + 16 * (place // 4)
            short = name if len(name) < 27 else f"{name[:25]}..."
            parts.append(
                f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" fill="{self._colours[name]}"/>'
                f'<text x="{x + 14:.0f}" y="{y}" fill="currentColor">{markup.text(short)}</text>'
            )
        return parts


def explain() -> Explanation:
    """Report which batches the graph under construction has computed, and how; print the result.

    In a notebook it also shows a chart with one bar per batch.

    Raises:
        StateError: nothing has been computed since `renew_cg`.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> dy.renew_cg(autobatching=True) is dy.cg()
        True
        >>> xs = [dy.inputTensor([1.0, 2.0]) for _ in range(8)]
        >>> dy.forward([dy.tanh(x) for x in xs])
        >>> found = dy.explain()
        >>> [(row.operation, row.batches, row.largest) for row in found.rows if row.operation == "tanh"]
        [('tanh', 1, 8)]
    """
    graph = state.graph
    batches = graph.executed_batches()
    if not batches:
        has_sources = graph.computed > 0
        raise StateError(
            "explain: since renew_cg() only parameters, inputs, table rows and random numbers were requested, for"
            " which nothing is computed; ask for the value of an operation on them"
            if has_sources
            else "explain: nothing has been computed since renew_cg(); ask for a value first, for example"
            " with loss.value() or loss.backward()"
        )
    return Explanation(
        engine=graph.engine_name,
        is_batched=graph.is_batched,
        nodes=sum(batch.nodes for batch in batches),
        forwards=len({batch.forward for batch in batches}),
        rows=tuple(_rows(batches, graph.is_batched)),
        sequence=tuple((batch.operation, batch.label, batch.calls) for batch in batches),
        seconds=graph.seconds(),
    )


def _rows(batches: Sequence[ExecutedBatch], is_batched: bool) -> list[OperationRow]:
    """Return one row for every kind of node, the largest first."""
    kinds: dict[object, list[ExecutedBatch]] = {}
    for batch in batches:
        kinds.setdefault(batch.kind, []).append(batch)
    groups = list(kinds.values())
    rows = []
    for group in groups:
        alone = sum(1 for batch in group if batch.calls == 1)
        reason = _why_alone(group, groups, is_batched) if alone else ""
        rows.append(
            OperationRow(
                operation=group[0].operation,
                label=group[0].label,
                nodes=sum(batch.nodes for batch in group),
                batches=len(group),
                largest=max(batch.calls for batch in group),
                mean=sum(batch.calls for batch in group) / len(group),
                alone=alone,
                why=reason,
                execution=group[0].execution,
                repeats=sum(batch.repeats for batch in group),
            )
        )
    return sorted(rows, key=lambda row: (-row.nodes, row.label))


def _why_alone(
    group: Sequence[ExecutedBatch], groups: Sequence[Sequence[ExecutedBatch]], is_batched: bool
) -> str:
    """Return why nodes of a kind were computed alone."""
    if not is_batched:
        return "batching is off; see configure(autobatch=True)"
    first = group[0]
    if first.never_batched:
        return f"never batched: {first.never_batched}"
    if len(group) > 1:
        alone = {batch.forward for batch in group if batch.calls == 1}
        within = any(sum(1 for batch in group if batch.forward == forward) > 1 for forward in alone)
        if within:
            return "others of its kind depend on it, or it on them"
        return "others of its kind were computed in another forward; ask for the last expression first"
    near = _nearest(first, groups)
    if near is None:
        return "the only one of its kind"
    return f"the only one of its kind; nearest: {near.label}, which has different {_difference(first, near)}"


def _nearest(batch: ExecutedBatch, groups: Sequence[Sequence[ExecutedBatch]]) -> ExecutedBatch | None:
    """Return the most similar batch of the same operation but of another kind."""
    others = [
        each[0] for each in groups if each[0].operation == batch.operation and each[0].kind != batch.kind
    ]
    if not others:
        return None
    return max(others, key=lambda other: SequenceMatcher(None, batch.label, other.label).ratio())


def _difference(one: ExecutedBatch, other: ExecutedBatch) -> str:
    if one.dims != other.dims or one.out != other.out:
        return "shapes"
    if one.parameters != other.parameters:
        return "parameters"
    return "attributes" if one.others != other.others else "operands"


def graphviz_text() -> str:
    """Return the graph under construction in Graphviz's DOT language."""
    graph = state.graph
    lines = ["digraph G {", "  rankdir=LR;", "  nodesep=.05;"]
    for node in range(graph.size):
        name = graph.operation_of(node)
        args = graph.operands(node)
        label = "result" if name == EXTRA.name else name.replace("\\", "\\\\").replace('"', '\\"')
        operands = ", ".join(f"v{arg}" for arg in args)
        lines.append(f'  N{node} [label="v{node} = {label}({operands}) {format_dim(graph.dim(node))}"];')
        lines += [f"  N{arg} -> N{node};" for arg in args]
    return "\n".join([*lines, "}"]) + "\n"


def print_text_graphviz() -> None:
    """Print the graph under construction in Graphviz's DOT language.

    Source: DyNet's `print_text_graphviz`.
    """
    sys.stdout.write(graphviz_text())


def print_graphviz(**kwargs: Any) -> None:
    """Same as `print_text_graphviz`; DyNet's drawing options are ignored."""
    print_text_graphviz()
