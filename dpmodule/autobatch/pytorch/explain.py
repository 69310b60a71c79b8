"""What a block of `batching` ran together, and why the rest did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from .rules import CallGroup, by_vmap, one_by_one


class BatchingReport:
    """A report on a block; ``print`` it, or read `groups`. In notebooks it is a picture.

    Attributes:
        groups: for every kind of call: name, shapes of the operands, number of operations, number of calls of torch.
        reads: number of reads of values by line of the program.
    """

    def __init__(
        self, groups: Sequence[tuple[CallGroup, int, int]], reads: Mapping[str, int], why_not: str
    ) -> None:
        self.groups = [(group.name, tuple(group.shapes), nodes, calls) for group, calls, nodes in groups]
        self.reads = dict(reads)
        self._rules = [_way(group) for group, _, _ in groups]
        self._why_not = why_not

    def __str__(self) -> str:
        if self._why_not:
            return f"Nothing was recorded, and every operation ran immediately: {self._why_not}."
        rows = sorted(zip(self.groups, self._rules), key=lambda row: -row[0][3])
        operations, calls = sum(each[2] for each in self.groups), sum(each[3] for each in self.groups)
        lines = [f"{operations} operations ran as {calls} calls of torch."]
        if rows:
            lines += ["", f"{'operation':20}{'operations':>11}{'calls':>7}  shapes of one example"]
        for (name, shapes, nodes, count), way in rows:
            lines.append(f"{name:20}{nodes:11}{count:7}  {', '.join(map(str, shapes))}{way}")
        names = [name for name, *_ in self.groups]
        split = sorted({name for name in names if names.count(name) > 1})
        if split:
            lines += ["", f"Other shapes, dtypes or arguments do not share a call: {', '.join(split)}."]
        if self.reads:
            lines += [
                "",
                "Values read inside, which ran without company (await them in a program of autobatch.map):",
            ]
            lines += [
                f"  {line}: {count} times"
                for line, count in sorted(self.reads.items(), key=lambda each: -each[1])
            ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        """Return a picture for notebooks: operations in a call, on average, for the most frequent kinds."""
        kinds: dict[str, tuple[int, int]] = {}
        for name, _, nodes, calls in self.groups:
            before = kinds.get(name, (0, 0))
            kinds[name] = before[0] + nodes, before[1] + calls
        rows = sorted(kinds.items(), key=lambda each: -each[1][0])[:12]
        most = max((nodes / calls for _, (nodes, calls) in rows), default=1.0)
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="560" height="{30 + 22 * len(rows)}"'
            ' font-family="sans-serif" font-size="12">'
            '<text x="130" y="16">operations in a call of torch, on average</text>'
        ]
        for number, (name, (nodes, calls)) in enumerate(rows):
            top, width = 26 + 22 * number, max(1, round(240 * nodes / calls / most))
            lines += [
                f'<text x="122" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="130" y="{top}" width="{width}" height="16" fill="#4c72b0"/>',
                f'<text x="{138 + width}" y="{top + 13}">{nodes / calls:.0f} ({nodes} in {calls} calls)</text>',
            ]
        return "\n".join([*lines, "</svg>"])


def _way(group: CallGroup) -> str:
    if group.rule is by_vmap:
        return " (by torch.vmap)"
    return " (one by one)" if group.rule is one_by_one else ""
