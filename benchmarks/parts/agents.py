"""Agents in worlds: cost of worlds, gain of batches and workers, padding, memory and start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..harness import Session, Spread, Times, in_turns, ratio
from ..processes import PeakMemory
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
Examples of up to 30 words out of 5,000, drawn with replacement, in the worlds of `dpmodule.agents`; batches have 32
rows.

- Trivial agent: replies a constant. Bag of words: `EmbeddingBag(5000, 64)` and a linear layer in plain torch, SGD with
  sparse gradients, one update for each act or batch; by a module: the same as a `ModuleAgent`.
- The bare loop: `act = teacher.act(); model.observe(act); teacher.observe(model.act())` over the same two agents.
- A measurement ends with the report, which waits for pending messages. Hogwild has two workers.
- The original is ParlAI of May 2018, measured once, elsewhere: only its ratios are reported.
- Padding: empty positions of a batch, for texts of 1 to 60 words. Memory: the peak of all processes, shared memory
  counted once, of four workers over one that train 100 MB of parameters. Start: until each of two forked workers
  has had its first parley."""

RATES = {
    "trivial": {"bare": 50_000, "serial": 50_000, "batch": 50_000, "sorted": 50_000, "hogwild": 50_000},
    "bag": {"bare": 3000, "serial": 3000, "batch": 60_000, "hogwild": 6000, "both": 60_000},
    "module": {"serial": 1000, "sorted": 20_000},
}
"""Examples of a round, by agent and world."""

WORKERS = ("hogwild", "both")

RATIOS: Sequence[tuple[str, str, str, tuple[float, float], str]] = (
    ("serial, trivial", "trivial_serial", "trivial_bare", (0.6, 0.8), ""),
    ("serial, bag of words", "bag_serial", "bag_bare", (0.95, 0.98), ""),
    ("BatchWorld 32, trivial", "trivial_batch", "trivial_serial", (1.0, 1.3), "0.99"),
    ("BatchWorld 32 sorted, trivial", "trivial_sorted", "trivial_serial", (1.15, 1.5), "1.15"),
    ("BatchWorld 32, bag of words", "bag_batch", "bag_serial", (9.0, 12.0), "9.0"),
    ("Hogwild 2, bag of words", "bag_hogwild", "bag_serial", (1.7, 1.85), "1.24"),
    ("Hogwild 2 x 32, bag of words", "bag_both", "bag_batch", (1.6, 1.8), "0.84"),
    ("Hogwild 2, trivial", "trivial_hogwild", "trivial_serial", (0.4, 0.8), "0.27"),
    ("ModuleAgent, batch 32", "module_sorted", "module_serial", (10.0, 15.0), ""),
)
"""Comparisons: title, both sides, (must, aim), and the original's ratio."""

_NAMES = {"bare": "the bare loop", "serial": "serial", "batch": "BatchWorld 32"}


def run(session: Session) -> Section:
    """Measure everything."""
    section = Section("Agents and worlds", _ABOUT)
    _agree(session, section)
    found = _rates(session, section)
    for what, side, other, bounds, original in RATIOS:
        share = ratio(found[other]["wall"], found[side]["wall"])
        against = _NAMES[other.partition("_")[2]] if "module" not in side else "batch 1"
        verdict = section.hold(f"{what}, against {against}", share.median, bounds)
        cells = {"against": against, "times_as_fast": share, "the_original": original or "-"}
        section.row("Proportions", what=what, **cells, target=verdict)
    _padding(session, section)
    _memory(session, section)
    _start(session, section)
    return section


def _agree(session: Session, section: Section) -> None:
    """Check that all worlds see every example once, and report the same for an agent that does not learn."""
    with session.sides(ours=("agents", "bag")) as sides:
        found = {world: sides["ours"].ask("check", world=world) for world in RATES["bag"]}
    if len({tuple(sorted(report.items())) for report in found.values()}) > 1:
        raise SystemExit(f"the worlds do not report the same of one agent: {found}")
    total, accuracy = found["bare"]["total"], found["bare"]["accuracy"]
    section.note(
        f"All worlds report the same of an untrained agent: {total:,} examples, accuracy {accuracy:g}."
    )


def _rates(session: Session, section: Section) -> dict[str, Times]:
    """Return the milliseconds of an example by side, as "agent_world"."""
    each = {}
    for agent, worlds in RATES.items():
        counts = {world: session.short(count, 320) for world, count in worlds.items()}
        # worlds with workers are separate from the others, so that their process is otherwise idle
        wanted = dict.fromkeys(("alone", "workers"), ("agents", agent))
        with session.sides(**wanted) as sides:
            asked = {
                world: partial(
                    sides["workers" if world in WORKERS else "alone"].ask, "run", world=world, examples=count
                )
                for world, count in counts.items()
            }
            found = in_turns(asked, session.rounds)
        for world, count in counts.items():
            times = {clock: [value / count for value in values] for clock, values in found[world].items()}
            each[f"{agent}_{world}"] = times
            rate = Spread.of([1e3 / value for value in times["wall"]])
            section.row(
                "Examples a second", agent=agent, world=world, examples=f"{count:,}", rate=_whole(rate)
            )
    return each


def _whole(rate: Spread) -> str:
    return f"{rate.median:,.0f} ({rate.low:,.0f}-{rate.high:,.0f})"


def _padding(session: Session, section: Section) -> None:
    with session.sides(ours=("agents", "trivial")) as sides:
        found = sides["ours"].ask("padding")
    share = found["batch"] / max(found["sorted"], 1)
    verdict = section.hold("padding unsorted over sorted", share, (4.0, 8.0))
    section.row(
        "Padding, words",
        unsorted=found["batch"],
        sorted=found["sorted"],
        ratio=f"{share:.1f}",
        target=verdict,
    )


def _memory(session: Session, section: Section) -> None:
    """Measure the peak memory of workers over 100 MB of parameters."""
    found: dict[str, list[float]] = {"hogwild1": [], "hogwild4": []}
    for _ in range(session.short(3)):
        for world, peaks in found.items():
            with (
                session.sides(ours=("agents", "large")) as sides,
                PeakMemory(sides["ours"].pid) as peak,
            ):
                sides["ours"].ask("run", world=world, examples=2000)
            peaks.append(peak.mb)
    one, four = Spread.of(found["hogwild1"]), Spread.of(found["hogwild4"])
    share = four.median / one.median
    verdict = section.hold("memory of 4 workers over 1", share, (1.2, 1.1), at_most=True)
    section.row("Peak memory, MB", one_worker=one, four_workers=four, ratio=f"{share:.2f}", target=verdict)


def _start(session: Session, section: Section) -> None:
    with session.sides(ours=("agents", "bag")) as sides:
        times = in_turns({"ours": partial(sides["ours"].ask, "start")}, session.rounds)["ours"]["wall"]
    seconds = Spread.of([each / 1e3 for each in times])
    verdict = section.hold("start of 2 workers, fork, s", seconds.median, (0.2, 0.05), at_most=True)
    section.row("Start, s", what="2 workers, fork", start=seconds, target=verdict)
