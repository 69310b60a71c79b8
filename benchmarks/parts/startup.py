"""What it takes to begin: importing, binding, and the peak memory of training."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from ..harness import Session, Spread, in_turns
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
- Import: milliseconds that `import dpmodule` takes in a new process that has imported torch, from cached bytecode.
- Bind: ResNet-50, 445 nodes, for one image. "First" is in a new process, and "again" with a new symbol in the same
  one, where the generated function is known already; the target is held against the first.
- Peak memory: `VmHWM` of a process that does nothing but train the MLP, five epochs of 20 batches (4 MB of images),
  with one metric; plain PyTorch trains by fused SGD on slices of a tensor."""

_IMPORT = """\
import time, torch
wall, cpu = time.perf_counter(), time.process_time()
import dpmodule
print((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)
"""


def run(session: Session) -> Section:
    """Measure all three."""
    section = Section("Beginning", _ABOUT)
    _imports(session.short(10, 2), section)
    _bind(session, section)
    _memory(session.short(3), section)
    return section


def _imports(count: int, section: Section) -> None:
    times: dict[str, list[float]] = {"wall": [], "cpu": []}
    for number in range(count + 1):
        found = subprocess.run(
            [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
        ).stdout
        if number:  # the first may have had to compile
            for values, value in zip(times.values(), found.split(), strict=True):
                values.append(float(value))
    cpu, wall = Spread.of(times["cpu"]), Spread.of(times["wall"])
    verdict = section.hold("import dpmodule over import torch, ms", wall.median, (150.0, 80.0), at_most=True)
    section.row("Import", CPU=cpu, wall=wall, target=verdict)


def _bind(session: Session, section: Section) -> None:
    packages = {"ours": "dpmodule", "mxnet": "mxnet"}
    wanted = {name: ("module", package, "none", 0) for name, package in packages.items()}
    firsts: dict[str, list[float]] = {name: [] for name in packages}
    for _ in range(session.short(5, 2)):
        with session.sides(**wanted) as sides:
            for name, side in sides.items():
                firsts[name].append(side.ask("bind")["cpu"])
    with session.sides(**wanted) as sides:
        asked = {
            f"{name} {simple}": partial(side.ask, "bind", simple=simple)
            for name, side in sides.items()
            for simple in (False, True)
        }
        again = in_turns(asked, session.short(20, 3))
    rows: list[tuple[str, Sequence[float], Sequence[float] | None, bool]] = [
        ("Module.bind, first", firsts["ours"], firsts["mxnet"] or None, True)
    ]
    for title, simple in (("Module.bind, again", False), ("simple_bind, again", True)):
        theirs = again.get(f"mxnet {simple}", {}).get("cpu")
        rows.append((title, again[f"ours {simple}"]["cpu"], theirs, False))
    for title, ours, theirs, held in rows:
        spread = Spread.of(ours)
        verdict = section.hold(
            f"{title}, 445 nodes, ms", spread.median, (10.0, 5.0) if held else None, at_most=True
        )
        section.row(
            "Bind", what=title, ours_CPU=spread, MXNet_CPU=Spread.of(theirs) if theirs else "", target=verdict
        )


def _memory(count: int, section: Section) -> None:
    found: dict[str, list[float]] = {"ours": [], "plain": []}
    session = Session()
    for _ in range(count):
        sides = {"ours": ("module", "dpmodule", "mlp", 20), "plain": ("plain", "mlp", 20)}
        with session.sides(**sides) as started:
            for _ in range(5):
                started["ours"].ask("fit")
                started["plain"].ask("fit", variant="NCHW/fused/slices")
            for name, side in started.items():
                found[name].append(side.ask("memory"))
    ours, plain = Spread.of(found["ours"]), Spread.of(found["plain"])
    share = ours.median / plain.median
    verdict = section.hold(
        "peak memory of the MLP's fit, ours / plain PyTorch", share, (0.8, 0.7), at_most=True
    )
    section.row("Peak memory, MB", ours=ours, PyTorch=plain, share=f"{share:.2f}", target=verdict)
