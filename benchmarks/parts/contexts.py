"""Two CPU contexts against one."""

from __future__ import annotations

import json
from functools import partial

from ..harness import Session, agreement, in_turns
from ..report import Section
from ..workloads import WORKLOADS, first_value

__all__ = ["run"]

_ABOUT = """\
`Module(context=[cpu(0), cpu(1)])` against `Module(context=cpu(0))`, both with one intra-op thread in each context: the
first may keep two cores busy, so wall time is compared, and the machine needs two free cores. A ratio is the time
of one context over that of two. Several contexts normalise each part of a batch separately, as in MXNet, so ResNet-20
is compared by its predictions before training."""

TARGETS = {"mlp": None, "lenet": (1.25, 1.6), "resnet20": (1.25, 1.6)}


def run(session: Session) -> Section:
    """Measure LeNet and ResNet-20, and the MLP, which never gains; in quick sessions only the MLP."""
    section = Section("Two contexts", _ABOUT)
    for name in ("mlp",) if session.quick else TARGETS:
        workload = WORKLOADS[name]
        common = ("module", "dpmodule", name, session.short(4 * workload.batches, 2 + workload.checked))
        wanted = {
            each: (*common, json.dumps({"contexts": count})) for each, count in (("two", 2), ("one", 1))
        }
        with session.sides(**wanted) as sides:
            checks = {
                each: partial(side.ask, "check", train=name != "resnet20") for each, side in sides.items()
            }
            agree = {each: (lambda path, ask=ask: ask(path=path)) for each, ask in checks.items()}
            section.note(f"{workload.title}: {agreement(agree, first_value, workload.tolerance)}")
            for what in ("fit", "predict"):
                found = in_turns(
                    {each: partial(side.ask, what) for each, side in sides.items()}, session.rounds
                )
                bounds = TARGETS[name] if what == "fit" else None
                title = f"{workload.title}: {what}, two contexts"
                section.compare(title, found["two"], "one context", found["one"], bounds, "wall")
    return section
