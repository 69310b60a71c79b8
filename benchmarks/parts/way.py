"""Functions of dpmodule that a steady batch calls: their number, their files and their names."""

from __future__ import annotations

from itertools import groupby

from ..harness import Session
from ..report import Section
from ..sides.way import Station

__all__ = ["run"]

_ABOUT = """\
A batch of `Module.fit` in its second epoch: two dense layers, `NDArrayIter`, accuracy, SGD with momentum. Counted are
calls of Python functions in files of dpmodule, comprehensions and generators among them as far as Python makes frames
for them, and the files that they are in. Stations are the functions, in the order in which they are called, those of a
file that follow each other in one row.

Units of work: the same count for a unit of ten kinds of work. Calls and changes from one file to another are those that
each further unit adds; files, and the number of calls inside of each other, are those of a run of some units."""

CALLS, FILES = (110, 70), (20, 12)


def run(session: Session) -> Section:
    """Count, and show the stations."""
    section = Section("Way of a batch", _ABOUT, tables={"": []})
    with session.sides(ours=("way",), before=("way",)) as sides:
        found: dict[str, list[Station]] = {name: side.ask("stations") for name, side in sides.items()}
        traces = {name: side.ask("traces") for name, side in sides.items()}
    counts = {name: (len(each), len({file for file, _ in each})) for name, each in found.items()}
    for place, (what, bounds) in enumerate((("calls", CALLS), ("files", FILES))):
        cells = {name: each[place] for name, each in counts.items()}
        verdict = section.hold(f"{what} of a batch", cells["ours"], bounds, at_most=True)
        section.row("", what=what, **cells, target=verdict)
    for unit, figures in traces["ours"].items():
        others = {
            f"{name}, {figure}": count
            for name, units in traces.items()
            if name != "ours"
            for figure, count in units.get(unit, {}).items()
        }
        section.row("Units of work", unit=unit, **figures, **others)
    for file, calls in groupby(found["ours"], key=lambda station: station[0]):
        names = [name for _, name in calls]
        section.row("Stations", file=file, calls=len(names), functions=", ".join(_counted(names)))
    return section


def _counted(names: list[str]) -> list[str]:
    """Return names in order, each with how often it comes in a row."""
    runs = [(name.replace(".<locals>", ""), sum(1 for _ in each)) for name, each in groupby(names)]
    return [f"`{name}`" + (f" x {count}" if count > 1 else "") for name, count in runs]
