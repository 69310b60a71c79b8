"""Programs of PyTorch for one example in `autobatch.batching`, against the loop and others."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..harness import Session, Worker, in_turns, ratio
from ..report import Section
from ..torch_programs import PROGRAMS

__all__ = ["run"]

_ABOUT = """\
A training step (forward, backward, SGD; beam search has no gradients) of twelve programs that are written for one
example, at several numbers of examples and hidden units. Ours is `autobatch.batching` with `autobatch.map`. A cell is
the time of the loop, one example after the other, over that of the side: above 1, the side is faster than the loop.
`torch.compile` compiles the program in the loop and is measured at 64 examples and hidden units; it cannot compile
programs that read values. `torch.nested` has what two of the programs need, and no program has equal shapes for all
examples, as `torch.vmap` demands. DyNet batches automatically, too; its programs compute values that they read without
the other examples. The losses and gradients of all sides agree before anything is timed."""

BATCHES, SIZES = (1, 8, 64, 256), (64, 256)
MUST = {
    "child-sum TreeLSTM": (3.0, 3.0),
    "ragged attention": (4.0, 3.0),
    "graph messages": (2.0, 1.5),
    "set encoder": (2.0, 1.5),
    "greedy decoding": (2.5, 2.0),
    "early exit": (2.0, 2.0),
}
"""Least ratio at 64 examples, by size."""
LEAST = 0.9
SIDES = ("loop", "ours", "hand", "nested")
COMPILED, LONGEST_START_S = (64, 64), 90
"""Size and number of examples at which the compiled loop is measured, if it compiles in time."""
_CANNOT = "cannot express it"


def run(session: Session) -> Section:
    """Measure all programs; in quick sessions small batches only."""
    section = Section("Programs of PyTorch", _ABOUT)
    batches, sizes = ((1, 4), (8,)) if session.quick else (BATCHES, SIZES)
    least: list[float] = []
    wanted = {kind: ("torch_programs", kind) for kind in SIDES}
    with session.sides(**wanted, dynet=("dynet_programs",)) as sides:
        for size in sizes:
            for name in PROGRAMS:
                for count in batches:
                    compiles = (size, count) == COMPILED
                    least.append(_measure(session, sides, section, name, count, size, compiles))
    title = "least of all programs, against the loop"
    section.note(f"{title}: {section.hold(title, min(least), None if session.quick else (LEAST, 1.0))}")
    return section


def _measure(
    session: Session,
    sides: Mapping[str, Worker],
    section: Section,
    name: str,
    count: int,
    size: int,
    compiles: bool,
) -> float:
    """Measure a program, add its row, and return the ratio of the loop's time over ours."""
    compiled = {"compiled": ("torch_programs", "compiled")} if compiles else {}
    with session.sides(**compiled) as further, tempfile.TemporaryDirectory() as folder:
        all_sides, file = {**sides, **further}, str(Path(folder, "case.npz"))
        found = {"loop": sides["loop"].ask("start", name=name, size=size, count=count, file=file)}
        for kind, side in all_sides.items():
            if kind == "dynet":
                found[kind] = side.ask("start", name=name, file=file)
            elif kind != "loop":
                found[kind] = _started(side, name=name, size=size, count=count)
        able = [kind for kind in found if "losses" in found[kind]]
        for kind in able:
            _compare(name, kind, found[kind], found["loop"])
        asked = {kind: (lambda side=all_sides[kind]: side.ask("measure")) for kind in able}
        times = in_turns(asked, session.short(session.rounds, 1), settle=session.settles)
    clocks = {kind: each[session.clock] for kind, each in times.items()}
    shares = {kind: ratio(clocks["loop"], clocks[kind]) for kind in able if kind != "loop"}
    bound = None
    if count == 64 and name in MUST:
        must = MUST[name][size == 256]
        bound = (must, max(must, shares["hand"].median / 2))
    verdict = section.hold(f"{name}, {count} x {size}, against the loop", shares["ours"].median, bound)
    section.row(
        f"Time of the loop over that of each side, {size} hidden units",
        program=name, examples=count, loop_ms=f"{statistics.median(clocks['loop']):.2f}",
        **{kind: shares.get(kind, "") for kind in (*SIDES[1:], "compiled", "dynet")}, target=verdict,
    )  # fmt: skip
    for kind, answer in found.items():
        if answer.get("why", _CANNOT) != _CANNOT and count in (1, COMPILED[1]):
            section.note(f"{name}, {count} x {size}: {kind}: {answer['why']}")
    return shares["ours"].median


def _started(side: Worker, **case: Any) -> dict[str, Any]:
    """Start a case; a side that takes too long is killed."""
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        with suppress(RuntimeError):  # it was killed
            answers.append(side.ask("start", **case))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(LONGEST_START_S)
    if thread.is_alive():
        os.kill(side.pid, signal.SIGKILL)
        thread.join()
    return answers[0] if answers else {"why": f"more than {LONGEST_START_S} s"}


def _compare(name: str, kind: str, found: dict[str, Any], loop: dict[str, Any]) -> None:
    for what in ("losses", "grads"):
        if what in found and not np.allclose(found[what], loop[what], rtol=1e-3, atol=1e-4):
            raise SystemExit(f"{name}: {kind} has another {what} than the loop: {found[what]}, {loop[what]}")
