"""Draw the pictures of the architecture pages: the layers of `setup.cfg`, and diagrams of boxes and arrows.

``python docs/pictures.py OUT`` writes ``OUT/*.svg``; the build of the site calls `write`. The files are in git, so that
the pages show them elsewhere, too; `tests/test_site.py` checks that they are current.
"""

from __future__ import annotations

import sys
from configparser import ConfigParser
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

from dpmodule._core.markup import LINE, text
from dpmodule.graph.picture import LayeredLayout, svg_path

ROOT = Path(__file__).resolve().parents[1]

HOLDERS = """
Module > DataParallelExecutorGroup, Updates
DataParallelExecutorGroup > BatchSplitter, ParamStore, Executor
Updates > KVStore, Updater
Updater > Optimizer
Executor > Binding, Program
Binding > "arrays of" > ParamStore
Updates > "weights and gradients of" > ParamStore
"""
"""Objects and what they hold; text in quotes is written on the arrow."""

BATCH_PATH = """
iterator > "DataBatch" > module > "parts" > group > "tensors" > executor > "steps" > kernels
executor > "outputs" > metric
kernels > "gradients" > parameter store > optimizer > "in place" > its weights
"""
"""The path of a batch, in the same form."""

LETTER, HEIGHT, GAP = 7.0, 26.0, 8.0
"""Width of a letter, height of a box, distance between boxes of a layer, in pixels."""

INK, FILL, EDGE = "#1a1a1a", "#dbe9f6", "#555555"


def width_of(words: str) -> float:
    """Return the width of the box around a text."""
    return len(words) * LETTER + 16


def box(words: str, x: float, y: float, width: float) -> str:
    """Return a box with a text at a position; a text in quotes has no box."""
    label = words.strip('"')
    middle = f'x="{x + width / 2:.1f}" y="{y + HEIGHT / 2 + 4.5:.1f}"'
    if label != words:
        return f'<text {middle} fill="{LINE}" font-style="italic">{text(label)}</text>'
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT:.0f}" rx="4" fill="{FILL}"'
        f' stroke="{EDGE}"/><text {middle} fill="{INK}">{text(label)}</text>'
    )


def svg(title: str, width: float, height: float, parts: list[str]) -> str:
    """Return a picture of a size, with a title for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="-4 -4 {width + 8:.0f} {height + 8:.0f}"'
        f' width="{width + 8:.0f}" font-family="sans-serif" font-size="13" text-anchor="middle">\n'
        f"<title>{text(title)}</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def layers(title: str) -> str:
    """Draw the import contract: a row of packages for each layer, which imports only from rows below."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    rows = config["importlinter:contract:layers"]["layers"].strip().splitlines()
    names = [[name.strip(" ()") for name in row.split("|")] for row in rows]
    left, step, parts = 24.0, HEIGHT + GAP, []
    whole = max(sum(width_of(name) + GAP for name in row) for row in names)
    for number, row in enumerate(names):
        x, more = left, (whole - sum(width_of(name) + GAP for name in row)) / len(row)
        for name in row:
            parts.append(box(name, x, number * step, width_of(name) + more))
            x += width_of(name) + more + GAP
    height = len(names) * step - GAP
    parts.append(f'<path d="M4 0V{height:.0f}l-4-8h8l-4 8" fill="{LINE}" stroke="{LINE}"/>')
    return svg(title, left + whole - GAP, height, parts)


def diagram(title: str, lines: str) -> str:
    """Draw boxes and arrows.

    Args:
        title: text for screen readers.
        lines: chains of names, "a > b > c, d". A name in quotes is a text on an arrow.
    """
    above: dict[str, list[str]] = {}
    for line in lines.strip().splitlines():
        for start, ends in pairwise(line.split(" > ")):
            for end in ends.split(", "):
                above.setdefault(end, []).append(start)
    names = list(TopologicalSorter(above).static_order())
    edges = [(names.index(start), names.index(end)) for end in names for start in above.get(end, ())]
    order = LayeredLayout([(width_of(name), HEIGHT) for name in names], edges)
    boxes = {number for number, name in enumerate(names) if not name.startswith('"')}
    ways = order.lines()
    arrows = "".join(f"M{line[3]:.1f} {line[5]:.1f}l-3.5-7h7z" for line, end in ways if end in boxes)
    parts = [f'<path d="{"".join(svg_path(line) for line, _ in ways)}" fill="none" stroke="{LINE}"/>']
    parts += [f'<path d="{arrows}" fill="{LINE}"/>']
    parts += [box(name, *place, width_of(name)) for name, place in zip(names, order.positions)]
    return svg(title, order.width, order.height, parts)


def pictures() -> dict[str, str]:
    """Return all pictures by their names."""
    return {
        "layers.svg": layers("Packages in layers, each of which imports only from those below it"),
        "objects.svg": diagram("Objects and what they hold", HOLDERS),
        "batch_path.svg": diagram("The path of a batch", BATCH_PATH),
    }


def write(folder: Path) -> None:
    """Write the pictures that have changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures().items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != picture:
            file.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
