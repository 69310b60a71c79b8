"""Measure dpmodule against MXNet, PyTorch and training libraries, and write RESULTS.md.

Run: python -m benchmarks [PART ...] [--against mxnet=PYTHON ...] [--isa ISA] [--threads N] [--quick] [--rounds N]
    [--write | --output FILE]

Parts:
  fit        training and prediction by Module, against MXNet and plain PyTorch
  bucketing  an LSTM language model in a BucketingModule: steps, fit, memory
  kernels    time of both in kernels and outside, fraction of the peak
  trainers   the MLP's fit against Lightning and Accelerate
  contexts   two CPU contexts against one
  distributed  two processes, against DistributedDataParallel
  sparse-dist  tables whose rows are spread over processes, against DistributedDataParallel
  sparse-ranks  bytes and messages of spread tables in up to 256 processes, counted
  runs       saving a run, clipping, checking gradients, and accumulated batches
  data       images and text from files, against torch's DataLoader, NumPy and scikit-learn
  startup    import, bind, first step, peak memory
  passes     gain of every pass of the executor
  compile    Module(compile=True)
  ops        the 60 most used operators, against PyTorch and MXNet
  operators  random layers and thirty networks, against PyTorch, ONNX Runtime, OpenVINO and JAX
  streams    jobs, tensors and items between threads, processes and tasks
  feed       batches from worker processes, against torch's DataLoader, SPDL and faster-fifo
  autobatch  automatic batching of single examples, against DyNet and hand-batched PyTorch
  autobatch-torch  programs of PyTorch for one example, batched automatically, against the loop and by hand
  hogwild    training from files, against PaddlePaddle
  agents     agents in worlds: serial, in batches, by Hogwild, and both
  interop    import and export of files and models of other systems
  way        functions of dpmodule that a steady batch calls, and their files
  cuda       training on a GPU, if there is one

"feed --mine MODULE:NAME" measures a torch DataLoader of yours, or that of a function, and prints what a batch costs to
make, to hand over and to wait for.

Without names, all parts run; without operators, in about 20 minutes. They write RESULTS.md, its picture and its tables,
and update the marked figures on pages (see figures.py). With names, they write only with --write, and the figures of
other parts are kept. Other systems run under the interpreters of --against: "mxnet=PYTHON" has MXNet 1.9.1,
"lightning=PYTHON" Lightning, "accelerate=PYTHON" Accelerate, "dynet=PYTHON" DyNet 2.1, "paddle=PYTHON" PaddlePaddle 3;
missing ones are skipped. "before=PYTHON" has another revision of dpmodule, or is a folder that holds one with its
extension built: fit, bucketing, startup, streams, autobatch and way then measure both in turns, and the upper quartile
of every ratio of its time over ours must be at least 1. Between equal revisions one row in eight fails by chance with 7
rounds, one in 200 with 30: pass --rounds 30. Before anything is timed, all sides must compute the same results. Exit
status 1: they do not, or a figure misses its target or contradicts a page (targets are not checked with --quick).

ONNX Runtime, OpenVINO and JAX (with jaxonnxruntime) predict under "onnxruntime=PYTHON", "openvino=PYTHON" and
"jax=PYTHON", or under this interpreter if it has them. Figures of fit, bucketing,
kernels and autobatch are also kept in machines/, a file for each processor and setting, each a column in the tables.
With --isa (sse41, avx2 or avx512: the largest instruction set of all sides) or --threads (1 or default: the default of
each library; compares wall time, not for autobatch) only that column is written. Exit status 2: this processor does not
support that, a file in machines/ has another version, or an interpreter lacks its package, in which case the other rows
are measured.
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
    "sparse-dist": "sparse_dist",
    "sparse-ranks": "sparse_ranks",
    "runs": "runs",
    "data": "data",
    "startup": "startup",
    "passes": "passes",
    "compile": "compiled",
    "interop": "interop",
    "ops": "ops",
    "operators": "operators",
    "streams": "streams",
    "feed": "feed",
    "autobatch": "autobatch",
    "autobatch-torch": "torch_programs",
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
    found.add_argument("parts", nargs="*", metavar="PART", help="parts to run (default: all)")
    found.add_argument(
        "--against", action="append", default=[], type=_against, metavar="NAME=PYTHON", help="compare with"
    )
    found.add_argument("--isa", default="", metavar="ISA", help=f"largest instruction set: {', '.join(ISAS)}")
    found.add_argument("--threads", choices=THREADS, help="threads of every side (default: 1)")
    found.add_argument("--list", action="store_true", help="print the names of the parts")
    found.add_argument("--quick", action="store_true", help="short rounds, to check that everything runs")
    found.add_argument("--rounds", type=int, default=7, help="measurements of each side (default: 7)")
    found.add_argument("--write", action="store_true", help=f"write the figures to {RESULTS.name} and pages")
    found.add_argument("--mine", metavar="MODULE:NAME", help="with feed: measure your own loader instead")
    found.add_argument("--output", type=Path, metavar="FILE", help="write the figures to another file")
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print and write; return the exit status."""
    line = parser()
    args = line.parse_args(given)
    if args.list:
        print("\n".join(PARTS))
        return 0
    if args.mine:
        importlib.import_module(".parts.feed", __package__).run_mine(Session(quick=args.quick), args.mine)
        return 0
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        line.error(f"unknown parts {', '.join(sorted(unknown))}; expected {', '.join(PARTS)}")
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
    """Measure parts, write their figures, and return the missed targets; see `write`."""
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
    """Return the parts that support a setting."""
    return [name for name in machines.PARTS if setting.threads == "1" or name != "autobatch"]


def _problem(setting: Setting, parts: Sequence[str], output: Path | None) -> str:
    """Return the reason why measuring or writing is impossible, in one line; "" if there is none.

    Args:
        setting: instructions and threads.
        parts: the parts that must support it.
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
    """Write a part's figures to the report.

    Args:
        output: the report.
        name: name of the part.
        section: its figures.
        session: settings of the measurement.
        aside: True to write only the column of this processor and setting.
    """
    if name in machines.PARTS:
        versions = {
            package: found for package, found in session.versions.items() if found and session.has(package)
        }
        machines.keep(output.with_name("machines"), session.setting, versions, {name: asdict(section)})
    update(output, PARTS, {} if aside else {name: section})


def status(session: Session, missed: Sequence[str]) -> int:
    """Print the missed targets, and return the exit status."""
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
        section.where += " A quick run: these figures are meaningless."
    return section


if __name__ == "__main__":
    sys.exit(main())
