"""Training and prediction by `Module`, against MXNet and against the fastest plain PyTorch loop."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
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
their own (last table); the two with the least CPU time are then measured with the others, and the faster one is
reported by name. Prediction by plain PyTorch is in `inference_mode`, with the probabilities put
together at the end; `torch.compile` is the loop that was fastest in the first two rounds, with its network compiled for
its shapes, which is not in the time. ONNX Runtime predicts from the file that `dpmodule.onnx.export_model` writes."""

HEATS = "All plain loops, milliseconds per batch"


PREDICT = (1.05, 1.3)
"""(must, aim) of plain PyTorch's time of prediction over ours."""
_CLOCKS = {"cpu": "CPU", "wall": "wall"}


def run(session: Session) -> Section:
    """Measure every workload; in quick sessions two small ones."""
    section = Section("Training and prediction", _ABOUT, tables={"": []})  # it comes first
    for workload in WORKLOADS.values():
        if not session.quick or workload.name in ("mlp", "lstm"):
            compare(session, workload, section)
    guard(session, section)
    return section


def guard(session: Session, section: Section) -> None:
    """Measure the cost of checking gradients for NaN before every update."""
    workload = WORKLOADS["mlp"]
    with session.sides(
        ours=("module", "dpmodule", workload.name, session.short(workload.batches, 2))
    ) as sides:
        ways = {way: partial(sides["ours"].ask, way) for way in ("fit", "fit_without_look")}
        found = in_turns(ways, session.rounds if session.quick else 30)
    title = f"{workload.title}: fit, accuracy, which looks for NaN in gradients"
    others = found["fit_without_look"]
    section.compare(title, found["fit"], "fit that does not", others, (0.98, 0.99), session.clock)


def variants(workload: Workload, trained: bool = True) -> list[str]:
    """Return the names of the variants of the plain loop; layouts only matter for images, updates for training."""
    layouts = ("NCHW", "channels_last") if len(workload.shape) == 3 else ("NCHW",)
    updates = ("fused", "foreach") if trained else ("fused",)
    return ["/".join(parts) for parts in itertools.product(layouts, updates, ("slices", "DataLoader"))]


@dataclass(frozen=True)
class Mode:
    """A measurement of a workload.

    Attributes:
        title: title in reports.
        what: request to the sides.
        options: arguments of the request.
        mxnet: (must, aim) of MXNet's time over ours.
        plain: those of the plain loop's time.
        runtime: those of ONNX Runtime's.
    """

    title: str
    what: str
    options: dict[str, Any] = field(default_factory=dict)
    mxnet: Bounds = None
    plain: Bounds = None
    runtime: Bounds = None


def modes(workload: Workload) -> list[Mode]:
    """Return the measurements of a workload."""
    targets, found = workload.targets, []
    if workload.trained:
        found.append(Mode("fit, accuracy", "fit", {"metric": True}, targets.fit, targets.plain))
    if workload.trained and workload.batches > 10:  # in large networks noise exceeds the cost of the metric
        found.append(Mode("fit, no metric", "fit", {"metric": False}, None, targets.plain))
    if targets.step:
        found.append(Mode("step", "step", {}, targets.step))
    return [*found, Mode("predict", "predict", {}, targets.predict, PREDICT, targets.runtime)]


def compare(session: Session, workload: Workload, section: Section) -> None:
    """Compare one workload's fit and predict."""
    batches = session.short(workload.batches, 2 + workload.checked)
    common = (workload.name, batches)
    wanted = {
        "ours": ("module", "dpmodule", *common),
        "plain": ("plain", *common),
        "mxnet": ("module", "mxnet", *common),
        "onnxruntime": ("exported", *common),
    }
    with session.sides(**with_before(wanted, "ours")) as sides:
        runtime = sides.pop("onnxruntime", None)
        section.note(f"{workload.title}: {_alike(workload, sides)}")
        if runtime:  # before longer training: with large weights its approximation of tanh is visible
            section.note(f"{workload.title}: {_exported(workload, sides['ours'], runtime)}")
        for mode in modes(workload):
            if mode.what == "predict" and runtime:
                sides["onnxruntime"] = runtime
            found, fastest = measure(session, workload, sides, mode, section)
            _rows(f"{workload.title}: {mode.title}", mode, found, fastest, session.clock, section)


def _rows(
    title: str, mode: Mode, found: dict[str, Times], fastest: str, clock: str, section: Section
) -> None:
    """Compare our times with those of the others."""
    for name, label, bounds in (
        ("mxnet", "MXNet", mode.mxnet),
        ("plain", f"PyTorch {fastest}", mode.plain),
        ("compiled", "torch.compile", None),
        ("onnxruntime", "ONNX Runtime", mode.runtime),
    ):
        if name in found:
            section.compare(title, found["ours"], label, found[name], bounds, clock)
    section.before(title, found, clock=clock)


def _exported(workload: Workload, ours: Worker, runtime: Worker) -> str:
    """Check that ONNX Runtime computes the same results from our file."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "net.onnx"))
        ours.ask("export", path=path)
        runtime.ask("load", path=path)
    checks = {
        "ours": lambda path: ours.ask("check", path=path, train=False),
        "ONNX Runtime": lambda path: runtime.ask("check", path=path),
    }
    return agreement(checks, first_value, workload.tolerance)


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
    plain, what, options, clock = sides["plain"], mode.what, mode.options, session.clock
    names = variants(workload, what != "predict")
    heats = {name: partial(plain.ask, what, variant=name, **options) for name in names}
    heat = in_turns(heats, 1 if session.quick else 2, settle=session.settles)
    for name in names:
        title = f"{workload.title}: {mode.title}"
        section.row(HEATS, workload=title, loop=name, **{_CLOCKS[clock]: Spread.of(heat[name][clock])})
    best = sorted(names, key=lambda name: Spread.of(heat[name][clock]).median)[: 1 if session.quick else 2]
    askers = {name: partial(side.ask, what, **options) for name, side in sides.items() if name != "plain"}
    if what == "predict" and not session.setting.limits:
        askers["compiled"] = _compiled(session, plain, best[0])
    asked = {**askers, **{name: heats[name] for name in best}}
    found = in_turns(asked, session.rounds, settle=session.settles)
    fastest = min(best, key=lambda name: Spread.of(found[name][clock]).median)
    return {**found, "plain": found[fastest]}, fastest


def _compiled(session: Session, plain: Worker, variant: str) -> Callable[[], Any]:
    """Return a side that predicts with a compiled network, after a check of its results.

    Raises:
        SystemExit: the results differ.
    """
    # "eager" does not compile, for quick sessions
    options = {"variant": variant, "backend": "eager" if session.quick else "inductor"}
    apart = plain.ask("apart", **options)
    if not apart <= 1e-4:
        raise SystemExit(f"torch.compile computes something else: predictions differ by {apart:.1g}")
    return partial(plain.ask, "predict", **options)
