"""Figures and targets of the benchmarks, stored as JSON and written as Markdown."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from .harness import Spread, Times, ratio
from .machines import columns
from .settings import processor
from .summary import picture, summary

__all__ = ["BEFORE", "Section", "Target", "data_of", "machine", "read", "tables_of", "render", "update"]

_ABOUT = """\
# Tables of the benchmarks

Written by `python -m benchmarks`; nothing here is typed by hand. [Results](RESULTS.md) are a summary. How figures are
taken:

- Every side runs in a process of its own with one intra-op thread, in turns: in each round every side makes one
  measurement, so that the rest of the machine disturbs all of them alike. A figure is the median of the rounds, with
  the quartiles in brackets; ratios are taken round by round. CPU time is that of all threads of the process, in
  milliseconds of a batch where nothing else is said. On a shared machine it says more than wall time, but caches and
  clock are shared too: expect 5-10 % from run to run.
- A ratio is the other's time over ours, so above 1 means that ours is faster; for memory it is ours over theirs.
- Before anything is timed, all sides predict and train some batches from the same weights; losses, parameters and
  predictions must agree. Differences of parameters count as a share of how far training has moved them.
- "Before" is another revision of dpmodule, run by the same files in the same rounds (`--against before=PYTHON`). A
  row's ratio is its time over ours; its upper quartile must not be below 1, or ours has become slower.
- MXNet is release 1.9.1 under its own interpreter, running the same files as ours; only the import differs. It uses a
  second thread for its engine, so its wall time is below its CPU time.
- Other processors, instruction sets and numbers of threads have columns in the last part, where there are any.
"""


BEFORE = "Before and now"
"""Title of the tables that compare with another revision."""


@dataclass(frozen=True)
class Target:
    """A figure with its target.

    Attributes:
        what: description of the figure.
        value: the figure.
        must: required bound.
        aim: desired bound.
        at_most: True if these are upper bounds.
    """

    what: str
    value: float
    must: float
    aim: float
    at_most: bool = False

    def meets(self, bound: float) -> bool:
        """Return True if the figure meets a bound."""
        return self.value <= bound if self.at_most else self.value >= bound

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        must = "met" if self.meets(self.must) else "MISSED"
        aim = "met" if self.meets(self.aim) else "not yet"
        return f"must {sign} {self.must:g} {must}, aim {self.aim:g} {aim}"


@dataclass
class Section:
    """A part's figures.

    Attributes:
        title: heading.
        about: description of its figures in Markdown.
        tables: lines of Markdown tables, by their titles.
        targets: figures with targets.
        notes: remarks.
        where: the machine and the session.
    """

    title: str
    about: str
    tables: dict[str, list[str]] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    where: str = ""

    def note(self, text: str) -> None:
        """Print and store a remark."""
        print(text, flush=True)
        self.notes.append(text)

    def hold(self, what: str, value: float, bounds: Any, at_most: bool = False) -> str:
        """Compare a figure with (must, aim) and return the verdict; "recorded" without targets."""
        if bounds is None:
            return "recorded"
        self.targets.append(Target(what, value, *bounds, at_most=at_most))
        return str(self.targets[-1])

    def row(self, table: str, **cells: Any) -> None:
        """Print and store a line of a table; the names of the first one are the header ("_" is a space)."""
        lines = self.tables.setdefault(table, [])
        if not lines:
            lines += [
                "| " + " | ".join(name.replace("_", " ") for name in cells) + " |",
                "|---" * len(cells) + "|",
            ]
        lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells.values()) + " |")
        print(lines[-1], flush=True)

    def compare(
        self,
        what: str,
        ours: Times,
        name: str,
        theirs: Times,
        bounds: Any = None,
        clock: str = "cpu",
        table: str = "",
    ) -> None:
        """Add a comparison of times.

        Args:
            what: description of the workload.
            ours: our times.
            name: name of the other side.
            theirs: times of the other side in the same rounds.
            bounds: (must, aim) of theirs / ours; None to only record it.
            clock: the compared clock.
            table: title of the table.
        """
        by = {each: ratio(theirs[each], ours[each]) for each in ("cpu", "wall")}
        self.row(
            table,
            what=what,
            ours_CPU=Spread.of(ours["cpu"]),
            ours_wall=Spread.of(ours["wall"]),
            against=name,
            its_CPU=Spread.of(theirs["cpu"]),
            its_wall=Spread.of(theirs["wall"]),
            ratio_CPU=by["cpu"],
            ratio_wall=by["wall"],
            target=self.hold(f"{what}, against {name}", by[clock].median, bounds),
        )

    def before(
        self, what: str, found: Mapping[str, Times], name: str = "ours", clock: str = "cpu", unit: float = 1.0
    ) -> None:
        """Add a comparison with another revision, if measured, which must not be significantly faster.

        Args:
            what: description of the workload.
            found: times by side in the same rounds; those of the other revision are named "before_" and the name.
            name: the side.
            clock: the compared clock, if both were measured.
            unit: number of its units in a millisecond.
        """
        then, now = found.get(f"before_{name}"), found.get(name)
        if not then or not now:
            return
        if not then[clock]:
            clock = "wall"
        share = ratio(then[clock], now[clock])
        times = {
            key: Spread.of([each * unit for each in by[clock]])
            for key, by in (("before", then), ("now", now))
        }
        title = f"{what}, before over now, upper quartile"
        verdict = self.hold(title, share.high, (1.0, 1.0))
        self.row(BEFORE, what=what, clock=clock, **times, ratio=share, target=verdict)

    def __str__(self) -> str:
        parts = [f"## {self.title}", self.about, self.where]
        for title, lines in self.tables.items():
            if not lines:
                continue
            parts += [f"### {title}"] * bool(title) + ["\n".join(lines)]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        return "\n\n".join(part.strip() for part in parts if part) + "\n"


def machine(rounds: int) -> str:
    """Return a description of the machine and its load."""
    return (
        f"{processor()[0]}, {os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, torch "
        f"{metadata.version('torch')}, {rounds} rounds; jobs that wanted a core (load average): "
        f"{os.getloadavg()[0]:.1f}, of which this is 1."
    )


def render(sections: Mapping[str, Section]) -> str:
    """Return the tables, with that of all targets first."""
    targets = [target for section in sections.values() for target in section.targets]
    met = sum(target.meets(target.must) for target in targets)
    lines = [f"## Targets\n\n{met} of {len(targets)} met.\n", "| figure | value | target |", "|---|---|---|"]
    lines += [f"| {each.what} | {each.value:.3g} | {each} |" for each in targets]
    return "\n".join([_ABOUT, *lines, "", *map(str, sections.values())])


def data_of(path: Path) -> Path:
    """Return the path of a report's figures."""
    return path.with_name(path.stem.lower() + ".json")


def tables_of(path: Path) -> Path:
    """Return the path of a report's tables."""
    return path.with_name(f"{path.stem.lower()}_tables.md")


def read(data: Path) -> dict[str, Section]:
    """Return the sections of a file of figures."""
    known: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    return {
        name: Section(**{**each, "targets": [Target(**target) for target in each["targets"]]})
        for name, each in known.items()
    }


def update(path: Path, order: Mapping[str, Any], new: Mapping[str, Section]) -> None:
    """Write sections to a report, keeping other parts from earlier runs.

    Args:
        path: the summary, a Markdown file; its picture, tables and figures (JSON) are in the same folder under its
            stem in lower case, and the figures of other processors and settings in the folder "machines".
        order: names of all parts.
        new: sections by part.
    """
    data = data_of(path)
    sections = {**(read(data) if data.exists() else {}), **new}
    sections = {name: sections[name] for name in order if name in sections}
    known = {name: asdict(section) for name, section in sections.items()}
    data.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    path.write_text(summary(sections), encoding="utf-8")
    path.with_name(f"{path.stem.lower()}.svg").write_text(picture(sections), encoding="utf-8")
    tables_of(path).write_text(render(sections) + columns(path.with_name("machines")), encoding="utf-8")
