"""Time the 60 most used operators against bare torch, and against a real MXNet where there is one.

Run: python benchmarks/ops.py [--rounds N] [--only NAME ...] [--mxnet PYTHON] [--write]

Every side runs in a process of its own with one thread, in turns. Figures are CPU microseconds of one call, the median
of the rounds. With `--mxnet` the same script runs under that interpreter, which must have MXNet 1.9.1, and its figures
are kept in `ops_mxnet.json`; without it the kept ones are shown. Exit status 1: a target is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness import Worker
from ops_cases import CASES, SMALL

__all__ = ["main"]

KEPT = Path(__file__).with_name("ops_mxnet.json")
RESULTS = Path(__file__).with_name("RESULTS.md")
HEADING = "# Operators\n"
DISPATCH_US, NODE_US, SLOWER, EXCEPTIONS = 8.0, 2.0, 1.2, 5
CHAIN = 200

REASONS: dict[str, str] = {
    "Convolution": "both run oneDNN's convolution; the ratio goes from 0.9 to 1.3 from run to run",
    "dot": "torch multiplies matrices with MKL, which is slow on this processor; MXNet with oneDNN",
    "Pooling": "torch pools channels-last memory only, so the data are turned first; in a network with convolutions "
    "they lie that way already",
}
"""Operators that may be more than `SLOWER` times MXNet's time, and why."""


def run(rounds: int, only: list[str], mxnet: str | None) -> dict[str, Any]:
    """Return the median figures of every side by request."""
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(Worker("ops_side.py", python, [name]))
            for name, python in (("dpmodule", None), ("torch", None), *([("mxnet", mxnet)] if mxnet else []))
        }
        requests: list[tuple[str, str, dict[str, Any]]] = []
        for number, (name, _, _, grads, _) in enumerate(CASES):
            if not only or name in only:
                requests.append((f"{name} forward", "forward", {"number": number}))
                if grads:
                    requests.append((f"{name} both", "both", {"number": number}))
        if not only:
            requests += [(label, "small", {"number": i}) for i, (label, _) in enumerate(SMALL)]
            requests += [
                ("chain forward", "chain", {"length": CHAIN, "train": False}),
                ("chain both", "chain", {"length": CHAIN, "train": True}),
            ]
        found: dict[str, Any] = {}
        for label, what, options in requests:
            times: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(rounds):
                for name, side in sides.items():
                    times[name].append(side.ask(what, **options))
            found[label] = {name: statistics.median(values) for name, values in times.items()}
            print(label, {k: round(v, 1) for k, v in found[label].items()}, flush=True)
    return found


def report(found: dict[str, Any], kept: dict[str, float]) -> tuple[str, bool]:
    """Return the section for RESULTS.md, and whether all targets are met."""
    lines = [
        HEADING,
        "Written by `python benchmarks/ops.py --write`: CPU microseconds of one call, one thread, medians. MXNet's own",
        "figures are those of MXNet 1.9.1 on the same machine. A ratio above 1 means that ours is slower.",
        "",
        "| operator | forward | torch | MXNet | ratio | forward + backward | torch | MXNet | ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    slow = []
    for name, *_ in CASES:
        cells = [name]
        for part in ("forward", "both"):
            row = found.get(f"{name} {part}")
            if row is None:
                cells += [""] * 4
                continue
            theirs = row.get("mxnet", kept.get(f"{name} {part}"))
            ratio = row["dpmodule"] / theirs if theirs else None
            cells += [f"{row['dpmodule']:.1f}", f"{row['torch']:.1f}"]
            cells += [f"{theirs:.1f}", f"{ratio:.2f}"] if theirs and ratio else ["", ""]
            if ratio and ratio > SLOWER:
                slow.append((f"{name} {part}", ratio))
        if any(cells[1:]):
            lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    met = len({label.split()[0] for label, _ in slow}) <= EXCEPTIONS
    lines.append(
        f"More than {SLOWER} times MXNet's time (at most {EXCEPTIONS} operators: {'met' if met else 'MISSED'}):"
    )
    lines += [
        f"- {label}: {ratio:.2f}. {REASONS.get(label.split()[0], '')}".rstrip() for label, ratio in slow
    ]
    lines += [
        "",
        f"Over the same torch call, on arrays of four numbers (at most {DISPATCH_US:g} µs a call):",
        "",
    ]
    for label, _ in SMALL:
        if label in found:
            extra = found[label]["dpmodule"] - found[label]["torch"]
            met &= extra <= DISPATCH_US
            lines.append(f"- `{label}`: {extra:.2f} µs")
    for label in ("chain forward", "chain both"):
        if label in found:
            extra = (found[label]["dpmodule"] - found[label]["torch"]) / CHAIN
            met &= extra <= NODE_US
            lines.append(
                f"- bound executor over torch, {label.split()[1]}, chain of {CHAIN} nodes: {extra:.2f} µs a node "
                f"(at most {NODE_US:g})"
            )
    return "\n".join(lines) + "\n", met


def write(section: str) -> None:
    """Replace this script's section of RESULTS.md, or add it."""
    text = RESULTS.read_text() if RESULTS.exists() else ""
    before, found, rest = text.partition(HEADING)
    after = rest[rest.index("\n# ") + 1 :] if found and "\n# " in rest else ""
    RESULTS.write_text(before.rstrip("\n") + "\n\n" + section + ("\n" + after if after else ""))


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--mxnet", metavar="PYTHON", help="an interpreter that has MXNet 1.9.1")
    parser.add_argument("--write", action="store_true", help="put the figures into RESULTS.md")
    args = parser.parse_args()
    found = run(args.rounds, args.only, args.mxnet)
    if args.mxnet and not args.only:
        KEPT.write_text(json.dumps({k: round(v["mxnet"], 2) for k, v in found.items()}, indent=1) + "\n")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    section, met = report(found, kept)
    print(section)
    if args.write:
        write(section)
    return 0 if met or args.only else 1


if __name__ == "__main__":
    sys.exit(main())
