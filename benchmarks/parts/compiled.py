"""`Module(compile=True)` against programs that are not compiled."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from ..harness import Session, Spread, Worker, agreement, in_turns, ratio
from ..report import Section
from ..workloads import WORKLOADS, first_value

__all__ = ["run"]

_ABOUT = """\
`Module(compile=True)` passes the network to `torch.compile`, which needs a C++ compiler. A ratio is the time without it
over the time with it: above 1, compiling gains. "Compiling" is how many seconds longer the first epoch and the first
prediction take, again for every shape; "pays after" is the number of training batches that earn it back."""

CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("mlp", "", {}),
    ("lenet", "", {}),
    ("lstm", "", {}),
    ("lstm", ", chain not recognised", {"disabled": ["rnn_chains"]}),
)


def run(session: Session) -> Section:
    """Measure small networks, which gain most."""
    section = Section("torch.compile", _ABOUT)
    for name, suffix, options in CASES[: 1 if session.quick else None]:
        workload = WORKLOADS[name]
        common = ("module", "dpmodule", name, session.short(workload.batches, 2 + workload.checked))
        # "eager" does not compile, for quick sessions
        compiled = {**options, "compile": "eager" if session.quick else True}
        with session.sides(
            usual=(*common, json.dumps(options)), compiled=(*common, json.dumps(compiled))
        ) as sides:
            taken: dict[str, float] = {}
            checks = {each: partial(_check, side, each, taken) for each, side in sides.items()}
            title = workload.title + suffix
            section.note(f"{title}: {agreement(checks, first_value, workload.tolerance)}")
            for what in ("fit", "predict"):
                asked = {each: partial(side.ask, what) for each, side in sides.items()}
                found = in_turns(asked, min(session.rounds, 5))
                usual, other = (Spread.of(found[each]["cpu"]) for each in ("usual", "compiled"))
                seconds, gain = taken["compiled"] - taken["usual"], usual.median - other.median
                pays = "never"
                if gain > 0.02 * usual.median:
                    pays = f"{seconds * 1e3 / gain:,.0f} batches"
                section.row(
                    "",
                    network=f"{title}: {what}",
                    usual_CPU=usual,
                    compiled_CPU=other,
                    ratio=ratio(found["usual"]["cpu"], found["compiled"]["cpu"]),
                    compiling=f"{seconds:.1f} s",
                    pays_after=pays,
                )
    return section


def _check(side: Worker, name: str, taken: dict[str, float], path: str) -> Any:
    """Measure the first prediction and training of a side in seconds."""
    side.ask("memory")  # waits until the module is bound
    begin = time.monotonic()
    losses = side.ask("check", path=path)
    taken[name] = time.monotonic() - begin
    return losses
