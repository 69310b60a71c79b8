"""How many of dpmodule's own functions a steady batch calls, in how many files, and which."""

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
file that follow each other in one row."""

CALLS, FILES = (110, 70), (20, 12)


def run(session: Session) -> Section:
    """Count, and show the stations."""
    section = Section("Way of a batch", _ABOUT, tables={"": []})
    with session.sides(ours=("way",), before=("way",)) as sides:
        found: dict[str, list[Station]] = {name: side.ask("stations") for name, side in sides.items()}
    counts = {name: (len(each), len({file for file, _ in each})) for name, each in found.items()}
    for place, (what, bounds) in enumerate((("calls", CALLS), ("files", FILES))):
        cells = {name: each[place] for name, each in counts.items()}
        verdict = section.hold(f"{what} of a batch", cells["ours"], bounds, at_most=True)
        section.row("", what=what, **cells, target=verdict)
    for file, calls in groupby(found["ours"], key=lambda station: station[0]):
        names = [name for _, name in calls]
        section.row("Stations", file=file, calls=len(names), functions=", ".join(_counted(names)))
    return section


def _counted(names: list[str]) -> list[str]:
    """Return names in order, each with how often it comes in a row."""
    runs = [(name.replace(".<locals>", ""), sum(1 for _ in each)) for name, each in groupby(names)]
    return [f"`{name}`" + (f" x {count}" if count > 1 else "") for name, count in runs]
