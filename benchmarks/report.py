"""Show figures as they come, and write them as RESULTS.md."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from harness import Spread

__all__ = ["Report", "Row"]


@dataclass(frozen=True)
class Row:
    """A comparison of ours with the fastest plain loop; times of a batch in milliseconds.

    Attributes:
        title: what was run.
        cpu: CPU time of ours.
        wall: wall time of ours.
        plain_cpu: CPU time of the plain loop.
        plain_wall: wall time of the plain loop.
        variant: which plain loop.
        ratio: ours / plain by CPU time, round by round.
        target: largest ratio wanted; None = recorded only.
    """

    title: str
    cpu: Spread
    wall: Spread
    plain_cpu: Spread
    plain_wall: Spread
    variant: str
    ratio: Spread
    target: float | None


def _verdict(met: bool, target: str) -> str:
    return f"{target}: {'met' if met else 'MISSED'}"


_ABOUT = """\
# Benchmark results

Written by `python benchmarks/fit.py --write`. How the figures are taken:

- Each side runs in a process of its own, one intra-op thread, in turns: in every round each side trains one epoch,
  so that the rest of the machine disturbs all of them alike. A figure is the median of the rounds, with the quartiles
  in brackets. Ratios are taken round by round. CPU time is that of all threads of the process; on a shared machine
  it says more than wall time, but caches and clock are shared too, so expect 5-10 % from run to run.
- "Plain" is the same network and loop in plain PyTorch, in every combination of NCHW or channels_last (data and
  weights brought to it beforehand), foreach or fused `torch.optim.SGD`, tensor slices or `DataLoader`, with
  `zero_grad(set_to_none=True)` and `F.cross_entropy`. The combination with the least median CPU time counts, and is
  named. Batch size 64, momentum SGD.
- Ours is `Module.fit` on an `NDArrayIter` with its defaults, so it also looks for NaN in every batch's outputs. "No
  metric" is `eval_metric=[]`.
- Before timing, both sides train some batches from the same weights; losses and parameters must agree, for every
  variant. The difference of parameters counts as a share of how far training has moved them.
- Peak memory is `ru_maxrss` of a process that does nothing but train the MLP, five epochs of 20 batches
  (4 MB of images).
- Lightning runs with logger, checkpoints, progress bar and summary off, and `self.log` of the accuracy each batch.
"""


class Report:
    """Collects figures.

    Args:
        rounds: how many rounds were asked for.

    Attributes:
        missed: titles of what missed its target.
    """

    def __init__(self, rounds: int) -> None:
        self.missed: list[str] = []
        self._rounds = rounds
        self._load = os.getloadavg()[0]
        self._rows: list[str] = []
        self._figures: list[str] = []
        self._rest: list[str] = []
        self._notes: list[str] = []

    def note(self, text: str) -> None:
        """Show a remark."""
        print(text, flush=True)
        self._notes.append(text)

    def add(self, row: Row) -> None:
        """Show a comparison."""
        met = row.target is None or row.ratio.median <= row.target
        verdict = "recorded" if row.target is None else _verdict(met, f"at most {row.target}")
        if not met:
            self.missed.append(row.title)
        print(
            f"{row.title}: ours {row.cpu} ms CPU, {row.wall} wall; plain {row.plain_cpu} CPU, {row.plain_wall} wall "
            f"({row.variant}); ratio {row.ratio}; {verdict}",
            flush=True,
        )
        cells = (row.title, row.cpu, row.wall, row.plain_cpu, row.plain_wall, row.variant, row.ratio, verdict)
        self._rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")

    def rest(self, title: str, metric: bool, times: Mapping[str, Spread]) -> None:
        """Keep the CPU times of all plain variants."""
        kind = "accuracy" if metric else "no metric"
        for name, spread in sorted(times.items(), key=lambda item: item[1].median):
            self._rest.append(f"| {title} | {kind} | {name} | {spread} |")

    def figure(
        self, title: str, value: str, detail: str, number: float, target: float, at_least: bool = False
    ) -> None:
        """Show a single figure.

        Args:
            title: what it is.
            value: the figure as text.
            detail: what it was compared with.
            number: what is held against the target.
            target: the bound.
            at_least: whether the bound is a lower one.
        """
        met = number >= target if at_least else number <= target
        if not met:
            self.missed.append(title)
        verdict = _verdict(met, f"{number:.2f}, {'at least' if at_least else 'at most'} {target:g}")
        print(f"{title}: {value}, {detail}; {verdict}", flush=True)
        self._figures.append(f"| {title} | {value} | {detail} | {verdict} |")

    def write(self, path: Path) -> None:
        """Write everything to a Markdown file, keeping sections of it that other benchmarks wrote."""
        machine = (
            f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
            f"torch {metadata.version('torch')}, {self._rounds} rounds. Jobs that wanted a core (load average): "
            f"{self._load:.1f} before, {os.getloadavg()[0]:.1f} at the end, of which this script is 1."
        )
        parts = [
            _ABOUT,
            "## Training, milliseconds per batch\n",
            machine + "\n",
            "| workload | ours CPU | ours wall | plain CPU | plain wall | fastest plain loop | ratio (CPU) | target |",
            "|---|---|---|---|---|---|---|---|",
            *self._rows,
            "\n" + "\n".join(f"- {note}" for note in self._notes) + "\n",
            "## Other figures\n",
            "| what | figure | compared with | target |",
            "|---|---|---|---|",
            *self._figures,
            "\n## All plain loops, CPU milliseconds per batch\n",
            "| workload | metric | loop | CPU |",
            "|---|---|---|---|",
            *self._rest,
        ]
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        own = {part.strip() for part in parts if part.strip().startswith("## ")}
        others = [f"\n## {text.rstrip()}" for text in before.split("\n## ")[1:]]
        kept = [text for text in others if text.split("\n")[1] not in own]
        path.write_text("\n".join([*parts, *kept]) + "\n", encoding="utf-8")
