"""In and out: what other systems' files and modules cost, and what they run at."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from ..harness import Session, Worker, agreement, in_turns
from ..report import Section
from ..workloads import WORKLOADS, first_value

__all__ = ["run"]

_ABOUT = """\
"Left" is what `Module.to_torch` returns, run by PyTorch alone, under `torch.compile` or as it is."""


def run(session: Session) -> Section:
    """Measure every figure."""
    section = Section("In and out", _ABOUT)
    for measure in _FIGURES:
        measure(session, section)
    return section


def _to_torch(session: Session, section: Section) -> None:
    """Predict with a module that has left, against the one that stays."""
    workload = WORKLOADS["resnet20"]
    batches = str(session.short(workload.batches, workload.checked))
    backend = (
        "eager" if session.quick else "inductor"
    )  # "eager" compiles nothing, and does not take half a minute
    compiled = json.dumps({"compile": {"backend": backend}})
    with session.sides(
        left=("left", workload.network, batches, json.dumps({"backend": backend, "dynamic": False})),
        module=("module", "dpmodule", workload.network, batches, compiled),
        left_plain=("left", workload.network, batches),
        module_plain=("module", "dpmodule", workload.network, batches),
    ) as sides:
        checks = {name: partial(_predictions, side) for name, side in sides.items()}
        section.note(f"{workload.title}: {agreement(checks, first_value, 0.0)}")
        found = in_turns({name: partial(side.ask, "predict") for name, side in sides.items()}, session.rounds)
    what = f"{workload.title}: predict, left, torch.compile"
    section.compare(what, found["left"], "Module(compile=True)", found["module"], (1.0, 1.0))
    what = f"{workload.title}: predict, left, as it is"
    section.compare(what, found["left_plain"], "Module", found["module_plain"])


def _predictions(side: Worker, path: str) -> list[float]:
    """Let a side predict and save what comes out."""
    losses: list[float] = side.ask("check", path=path, train=False)
    return losses


_FIGURES: tuple[Callable[[Session, Section], None], ...] = (_to_torch,)
"""What is measured, in order."""
