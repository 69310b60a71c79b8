"""Gain of each pass of the executor in networks that it changes."""

from __future__ import annotations

from functools import partial

from ..harness import Session, Spread, Worker, in_turns, ratio
from ..report import Section
from ..sides import bag
from ..workloads import WORKLOADS

__all__ = ["run"]

_ABOUT = """\
Every rewrite of `dpmodule.executor.passes.PASSES`, switched off by `executor.disabled`, against all of them being on,
in one process and in turns. A network is listed if the pass changes it. A ratio is the time without the pass
over the time with it: above 1, the pass gains. Another pass may compensate for a disabled one."""

LANGUAGE = ("language model, step of bucket 30, batch 32", 2, ("fit",))


def run(session: Session) -> Section:
    """Measure every pass in every network."""
    section = Section("Passes", _ABOUT)
    networks = {
        each.name: (each.title, each.batches, ("fit", "predict") if each.trained else ("predict",))
        for each in WORKLOADS.values()
        if each.name != "mlp-256"
    }
    networks["language"] = LANGUAGE
    networks["bag"] = bag.TITLE, 10, ("fit", "predict")
    if session.quick:
        networks = {"mlp": networks["mlp"]}
    seen: set[str] = set()
    every: list[str] = []
    for name, (title, batches, modes) in networks.items():
        with session.sides(side=("switched", name, session.short(batches, 2))) as sides:
            every = sides["side"].ask("passes")
            for what in modes:
                seen.update(_measure(session, sides["side"], title, what, every, section))
    for name in every:
        if name not in seen:
            section.row(
                "", pass_=name, network="in none of these networks", off="", on="", ratio="", ratio_wall=""
            )
    for lines in section.tables.values():
        lines[2:] = sorted(lines[2:], key=lambda line: every.index(line.split()[1]))
    return section


def _measure(
    session: Session, side: Worker, title: str, what: str, every: list[str], section: Section
) -> list[str]:
    """Measure the passes that change something in a network; return their names."""
    fired: list[str] = side.ask("fired", mode=what)
    for name in every:
        if name in fired:
            asked = {off: partial(side.ask, "measure", mode=what, off=off) for off in ("", name)}
            found = in_turns(asked, min(session.rounds, 5), warm=0)  # both are warm
            on, off = found[""], found[name]
            section.row(
                "",
                pass_=name,
                network=f"{title}: {what}",
                off=Spread.of(off["cpu"]),
                on=Spread.of(on["cpu"]),
                ratio=ratio(off["cpu"], on["cpu"]),
                ratio_wall=ratio(off["wall"], on["wall"]),
            )
    return fired
