"""Tables whose rows are spread over processes, against DistributedDataParallel and one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..harness import Session, Spread, ratio
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
A click model: 64 examples of 10 words in each process, a table of rows of 16 numbers, their sum, a dense layer, and
AdaGrad. *Spread*: a `Module` with the kvstore "dist_sync". *ddp*: torch's DistributedDataParallel over
`EmbeddingBag(sparse=True)`, by gloo. *Torchrec*: its row-wise sharding on the CPU, where it is installed. *One*: one
process without a store. *Files*: an `AsyncExecutor`, whose processes average after each epoch; *program*: an
`AutobatchModule`; each with spread and with whole tables. CPU time of a step, summed over all processes; memory of all
processes beyond that before the table was made. The systems run in several launches, in turns. A ratio is the CPU time
of the other over ours: above 1, ours is faster."""

_ROOT = Path(__file__).parents[2]
ROWS = (100_000, 1_000_000, 4_000_000)
LAUNCHES = 3
_NAMES = {"files": "AsyncExecutor", "program": "AutobatchModule"}
_KINDS = "spread", "whole"


def run(session: Session) -> Section:
    """Measure tables of several heights, in 1, 2 and 4 processes."""
    section = Section("Spread tables", _ABOUT)
    steps, launches = session.short(20, 3), session.short(LAUNCHES, 1)
    for rows in ROWS[:1] if session.quick else ROWS:
        for size in (2,) if session.quick else (2, 4):
            systems = {"spread": size, "ddp": size, "one": 1}
            if size == 2:
                systems |= {f"{what}-{kind}": size for what in _NAMES for kind in _KINDS}
            if find_spec("torchrec") is not None:
                systems["torchrec"] = size
            found: dict[str, list[Any]] = {name: [] for name in systems}
            for _ in range(launches):
                for name, count in systems.items():
                    found[name].append(_launch(name, count, rows, steps, session.rounds))
            cpu = {name: [ms for one in each for ms in one["cpu"]] for name, each in found.items()}
            section.row(
                "CPU time of a step",
                rows=f"{rows:,}",
                processes=size,
                **{f"{name}_ms": Spread.of(each) for name, each in cpu.items() if "-" not in name},
                **{name: ratio(cpu[name], cpu["spread"]) for name in ("ddp", "torchrec") if name in cpu},
            )
            for what in _NAMES if size == 2 else ():
                spread, whole = (
                    [ms for one in found[f"{what}-{kind}"] for ms in one["cpu"]] for kind in _KINDS
                )
                section.row(
                    f"CPU time of a step of {_NAMES[what]}", rows=f"{rows:,}", processes=size,
                    spread_ms=Spread.of(spread), whole_ms=Spread.of(whole), whole=ratio(whole, spread),
                )  # fmt: skip
            table = rows * 16 * 4 * 2 / 2**20
            section.row(
                "Memory of all processes in MB", rows=f"{rows:,}", processes=size, table_and_states=round(table),
                **{name.replace("-", "_"): round(min(one["memory"] for one in each)) for name, each in found.items()},
            )  # fmt: skip
    return section


def _launch(system: str, size: int, rows: int, steps: int, rounds: int) -> dict[str, Any]:
    """Run a system once, and return the milliseconds and megabytes of all processes together."""
    command = [sys.executable]
    if size > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    command += ["-m", "benchmarks.sides.sparse_dist", system, str(rows), str(steps), str(rounds)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, check=False)
    answers = [json.loads(text) for text in done.stdout.replace("}{", "}\n{").splitlines() if text]
    if done.returncode or len(answers) != size:
        raise RuntimeError(f"{system} in {size} processes failed: {done.stderr[-2000:]}")
    cpu = [sum(times) for times in zip(*(answer["cpu"] for answer in answers))]
    return {"cpu": cpu, "memory": sum(answer["memory"] for answer in answers)}
