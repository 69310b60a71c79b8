"""Batches from worker processes to the trainer: `streams.DataLoader` against torch's, SPDL and faster-fifo."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..harness import Session, Spread, Worker, in_turns, ratio
from ..report import Section

__all__ = ["run", "run_mine"]

_ABOUT = """\
What it costs to hand over a batch that worker processes have ready; making it costs next to nothing. Images: 64 of
3 x 224 x 224 bytes, collated by the worker. Detection: 16 dicts of 7 tensors. Dict of 100: tensors of 8 x 16 floats.
Strings and ints: 64 tuples. Tiny: one tensor of 8 x 16 floats. CPU time is that of all processes. The start of the
workers is left out; two batches of each worker may be ready. A ratio is the time of the other side over ours: above 1,
ours is faster. SPDL's workers are its `iterate_in_subprocess`; those of faster-fifo put into one queue each."""

_MINE = """\
Making: CPU time of a batch in one process, without workers. Handing over: what the batch costs beyond that with
workers, in all processes. Waiting: how long a loop that does nothing else waits for a batch. If a training step takes
longer than this, data does not slow it down; if making is most of the time, more workers help; if handing over is, they
do not."""

TARGETS = {
    "images": (1.0, 1.1),
    "detection": (20.0, 20.0),
    "detection, varying": (10.0, 10.0),
    "dict of 100": (20.0, 20.0),
    "strings and ints": (1.0, 1.0),
    "tiny": (1.5, 1.5),
}
"""Least ratio of torch's CPU time over ours, and the aim."""
LEAST_QUARTILE = 0.95
WORKERS = (1, 2, 4)
OTHERS = ("torch", "spdl", "faster_fifo")


def run(session: Session) -> Section:
    """Measure all batches."""
    section = Section("Feed", _ABOUT)
    quartiles: list[float] = []
    with session.sides(**{name: ("loaders", name) for name in ("ours", *OTHERS)}) as sides:
        for case in TARGETS:
            counts = (1,) if session.quick else WORKERS
            quartiles += [_measure(session, section, sides, case, workers) for workers in counts]
    what = "least lower quartile of all rows, against torch"
    bounds = None if session.quick else (LEAST_QUARTILE, 1.0)
    section.note(f"{what}: {section.hold(what, min(quartiles), bounds)}")
    return section


def run_mine(session: Session, place: str) -> Section:
    """Measure a user's loader at "module:name"."""
    section = Section("Your loader", _MINE)
    seconds = 0.2 if session.quick else 3.0
    with session.sides(mine=("mine", place)) as sides:
        side = sides["mine"]
        workers = side.ask("describe")["workers"]
        asked = {
            system: partial(side.ask, "measure", system=system, workers=count, seconds=seconds)
            for system, count in (("made", 0), ("torch", workers), ("ours", workers))
        }
        times = in_turns(asked, session.short(3, 1), warm=0)
    made = Spread.of(times["made"]["cpu"])
    for system, name in (("torch", "torch.utils.data.DataLoader"), ("ours", "dpmodule.streams.DataLoader")):
        cpu = Spread.of(times[system]["cpu"])
        section.row(
            "Milliseconds of a batch",
            loader=name,
            workers=workers,
            making=made,
            handing_over=f"{cpu.median - made.median:.3f}",
            waiting=Spread.of(times[system]["wall"]),
        )
    return section


def _measure(
    session: Session, section: Section, sides: Mapping[str, Worker], case: str, workers: int
) -> float:
    """Measure a case, add its row, and return the lower quartile of the ratio to torch."""
    found = {name: side.ask("start", case=case, workers=workers) for name, side in sides.items()}
    able = [name for name in found if "sum" in found[name]]
    for name in able:
        if not math.isclose(found[name]["sum"], found["ours"]["sum"]):
            raise ValueError(f"{case}: {name} hands over another batch")
    asked = {name: _asked(sides[name], session) for name in able}
    times = in_turns(asked, session.rounds)
    for name in able:
        sides[name].ask("stop")
    shares = {name: ratio(times[name]["cpu"], times["ours"]["cpu"]) for name in able if name != "ours"}
    bounds = TARGETS[case] if workers <= 2 and not session.quick else None
    what = f"{case}, {workers} {'worker' if workers == 1 else 'workers'}, CPU time against torch"
    section.row(
        "CPU time of a batch", batch=case, workers=workers, ours_ms=Spread.of(times["ours"]["cpu"]),
        **{name: shares.get(name, "") for name in OTHERS}, target=section.hold(what, shares["torch"].median, bounds),
    )  # fmt: skip
    walls = {name: ratio(times[name]["wall"], times["ours"]["wall"]) for name in able if name != "ours"}
    section.row(
        "Wall time of a batch", batch=case, workers=workers, ours_ms=Spread.of(times["ours"]["wall"]),
        **{name: walls.get(name, "") for name in OTHERS},
    )  # fmt: skip
    for name, answer in found.items():
        if "why" in answer and case == "tiny" and workers == 1:
            section.note(f"{name}: not compared ({answer['why']})")
    return shares["torch"].low


def _asked(side: Worker, session: Session) -> Any:
    return lambda: side.ask("measure", seconds=0.05 if session.quick else 0.4)
