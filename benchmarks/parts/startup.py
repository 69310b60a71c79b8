"""What it takes to begin: importing, binding, the peak memory of training, and looking at a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from ..harness import Session, Spread, Times, in_turns, with_before
from ..report import Section
from ..workloads import WORKLOADS
from .fit import variants

__all__ = ["run"]

_ABOUT = """\
- Import: milliseconds that `import dpmodule` takes in a new process that has imported torch, from cached bytecode.
- Bind: ResNet-50, 445 nodes, for one image. "First" is in a new process, and "again" with a new symbol in the same
  one, where the generated function is known already; the target is held against the first.
- Peak memory: `VmHWM` of a process that does nothing but train, three epochs of at most 20 batches, with one metric;
  plain PyTorch trains by fused SGD on slices of a tensor, images in the layout, NCHW or channels_last, that takes less.
- Picture: `Symbol._repr_svg_` of 500 nodes that do not fold, from the second time on."""


def run(session: Session) -> Section:
    """Measure all four."""
    section = Section("Beginning", _ABOUT)
    _imports(session, section)
    _bind(session, section)
    _memory(session, section)
    _picture(session, section)
    return section


def _anew(session: Session, what: str, sides: Mapping[str, Sequence[Any]], count: int) -> dict[str, Times]:
    """Return the times that sides take in new processes, one after the other, each round begun by another."""

    def measure(name: str) -> dict[str, float]:
        with session.sides(**{name: sides[name]}) as started:
            times: dict[str, float] = started[name].ask(what)
            return times

    asked = {name: partial(measure, name) for name in sides if session.has(name)}
    return in_turns(asked, session.repeated(count))


def _imports(session: Session, section: Section) -> None:
    wanted = with_before({"ours": ("imports",)}, "ours")
    found = _anew(session, "measure", wanted, session.short(10, 2))  # the first, dropped, may have to compile
    cpu, wall = Spread.of(found["ours"]["cpu"]), Spread.of(found["ours"]["wall"])
    verdict = section.hold("import dpmodule over import torch, ms", wall.median, (150.0, 80.0), at_most=True)
    section.row("Import", CPU=cpu, wall=wall, target=verdict)
    section.before("import dpmodule", found)


def _bind(session: Session, section: Section) -> None:
    packages = {"ours": "dpmodule", "mxnet": "mxnet"}
    wanted = with_before({name: ("module", package, "none", 0) for name, package in packages.items()}, "ours")
    firsts = _anew(session, "bind", wanted, session.short(5, 2))
    tables = [("Module.bind, first", firsts)]
    with session.sides(**wanted) as sides:
        for title, simple in (("Module.bind, again", False), ("simple_bind, again", True)):
            asked = {name: partial(side.ask, "bind", simple=simple) for name, side in sides.items()}
            tables.append((title, in_turns(asked, session.repeated(session.short(20, 3)))))
    for title, found in tables:
        spread = Spread.of(found["ours"]["cpu"])
        bounds = (10.0, 5.0) if found is firsts else None
        verdict = section.hold(f"{title}, 445 nodes, ms", spread.median, bounds, at_most=True)
        theirs = Spread.of(found["mxnet"]["cpu"]) if "mxnet" in found else ""
        section.row("Bind", what=title, ours_CPU=spread, MXNet_CPU=theirs, target=verdict)
        section.before(title, found)


def _memory(session: Session, section: Section) -> None:
    fit = {"what": "fit"}
    for workload in WORKLOADS.values():
        if not workload.trained or (session.quick and workload.name != "mlp"):
            continue
        common = workload.name, min(workload.batches, 20)
        loops = [name for name in variants(workload) if name.endswith("/fused/slices")]
        sides: dict[str, Sequence[Any]] = {
            name: (("plain", *common), [{**fit, "variant": name}]) for name in loops
        }
        sides["ours"] = ("module", "dpmodule", *common), [fit]
        _peaks(session, section, "the MLP" if workload.name == "mlp" else workload.title, sides)
    if not session.quick:
        start = {"what": "start"}
        sides = {
            "ours": (("language", "dpmodule", "unrolled", 2), [start, fit]),
            "plain": (("plain_language", 2, "fused"), [start, fit]),
        }
        _peaks(session, section, "the language model", sides)


def _peaks(session: Session, section: Section, what: str, sides: Mapping[str, Sequence[Any]]) -> None:
    """Compare the peak memory of processes that train.

    Args:
        session: how to measure.
        section: gets a row and a target.
        what: what is trained.
        sides: ours, and plain loops, of which the one that takes least counts; each with what it is asked for, the
            last of it three times.
    """
    found: dict[str, list[float]] = {}
    for _ in range(session.short(3)):
        for name, (side, requests) in with_before(sides, "ours").items():
            if session.has(name):
                with session.sides(**{name: side}) as started:
                    for request in (*requests, *requests[-1:] * 2):
                        started[name].ask(**request)
                    found.setdefault(name, []).append(started[name].ask("memory"))
    peaks = {name: Spread.of(values) for name, values in found.items()}
    ours, others = peaks.pop("ours"), {name: peaks.pop(name) for name in ("before_ours",) if name in peaks}
    plain = min(peaks.values(), key=attrgetter("median"))
    share = ours.median / plain.median
    bounds = (0.8, 0.7) if what == "the MLP" else (1.0, 0.8)
    title = f"peak memory of {what}'s fit, ours / plain PyTorch"
    verdict = section.hold(title, share, bounds, at_most=True)
    row = {"of": what, "ours": ours, "PyTorch": plain, **others, "share": f"{share:.2f}", "target": verdict}
    section.row("Peak memory, MB", **row)


def _picture(session: Session, section: Section) -> None:
    with session.sides(ours=("pictures",)) as sides:
        found = in_turns({"ours": partial(sides["ours"].ask, "draw")}, session.repeated(session.short(5, 2)))
    wall = Spread.of(found["ours"]["wall"])
    verdict = section.hold("picture of 500 nodes, ms", wall.median, (1000.0, 300.0), at_most=True)
    section.row("Picture", CPU=Spread.of(found["ours"]["cpu"]), wall=wall, target=verdict)
