"""What it takes to begin: importing, binding, the peak memory of training, and looking at a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..harness import Session, Spread, Times, in_turns, with_before
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
- Import: milliseconds that `import dpmodule` takes in a new process that has imported torch, from cached bytecode.
- Bind: ResNet-50, 445 nodes, for one image. "First" is in a new process, and "again" with a new symbol in the same
  one, where the generated function is known already; the target is held against the first.
- Peak memory: `VmHWM` of a process that does nothing but train the MLP, five epochs of 20 batches (4 MB of images),
  with one metric; plain PyTorch trains by fused SGD on slices of a tensor.
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
    wanted = with_before({"ours": ("module", "dpmodule", "mlp", 20), "plain": ("plain", "mlp", 20)}, "ours")
    found: dict[str, list[float]] = {}
    for _ in range(session.short(3)):
        with session.sides(**wanted) as started:
            for _ in range(5):
                for name, side in started.items():
                    side.ask("fit", **({"variant": "NCHW/fused/slices"} if name == "plain" else {}))
            for name, side in started.items():
                found.setdefault(name, []).append(side.ask("memory"))
    ours, plain = Spread.of(found["ours"]), Spread.of(found["plain"])
    share = ours.median / plain.median
    verdict = section.hold(
        "peak memory of the MLP's fit, ours / plain PyTorch", share, (0.8, 0.7), at_most=True
    )
    others = {name: Spread.of(values) for name, values in found.items() if name == "before_ours"}
    section.row("Peak memory, MB", ours=ours, PyTorch=plain, **others, share=f"{share:.2f}", target=verdict)


def _picture(session: Session, section: Section) -> None:
    with session.sides(ours=("pictures",)) as sides:
        found = in_turns({"ours": partial(sides["ours"].ask, "draw")}, session.repeated(session.short(5, 2)))
    wall = Spread.of(found["ours"]["wall"])
    verdict = section.hold("picture of 500 nodes, ms", wall.median, (1000.0, 300.0), at_most=True)
    section.row("Picture", CPU=Spread.of(found["ours"]["cpu"]), wall=wall, target=verdict)
