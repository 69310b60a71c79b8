"""Cost of saving a run, of clipping and of checking gradients; and accumulated batches."""

from __future__ import annotations

from functools import partial

from ..harness import Session, Worker, agreement, in_turns
from ..report import Section
from ..sides.runs import CLIP, EVERY, TIMES
from ..workloads import WORKLOADS, first_value

__all__ = ["run"]

_ABOUT = f"""\
`fit` with `checkpoint` every {EVERY} batches, `resume="auto"`, `clip_global_norm={CLIP:g}` and the check of gradients,
against `fit` without all of these (`on_nonfinite="ignore"`). A measurement is an epoch of {EVERY} batches; it resumes
from the previous save, and saves once. And `accumulate={TIMES}` against `fit` on batches {TIMES} times as
large, without the check of gradients; times are per batch of this size. Both by CPU time. Before anything is
timed, parameters are compared after eight batches: of the first pair without clipping, of the second for networks
without BatchNorm, which normalises each batch separately."""

SAFE, ACCUMULATED = (0.95, 0.98), (0.9, 1.0)


def run(session: Session) -> Section:
    """Measure ResNet-20, and the smaller networks, where an update is a larger part; in quick sessions only the MLP."""
    section = Section("Runs", _ABOUT)
    for name in ("mlp",) if session.quick else ("resnet20", "lenet", "mlp"):
        is_held = name == "resnet20"
        count = EVERY if is_held else 4 * EVERY
        with session.sides(safe=("runs", name, EVERY, "safe"), plain=("runs", name, EVERY, "plain")) as sides:
            _compare(section, session, name, sides, "saved, clipped, looked at", SAFE if is_held else None)
        count = TIMES * max(1, session.short(count) // TIMES)
        wanted = {each: ("runs", name, count, each) for each in ("accumulated", "whole")}
        with session.sides(**wanted) as sides:
            _compare(section, session, name, sides, f"accumulate={TIMES}", ACCUMULATED if is_held else None)
    return section


def _compare(
    section: Section,
    session: Session,
    name: str,
    sides: dict[str, Worker],
    what: str,
    bounds: tuple[float, float] | None,
) -> None:
    """Compare the results of two sides, and measure them in turns."""
    workload = WORKLOADS[name]
    ours, theirs = sides
    if ours == "safe" or name != "resnet20":
        checks = {each: partial(side.ask, "check") for each, side in sides.items()}
        agree = {each: (lambda path, ask=ask: ask(path=path)) for each, ask in checks.items()}
        section.note(f"{workload.title}: {agreement(agree, first_value, workload.tolerance)}")
    found = in_turns({each: partial(side.ask, "fit") for each, side in sides.items()}, session.rounds)
    section.compare(f"{workload.title}: fit, {what}", found[ours], theirs, found[theirs], bounds)
