"""Measure dpmodule against MXNet, plain PyTorch and trainers above it, and write RESULTS.md.

Run: python -m benchmarks [PART ...] [--against mxnet=PYTHON ...] [--isa ISA] [--threads N] [--quick] [--rounds N]
    [--write | --output FILE]

Parts:
  fit        training and prediction by Module, against MXNet and plain PyTorch
  bucketing  an LSTM language model in a BucketingModule: steps, fit, memory
  kernels    where the time of both goes: kernels alone, what is left, share of the peak
  trainers   the MLP's fit against Lightning and Accelerate
  contexts   two CPU contexts against one
  distributed  two processes that train together, against DistributedDataParallel
  runs       saving a run, clipping, looking at gradients, and batches that are added up
  data       pictures and text from files, against torch's DataLoader, NumPy and scikit-learn
  startup    import, bind, first step, peak memory
  passes     what every pass of the executor gains
  compile    Module(compile=True)
  ops        the 60 most used operators, against PyTorch and MXNet
  streams    jobs, tensors and items between threads, processes and tasks
  autobatch  one example at a time, run many at once, against DyNet and hand-batched PyTorch
  hogwild    training straight from files, against PaddlePaddle
  agents     agents in worlds: serial, in batches, by Hogwild, and both
  interop    files and models of other systems, in and out
  way        what a steady batch calls of dpmodule's functions, and in how many files
  cuda       training on a GPU, where there is one

Without names, all of them run, in about 20 minutes. They write RESULTS.md, its picture and its tables, and renew the
figures on pages that bear a mark (see figures.py). With names, they write only with --write, and the other parts'
figures stay. Other systems run
under the interpreters given with --against: "mxnet=PYTHON" has MXNet 1.9.1, "lightning=PYTHON" Lightning,
"accelerate=PYTHON" Accelerate, "dynet=PYTHON" DyNet 2.1, "paddle=PYTHON" PaddlePaddle 3; what has none is left out.
"before=PYTHON" has another revision of dpmodule, or is a folder that holds one with its extension built: fit,
bucketing, startup, streams, autobatch and way then measure both in turns, and the upper quartile of no ratio of its
time over ours may be below 1. Between equal revisions one row in eight misses that by chance with 7 rounds, one in
200 with 30: give --rounds 30. Before anything is timed, all sides must compute the same. Exit status 1: they do not,
or a figure misses what it must reach or what a page says of it (with --quick, figures are not held to that).

ONNX Runtime predicts under "onnxruntime=PYTHON", or under this interpreter if it has it. Figures of fit, bucketing,
kernels and autobatch are also kept in machines/, a file for each processor and setting, each a column in the tables.
With --isa (sse41, avx2 or avx512: instructions that no side goes beyond) or --threads (1 or default: each library's own
number; wall time counts, not for autobatch) that column is all that is written. Exit status 2: this processor cannot do
that, a file in machines/ has another form, or an interpreter lacks its package, in which case the other rows are
measured.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import machines
from .figures import renew
from .harness import PACKAGES, Session, check_before
from .report import Section, data_of, machine, update
from .settings import ISAS, THREADS, Setting

__all__ = ["PARTS", "main"]

PARTS = {
    "fit": "fit",
    "bucketing": "bucketing",
    "kernels": "kernels",
    "trainers": "trainers",
    "contexts": "contexts",
    "distributed": "distributed",
    "runs": "runs",
    "data": "data",
    "startup": "startup",
    "passes": "passes",
    "compile": "compiled",
    "interop": "interop",
    "ops": "ops",
    "streams": "streams",
    "autobatch": "autobatch",
    "hogwild": "hogwild",
    "agents": "agents",
    "way": "way",
    "cuda": "cuda",
}
"""Names of the parts, in the order of the report, and their modules."""
RESULTS = Path(__file__).with_name("RESULTS.md")


def _against(text: str) -> tuple[str, str]:
    name, sign, python = text.partition("=")
    if name not in PACKAGES or not sign or not python:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected NAME=PYTHON with one of {', '.join(PACKAGES)} as NAME"
        )
    return name, python


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("parts", nargs="*", metavar="PART", help="which parts; none = all")
    found.add_argument(
        "--against", action="append", default=[], type=_against, metavar="NAME=PYTHON", help="compare with"
    )
    found.add_argument("--isa", default="", metavar="ISA", help=f"use no more than {', '.join(ISAS)}")
    found.add_argument("--threads", choices=THREADS, help="of every side (default: 1)")
    found.add_argument("--list", action="store_true", help="print the names of the parts")
    found.add_argument("--quick", action="store_true", help="short rounds, to see that it runs")
    found.add_argument("--rounds", type=int, default=7, help="measurements of each side (default: 7)")
    found.add_argument("--write", action="store_true", help=f"put the figures into {RESULTS.name} and pages")
    found.add_argument("--output", type=Path, metavar="FILE", help="put the figures into another file")
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, write, and return the exit status."""
    line = parser()
    args = line.parse_args(given)
    if args.list:
        print("\n".join(PARTS))
        return 0
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        line.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    output = args.output or (RESULTS if args.write or not (args.parts or args.quick) else None)
    setting, aside = Setting(args.isa, args.threads or "1"), bool(args.isa or args.threads)
    parts = args.parts or (_knowing(setting) if aside else PARTS)
    problem = _problem(setting, parts if aside else (), output)
    if problem:
        print(f"python -m benchmarks: {problem}", file=sys.stderr)
        return 2
    session = Session(
        min(args.rounds, 2) if args.quick else args.rounds, args.quick, dict(args.against), setting
    )
    if "before" in session.against:
        check_before(session.against["before"])
    return status(session, _run(parts, session, output, aside))


def _run(parts: Sequence[str], session: Session, output: Path | None, aside: bool) -> list[str]:
    """Measure parts, write their figures, and return what was missed; see `write`."""
    missed = []
    for name in parts:
        section = measure(name, session)
        missed += [
            f"{each.what}: {each.value:.3g}, {each}" for each in section.targets if not each.meets(each.must)
        ]
        if output is not None:
            write(output, name, section, session, aside)
    if output == RESULTS and not (session.quick or aside):
        missed += renew(RESULTS.parents[1], data_of(RESULTS))
    return missed


def _knowing(setting: Setting) -> list[str]:
    """Return the parts that know a setting."""
    return [name for name in machines.PARTS if setting.threads == "1" or name != "autobatch"]


def _problem(setting: Setting, parts: Sequence[str], output: Path | None) -> str:
    """Return in one line why nothing can be measured or written so, "" if all can be.

    Args:
        setting: instructions and threads.
        parts: those that must know it.
        output: the report.
    """
    problem = setting.problem()
    if problem:
        return problem
    others = [name for name in parts if name not in _knowing(setting)]
    if others:
        return f"{', '.join(others)} with {setting}: expected parts among {', '.join(_knowing(setting))}"
    if output is not None:
        try:
            machines.known(output.with_name("machines"))
        except ValueError as error:
            return str(error)
    return ""


def write(output: Path, name: str, section: Section, session: Session, aside: bool) -> None:
    """Put a part's figures into the report.

    Args:
        output: the report.
        name: of the part.
        section: its figures.
        session: how they were taken.
        aside: True if they only make a column of this processor and setting.
    """
    if name in machines.PARTS:
        versions = {
            package: found for package, found in session.versions.items() if found and session.has(package)
        }
        machines.keep(output.with_name("machines"), session.setting, versions, {name: asdict(section)})
    update(output, PARTS, {} if aside else {name: section})


def status(session: Session, missed: Sequence[str]) -> int:
    """Print what was missed, and return the exit status."""
    held = [] if session.quick else missed
    for text in held:
        print(f"missed: {text}")
    if None in session.versions.values():
        return 2
    return 1 if held else 0


def measure(name: str, session: Session) -> Section:
    """Run one part."""
    print(f"\n== {name}", flush=True)
    session.look()
    begin, where = time.monotonic(), machine(session.rounds)
    section: Section = importlib.import_module(f".parts.{PARTS[name]}", __package__).run(session)
    section.where = f"{where} It took {time.monotonic() - begin:.0f} s."
    if session.quick:
        section.where += " A quick run: these figures say nothing."
    return section


if __name__ == "__main__":
    sys.exit(main())
