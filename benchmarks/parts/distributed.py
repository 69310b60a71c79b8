"""Two processes that train together, against torch's DistributedDataParallel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..harness import Session
from ..report import Section
from ..workloads import WORKLOADS

__all__ = ["run"]

_ABOUT = """\
`fit` with a kvstore "dist_sync" in two processes of one thread each, against the plain loop over a
DistributedDataParallel with `gradient_as_bucket_view=True`; both by gloo, SGD with momentum, in turns in the same two
processes. Wall time is compared, and the machine needs two free cores. Before anything is timed, the parameters of
both are compared after an epoch."""

TARGETS = (0.95, 1.2)
_ROOT = Path(__file__).parents[2]


def run(session: Session) -> Section:
    """Measure all networks; in quick sessions only the perceptron."""
    section = Section("Two processes", _ABOUT)
    for name in ("mlp",) if session.quick else ("mlp", "lenet", "resnet20", "lstm"):
        workload = WORKLOADS[name]
        found = _measured(name, session.short(workload.batches), session.rounds)
        apart = found["apart"]
        if apart > workload.tolerance:
            raise RuntimeError(
                f"{name}: parameters differ by {apart:.1e}, more than {workload.tolerance:.0e}"
            )
        section.note(f"{workload.title}: parameters differ by {apart:.1e} at most.")
        section.compare(
            f"{workload.title}: fit",
            found["ours"],
            "DistributedDataParallel",
            found["theirs"],
            TARGETS,
            "wall",
        )
    return section


def _measured(workload: str, batches: int, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "benchmarks.sides.distributed", workload, str(batches), str(rounds)]
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"two processes failed: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
