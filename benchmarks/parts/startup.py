"""Startup: import, binding, the first step, the peak memory of training, and a network's picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from ..harness import Session, Spread, Times, in_turns, ratio, with_before
from ..report import Section
from ..workloads import WORKLOADS, Workload
from .fit import variants

__all__ = ["run"]

_ABOUT = """\
- Import: milliseconds that `import dpmodule` takes in a new process that has imported torch, from cached bytecode.
- Bind: ResNet-50, 445 nodes, for one image, and two networks for training on their usual batches, for which MXNet is
  waited for at the end. "First" is in a new process, including its imports, and "again" in the same one: for ResNet-50
  with a new symbol, else with another module of the same symbol.
- First step: `forward_backward` and `update` of the first batch in a new process, after the parameters and the
  optimizer have been made. Plain PyTorch is the loop on slices of a tensor with foreach SGD, images in the layout that
  takes less; with default threads wall time counts.
- First prediction: MobileNet 1.0, one image, in a new process: `bind`, `init_params` and `forward`, or the creation
  of a session from the file in memory and its first run.
- Peak memory: `VmHWM` of a process that does nothing but train, three epochs of at most 20 batches, with one metric;
  plain PyTorch trains by fused SGD on slices of a tensor, images in the layout with less memory.
- Picture: `Symbol._repr_svg_` of 500 nodes that do not fold, from the second time on."""


_STEPS = {"1": ("mlp", "lenet", "resnet20", "resnet18", "lstm"), "default": ("mlp", "lenet")}
"""Workloads of the first step, by threads."""
_PACKAGES = {"ours": "dpmodule", "mxnet": "mxnet"}
_Asked = Sequence[Any]
"""A side, and the request to it."""


def run(session: Session) -> Section:
    """Measure all of it."""
    section = Section("Beginning", _ABOUT)
    _imports(session, section)
    _bind(session, section)
    for name in ("resnet20",) if session.quick else ("resnet20", "resnet18"):
        _bind_for_training(session, section, WORKLOADS[name])
    for threads, names in _STEPS.items():
        for name in names:
            if not session.quick or name == "mlp":
                _first_step(session, section, WORKLOADS[name], threads)
    _first_prediction(session, section)
    _memory(session, section)
    _picture(session, section)
    return section


def _in_new_processes(session: Session, sides: Mapping[str, _Asked], count: int) -> dict[str, Times]:
    """Return the times of sides in new processes, with rotating order."""

    def measure(name: str) -> dict[str, float]:
        side, request = sides[name]
        with session.sides(**{name: side}) as started:
            times: dict[str, float] = started[name].ask(**request)
            return times

    asked = {name: partial(measure, name) for name in sides if session.has(name)}
    return in_turns(asked, session.repeated(count))


def _imports(session: Session, section: Section) -> None:
    wanted = with_before({"ours": (("imports",), {"what": "measure"})}, "ours")
    found = _in_new_processes(
        session, wanted, session.short(10, 2)
    )  # the first, dropped, may have to compile
    cpu, wall = Spread.of(found["ours"]["cpu"]), Spread.of(found["ours"]["wall"])
    verdict = section.hold("import dpmodule over import torch, ms", wall.median, (35.0, 30.0), at_most=True)
    section.row("Import", CPU=cpu, wall=wall, target=verdict)
    section.before("import dpmodule", found)


def _packages(*rest: Any) -> dict[str, Sequence[Any]]:
    """Return both packages' sides, and ours again for another revision."""
    return with_before({name: ("module", package, *rest) for name, package in _PACKAGES.items()}, "ours")


def _bind(session: Session, section: Section) -> None:
    wanted = _packages("none", 0)
    firsts = _in_new_processes(
        session, {name: (side, {"what": "bind"}) for name, side in wanted.items()}, session.short(5, 2)
    )
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


def _bind_for_training(session: Session, section: Section, workload: Workload) -> None:
    wanted = _packages(workload.name, 0)
    asked = {name: (side, {"what": "bind"}) for name, side in wanted.items()}
    firsts = _in_new_processes(session, asked, session.short(5, 2))
    with session.sides(**wanted) as sides:
        again = in_turns(
            {name: partial(side.ask, "bind") for name, side in sides.items()},
            session.repeated(session.short(20, 3)),
        )
    for title, found in (("first", firsts), ("again", again)):
        title = f"{workload.title}: Module.bind for training, {title}"
        _hold(section, "Bind for training", title, found, ("mxnet", "MXNet"), (1.2, 0.6), "cpu")


def _first_step(session: Session, section: Section, workload: Workload, threads: str) -> None:
    """Compare the first steps of new processes.

    Args:
        session: how to measure.
        section: section of the row and target.
        workload: the workload.
        threads: threads of all sides.
    """
    session = replace(session, setting=replace(session.setting, threads=threads))
    step, common = {"what": "step"}, (workload.name, 1)
    sides = with_before({"ours": (("module", "dpmodule", *common), step)}, "ours")
    loops = [name for name in variants(workload) if name.endswith("/foreach/slices")]
    sides.update((name, (("plain", *common), {**step, "variant": name})) for name in loops)
    found, clock = _in_new_processes(session, sides, session.short(5)), session.clock
    fastest = min(loops, key=lambda name: Spread.of(found[name][clock]).median)
    title = f"{workload.title}: first step, {threads} thread{'s' * (threads != '1')}"
    _hold(section, "First step", title, found, (fastest, "PyTorch"), (1.0, 0.7), clock, loop=fastest)


def _first_prediction(session: Session, section: Section) -> None:
    request = {"what": "first", "case": "MobileNet 1.0", "batch": 1}
    kinds = {"ours": "module", "onnxruntime": "onnxruntime"}
    sides = {name: (("untuned", kind, 0), request) for name, kind in kinds.items()}
    found, title = _in_new_processes(session, sides, session.short(5)), "MobileNet 1.0: first prediction"
    _hold(
        section, "First prediction", title, found, ("onnxruntime", "ONNX Runtime"), (1.0, 0.8), session.clock
    )


def _hold(
    section: Section,
    table: str,
    title: str,
    found: Mapping[str, Times],
    other: tuple[str, str],
    bounds: tuple[float, float],
    clock: str,
    **more: Any,
) -> None:
    """Compare our time with another side's, if that was measured.

    Args:
        section: section of the row and target.
        table: title of the row's table.
        title: description of the workload.
        found: times by side in the same rounds.
        other: name of the other side, and its title in reports.
        bounds: upper bounds (must, aim) of the ratio.
        clock: the compared clock.
        more: further cells.
    """
    name, label = other
    cells: dict[str, Any] = {
        "ours": Spread.of(found["ours"][clock]),
        label: "",
        "share": "",
        "target": "not compared",
    }
    if name in found:
        share = ratio(found["ours"][clock], found[name][clock])
        verdict = section.hold(f"{title}, ours / {label}", share.median, bounds, at_most=True)
        cells.update({label: Spread.of(found[name][clock]), "share": share, "target": verdict})
    section.row(table, what=title, clock=clock, **cells, **more)
    section.before(title, found, clock=clock)


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
        section: section of the row and target.
        what: description of the workload.
        sides: ours, and plain loops, of which the smallest counts; each with its requests, of which the last is made
            three times.
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
