"""The 60 most used operators, against bare torch calls and against MXNet."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from ..harness import Session, Worker
from ..operator_cases import CASES, SMALL
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
CPU microseconds of one call, medians: through `mx.nd` ("forward"), and forward and backward of a bound executor
("both"), compared with the bare torch call. A ratio is MXNet's time over ours. The overhead of an operator over its
torch call is measured on arrays of four numbers, and for executors on a chain of 200 `relu`."""

DISPATCH_US, NODE_US = (8.0, 3.0), (2.0, 0.5)
SLOWER, EXCEPTIONS = 1.2, 5
CHAIN = 200

REASONS: dict[str, str] = {
    "Convolution": "both run oneDNN's convolution; the ratio differs from run to run",
    "dot": "torch multiplies matrices with MKL, which is slow on some processors; MXNet with oneDNN",
    "Pooling": "torch pools channels-last memory only, so the data are turned first; in a network with convolutions "
    "they already have this layout",
}
"""Operators that may be more than `SLOWER` times slower than MXNet's, with the reason."""

Found = Mapping[str, float]


def run(session: Session) -> Section:
    """Measure every operator; in quick sessions the first few."""
    section = Section("Operators", _ABOUT)
    rounds = min(session.rounds, 3)
    with session.sides(
        dpmodule=("operators", "dpmodule"), torch=("operators", "torch"), mxnet=("operators", "mxnet")
    ) as sides:
        slow = []
        for number, (name, _, _, grads, _) in enumerate(CASES[:3] if session.quick else CASES):
            for what in ("forward", "both") if grads else ("forward",):
                found = _measure(sides, rounds, what, number=number)
                _row(section, name, what, found)
                if "mxnet" in found and found["dpmodule"] > SLOWER * found["mxnet"]:
                    slow.append(name)
                    share = found["dpmodule"] / found["mxnet"]
                    section.note(
                        f"{name}, {what}: {share:.2f} times MXNet's time. {REASONS.get(name, '')}".rstrip()
                    )
        if "mxnet" in sides and not session.quick:
            title = f"operators that take more than {SLOWER} times MXNet's time"
            section.note(f"{title}: {section.hold(title, len(set(slow)), (EXCEPTIONS, 0), at_most=True)}")
        _dispatch(session, sides, rounds, section)
    return section


def _measure(sides: Mapping[str, Worker], rounds: int, what: str, **options: Any) -> dict[str, float]:
    """Return the median microseconds of every side, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            times[name].append(side.ask(what, **options))
    return {name: statistics.median(values) for name, values in times.items()}


def _row(section: Section, name: str, what: str, found: Found) -> None:
    theirs = found.get("mxnet")
    section.row(
        "Operators, microseconds",
        operator=name,
        run=what,
        ours=f"{found['dpmodule']:.1f}",
        torch=f"{found['torch']:.1f}",
        MXNet="" if theirs is None else f"{theirs:.1f}",
        ratio="" if theirs is None else f"{theirs / found['dpmodule']:.2f}",
    )


def _dispatch(session: Session, sides: Mapping[str, Worker], rounds: int, section: Section) -> None:
    """Measure the overhead over the torch call, in microseconds per call or node."""
    extra: dict[str, tuple[Found, float, tuple[float, float]]] = {}
    for number, (label, _) in enumerate(SMALL[:2] if session.quick else SMALL):
        extra[f"`{label}`"] = _measure(sides, rounds, "small", number=number), 1, DISPATCH_US
    for title, train in (("forward", False), ("forward and backward", True)):
        found = _measure(sides, rounds, "chain", length=CHAIN, train=train)
        extra[f"a node of a bound executor, {title}"] = found, CHAIN, NODE_US
    for label, (found, count, bounds) in extra.items():
        over = {
            name: (found[name] - found["torch"]) / count for name in ("dpmodule", "mxnet") if name in found
        }
        verdict = section.hold(f"{label} over the torch call, µs", over["dpmodule"], bounds, at_most=True)
        cells = {
            "ours": f"{over['dpmodule']:.2f}",
            "MXNet": f"{over['mxnet']:.2f}" if "mxnet" in over else "",
        }
        section.row("Over the torch call, microseconds", call=label, **cells, target=verdict)
