"""HTML and SVG for notebooks: escaped text, tables and small plots.

Colours come from the page, or are visible on light and dark pages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

LINE = "#808080"
"""A grey that is visible on white and on black."""

_COLORS = ("#4c8dd6", "#e07b39", "#4fa564", "#c0569f", "#9a8a2f", "#8273d9")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WIDTH, _HEIGHT = 240.0, 60.0


def text(value: object) -> str:
    """Return a value as text, escaped for HTML and XML.

    Example:
        >>> text("a<b & 'c'")
        'a&lt;b &amp; &#x27;c&#x27;'
    """
    return escape(_FORBIDDEN.sub("\ufffd", str(value)))


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table with escaped cells.

    Args:
        head: column titles; if empty, there is no title row.
    """
    style = f"border:1px solid {LINE};padding:2px 8px;text-align:left;color:inherit;background:transparent"

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f'<{tag} style="{style}">{text(cell)}</{tag}>' for cell in cells) + "</tr>"

    lines = [line(head, "th")] if head else []
    lines += [line(cells, "td") for cells in rows]
    cells = f'<table style="border-collapse:collapse;color:inherit">{"".join(lines)}</table>'
    return f'<div style="overflow-x:auto">{cells}</div>'


def section(title: object, body: str, is_open: bool = False) -> str:
    """Return a collapsible section; `body` is markup."""
    opened = ' open="open"' if is_open else ""
    return f"<details{opened}><summary>{text(title)}</summary>{body}</details>"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _frame(label: object, parts: Sequence[str], top: float, bottom: float, below: str = "") -> str:
    """Return a plot of `parts`, with the values of its upper and lower edge at the left, and a line below it."""
    marks = "".join(
        f'<text x="66" y="{y}" text-anchor="end" fill="{LINE}">{text(f"{value:.4g}")}</text>'
        for value, y in ((top, 12), (bottom, _HEIGHT + 4))
    )
    width, height = round(_WIDTH + 80), round(_HEIGHT + (28 if below else 12))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{text(label)}" width="{width}"'
        f' height="{height}" viewBox="0 0 {width} {height}" font-family="monospace" font-size="11">'
        f'<title>{text(label)}</title>{marks}<g transform="translate(72 6)">'
        f'<path d="M0 0V{_HEIGHT}H{_WIDTH}" fill="none" stroke="{LINE}"/>{"".join(parts)}{below}</g></svg>'
    )


def curve(lines: Sequence[tuple[str, Sequence[float], Sequence[float]]], label: str) -> str:
    """Return a small line plot as SVG, with a legend if it has several lines; "" if no value is finite.

    Args:
        lines: name, positions and values of each; values that are not finite are left out.
        label: description of the plot for screen readers.
    """
    kept = [
        (name, [(x, y) for x, y in zip(xs, ys) if math.isfinite(x) and math.isfinite(y)])
        for name, xs, ys in lines
    ]
    points = [point for _, line in kept for point in line]
    if not points:
        return ""
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def point(x: float, y: float) -> str:
        across = _fraction(x, left, right) * _WIDTH
        return f"{_number(across)} {_number((1 - _fraction(y, low, high)) * _HEIGHT)}"

    paths, names = [], []
    for number, (name, line) in enumerate(kept):
        color = _COLORS[number % len(_COLORS)]
        path = "L".join(point(x, y) for x, y in line)
        if line:
            width, cap = (4, "round") if len(line) == 1 else (1.5, "butt")
            paths.append(
                f'<path d="M{path}{"h0.1" if len(line) == 1 else ""}" fill="none" stroke="{color}"'
                f' stroke-width="{width}" stroke-linecap="{cap}"/>'
            )
        names.append(f'<tspan fill="{color}">{text(name)}</tspan>')
    middle = " ".join(names) if len(names) > 1 else ""
    texts = (
        (0, "start", text(f"{left:g}")),
        (_WIDTH / 2, "middle", middle),
        (_WIDTH, "end", text(f"{right:g}")),
    )
    below = "".join(
        f'<text x="{x:g}" y="{_HEIGHT + 15}" text-anchor="{anchor}" fill="{LINE}">{content}</text>'
        for x, anchor, content in texts
    )
    return _frame(label, paths, high, low, below)


def _fraction(value: float, low: float, high: float) -> float:
    """Return the relative position of a value in [low, high]; 0.5 if the bounds are equal or too far apart."""
    span = high - low
    return (value - low) / span if span > 0 and math.isfinite(span) else 0.5


def histogram(counts: Sequence[float], low: float, high: float) -> str:
    """Return a small histogram.

    Args:
        counts: number of values in each bin; all bins have one width.
    """
    most, width = max(counts), _WIDTH / len(counts)
    bars = [
        f'<rect x="{_number(i * width)}" y="{_number(_HEIGHT * (1 - count / most))}" width="{_number(width - 1)}"'
        f' height="{_number(_HEIGHT * count / most)}" fill="{_COLORS[0]}"/>'
        for i, count in enumerate(counts)
        if count
    ]
    return _frame(f"values from {low:.4g} to {high:.4g}", bars, most, 0)
