"""Breakdown of time: kernels of a program alone, the rest, and the fraction of the peak."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..harness import Session, Spread, Worker, in_turns, ratio
from ..report import Section
from ..workloads import WORKLOADS
from .fit import modes

__all__ = ["measure", "run"]

_ABOUT = """\
The rows of "Training and prediction", and a step of the language model, unrolled, at bucket 60. "Kernels" is the
time of the kernels that a row's epoch calls. They are recorded once: all operators of torch's dispatcher below
autograd, and the functions of the native extension on tensors. A Python function without a loop then makes the same
calls in the same order, on its own memory with the recorded contents; results are new memory each time and are freed
after their last reader, so that caches behave as in the network. The results must be the same. The time of an empty
call, `relu_` of one number, is subtracted for each call. The remainder is arithmetic, memory traffic, allocation and
the start of large kernels, for every kernel that we call, needed or not; the rest of a row is ours: iterator, plan,
autograd, metric, and the calls of kernels.

"Peak" is the share of the machine's: operations of the network over the time of the row, or over that of its kernels
alone, over those of a product of two float32 matrices of 1,024 rows and columns by the faster of torch's `mm` and
oneDNN, in the same round. Operations are what `Module.explain` counts: a multiplication and an addition are two,
backward makes each product again for every factor whose gradient is wanted and everything else again; updates,
metrics and checks are not counted. "Slowest" are the three kernels that take most of the kernels' time, with
their shares of it, all calls of a name together, each timed separately, the minimum of five times."""

_TOLERANCE = 1e-3
_CLOCKS = {"cpu": "CPU", "wall": "wall"}


def run(session: Session) -> Section:
    """Measure every row; in quick sessions those of one small network."""
    section, peaks = Section("Where the time goes", _ABOUT, tables={"": []}), list[float]()
    for workload in WORKLOADS.values():
        if session.quick and workload.name != "mlp":
            continue
        with session.sides(ours=("kernels", workload.name, session.short(workload.batches, 2))) as sides:
            for mode in modes(workload):
                title = f"{workload.title}: {mode.title}"
                peaks += measure(session, section, title, sides["ours"], mode.what, **mode.options)
    if not session.quick:
        with session.sides(ours=("kernels", "language", 2)) as sides:
            title, options = "language model, unrolled: step, bucket 60", {"bucket": 60, "count": 2}
            peaks += measure(session, section, title, sides["ours"], "step", **options)
    section.note(f"The machine's peak, over all rounds: {Spread.of(peaks)} GFLOP/s.")
    return section


def measure(
    session: Session, section: Section, title: str, side: Worker, program: str, **options: Any
) -> list[float]:
    """Measure a program, its kernels alone and the peak in turns, add a row, and return the peaks.

    Args:
        session: how to measure.
        section: section of the row.
        title: title of the row.
        side: side that runs the program.
        program: request to the side.
        options: arguments of the request.

    Raises:
        SystemExit: the results of the kernels alone differ.
    """
    found = side.ask("record", program=program, **options)
    if not found["apart"] <= _TOLERANCE:
        raise SystemExit(f"{title}: the kernels alone compute something else, by {found['apart']:.1g}")
    asked = {"ours": partial(side.ask, program, **options)}
    asked.update({name: partial(side.ask, name) for name in ("replay", "peak")})
    times = {name: each[session.clock] for name, each in in_turns(asked, session.rounds).items()}
    ours, kernels = times["ours"], times["replay"]
    least = [found["flops"] / 1e9 * each for each in times["peak"]]  # milliseconds at the peak
    cells = {
        "what": title,
        "against": "its kernels alone",
        "time": Spread.of(ours),
        "kernels": Spread.of(kernels),
        f"ratio_{_CLOCKS[session.clock]}": ratio(kernels, ours),
        "overhead_ms": Spread.of([a - b for a, b in zip(ours, kernels, strict=True)]),
        "overhead": _percent(1 - b / a for a, b in zip(ours, kernels, strict=True)),
        "calls": f"{found['calls']:.0f}",
        "GFLOP": f"{found['flops'] / 1e9:.3g}",
        "peak": _percent(a / b for a, b in zip(least, ours, strict=True)),
        "peak_of_kernels": _percent(a / b for a, b in zip(least, kernels, strict=True)),
        "slowest": ", ".join(f"`{name}` {share:.0%}" for name, share in side.ask("slowest", count=3)),
    }
    section.row("", **cells)
    return [1e3 / each for each in times["peak"]]


def _percent(shares: Iterable[float]) -> str:
    """Return the median of shares, as text."""
    return f"{Spread.of(list(shares)).median:.0%}"
