"""Training and prediction by `Module`, against MXNet and against the fastest plain PyTorch loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..harness import Session, Spread, Times, Worker, agreement, in_turns, with_before
from ..report import Section
from ..workloads import WORKLOADS, Bounds, Workload, first_value

__all__ = ["Mode", "compare", "guard", "measure", "modes", "run", "variants"]

_ABOUT = """\
`Module.fit` on an `NDArrayIter` and `Module.predict`, with their defaults; momentum SGD. "Accuracy" is the metric
`acc`, kept by both sides or by neither. Plain PyTorch is the same network and loop in every combination of NCHW or
channels_last (data and weights brought to it beforehand), foreach or fused `torch.optim.SGD`, tensor slices or
`DataLoader`, with `zero_grad(set_to_none=True)`, `F.cross_entropy` and `nn.LSTM`. All of them run in two rounds of
their own (last table); the two with the least CPU time then take their turns with the others, and the faster of them is
the one that counts, and is named. Prediction by plain PyTorch is in `inference_mode`, with the probabilities put
together at the end."""

HEATS = "All plain loops, CPU milliseconds per batch"


def run(session: Session) -> Section:
    """Measure every workload; in quick sessions two small ones."""
    section = Section("Training and prediction", _ABOUT, tables={"": []})  # which comes first
    for workload in WORKLOADS.values():
        if not session.quick or workload.name in ("mlp", "lstm"):
            compare(session, workload, section)
    guard(session, section)
    return section


def guard(session: Session, section: Section) -> None:
    """Measure what it costs to look for NaN in gradients before every update."""
    workload = WORKLOADS["mlp"]
    with session.sides(
        ours=("module", "dpmodule", workload.name, session.short(workload.batches, 2))
    ) as sides:
        ways = {way: partial(sides["ours"].ask, way) for way in ("fit", "fit_without_look")}
        found = in_turns(ways, session.rounds if session.quick else 30)
    title = f"{workload.title}: fit, accuracy, which looks for NaN in gradients"
    section.compare(title, found["fit"], "fit that does not", found["fit_without_look"], (0.98, 0.99))


def variants(workload: Workload, trained: bool = True) -> list[str]:
    """Return the names of the ways to write the plain loop; layouts only matter for images, updates for training."""
    layouts = ("NCHW", "channels_last") if len(workload.shape) == 3 else ("NCHW",)
    updates = ("fused", "foreach") if trained else ("fused",)
    return ["/".join(parts) for parts in itertools.product(layouts, updates, ("slices", "DataLoader"))]


@dataclass(frozen=True)
class Mode:
    """What is measured of a workload.

    Attributes:
        title: how reports call it.
        what: what the sides are asked for.
        options: how.
        mxnet: (must, aim) of MXNet's time over ours.
        plain: those of the plain loop's time.
    """

    title: str
    what: str
    options: dict[str, Any] = field(default_factory=dict)
    mxnet: Bounds = None
    plain: Bounds = None


def modes(workload: Workload) -> list[Mode]:
    """Return what is measured of a workload."""
    targets, found = workload.targets, []
    if workload.trained:
        found.append(Mode("fit, accuracy", "fit", {"metric": True}, targets.fit, targets.plain))
    if workload.trained and workload.batches > 10:  # in large networks the metric is lost in the noise
        found.append(Mode("fit, no metric", "fit", {"metric": False}, None, targets.plain))
    if targets.step:
        found.append(Mode("step", "step", {}, targets.step))
    return [*found, Mode("predict", "predict", {}, targets.predict)]


def compare(session: Session, workload: Workload, section: Section) -> None:
    """Compare one workload's fit and predict."""
    batches = session.short(workload.batches, 2 + workload.checked)
    common = (workload.name, batches)
    wanted = {
        "ours": ("module", "dpmodule", *common),
        "plain": ("plain", *common),
        "mxnet": ("module", "mxnet", *common),
    }
    with session.sides(**with_before(wanted, "ours")) as sides:
        section.note(f"{workload.title}: {_alike(workload, sides)}")
        for mode in modes(workload):
            title = f"{workload.title}: {mode.title}"
            found, fastest = measure(session, workload, sides, mode, section)
            if "mxnet" in found:
                section.compare(title, found["ours"], "MXNet", found["mxnet"], mode.mxnet)
            section.compare(title, found["ours"], f"PyTorch {fastest}", found["plain"], mode.plain)
            section.before(title, found)


def _alike(workload: Workload, sides: Mapping[str, Worker]) -> str:
    """Check that all sides and all variants compute the same."""
    checks: dict[str, Callable[[str], Any]] = {}
    for name, side in sides.items():
        if name != "plain":
            checks[name] = lambda path, side=side: side.ask("check", path=path)
    for variant in variants(workload):
        checks[variant] = lambda path, v=variant: sides["plain"].ask("check", path=path, variant=v)
    return agreement(checks, first_value, workload.tolerance)


def measure(
    session: Session, workload: Workload, sides: Mapping[str, Worker], mode: Mode, section: Section
) -> tuple[dict[str, Times], str]:
    """Find the fastest plain loop, then measure all sides; return their times and that loop's name."""
    plain, what, options = sides["plain"], mode.what, mode.options
    names = variants(workload, what != "predict")
    heats = {name: partial(plain.ask, what, variant=name, **options) for name in names}
    heat = in_turns(heats, 1 if session.quick else 2)
    for name in names:
        title = f"{workload.title}: {mode.title}"
        section.row(HEATS, workload=title, loop=name, CPU=Spread.of(heat[name]["cpu"]))
    best = sorted(names, key=lambda name: Spread.of(heat[name]["cpu"]).median)[: 1 if session.quick else 2]
    askers = {name: partial(side.ask, what, **options) for name, side in sides.items() if name != "plain"}
    found = in_turns({**askers, **{name: heats[name] for name in best}}, session.rounds)
    fastest = min(best, key=lambda name: Spread.of(found[name]["cpu"]).median)
    return {**found, "plain": found[fastest]}, fastest
