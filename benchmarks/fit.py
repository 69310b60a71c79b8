"""Compare `Module.fit` with the same network and loop in plain PyTorch, and with Lightning's.

Run: python benchmarks/fit.py [--nets mlp lenet resnet20] [--rounds N] [--quick] [--lightning] [--write]

Each side runs in a process of its own with one thread, in turns with the others. Before anything is timed, both sides
train a few batches from the same weights, and losses and parameters must agree. Exit status 1: they do not, or a
target is missed (with --quick targets are only shown).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from harness import Spread, Worker, ratio
from report import Report, Row
from workloads import WORKLOADS, Workload, first_value

__all__ = ["main"]

Times = dict[str, list[float]]


def variants(workload: Workload) -> list[str]:
    """Return the names of the ways to write the plain loop; layouts only matter for images."""
    layouts = ("NCHW", "channels_last") if len(workload.shape) > 1 else ("NCHW",)
    return [
        "/".join(parts)
        for parts in itertools.product(layouts, ("fused", "foreach"), ("slices", "DataLoader"))
    ]


def distance(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    """Return how far two sets of parameters are apart, as a share of how far training has moved the first."""
    apart = sum(float(np.square(a[k] - b[k]).sum()) for k in a)
    moved = sum(float(np.square(a[k] - first_value(k, a[k].shape)).sum()) for k in a)
    return float(np.sqrt(apart / moved))


def check_alike(workload: Workload, sides: Mapping[str, Worker]) -> str:
    """Train every side on a few batches from the same weights, and say how far ours is from every plain loop.

    Raises:
        SystemExit: further than the workload allows.
    """
    losses: dict[str, np.ndarray] = {}
    values: dict[str, dict[str, np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, side in sides.items():
            path = str(Path(folder) / "values.npz")
            losses[name] = np.array(side.ask("check", count=workload.checked, path=path))
            values[name] = dict(np.load(path))
    own_losses, own = losses.pop("ours"), values.pop("ours")
    if any(set(each) != set(own) for each in values.values()):
        raise SystemExit(f"{workload.name}: the sides have different parameters: {sorted(own)}")
    first = next(iter(values.values()))
    by_loss = max(float(np.abs(own_losses / each - 1).max()) for each in losses.values())
    by_value = max(distance(own, each) for each in values.values())
    among = max(distance(first, each) for each in values.values())
    text = (
        f"{workload.title}, after {workload.checked} batches: losses agree to {by_loss:.1g}, parameters to "
        f"{by_value:.1g} (the plain loops among themselves: {among:.1g})"
    )
    if not (by_loss <= 1e-4 and by_value <= workload.tolerance):
        raise SystemExit(f"trains differently: {text}")
    return text


def in_turns(sides: Mapping[str, Worker], rounds: int, metric: bool) -> dict[str, Times]:
    """Return the times of a batch by side and clock, one per round.

    Each round asks every side once, beginning with another one each time; a first round warms up and is dropped.
    """
    found: dict[str, Times] = {name: {"wall": [], "cpu": []} for name in sides}
    names = list(sides)
    for number in range(rounds + 1):
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            for clock, value in sides[name].ask("round", metric=metric).items():
                if number:
                    found[name][clock].append(value)
    return found


def compare(workload: Workload, rounds: int, batches: int, report: Report) -> str:
    """Compare ours with the fastest plain loop, without and with the metric; return that loop's name."""
    common = [workload.name, str(batches)]
    fastest = ""
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(Worker("ours.py", arguments=common))}
        for name in variants(workload):
            sides[name] = stack.enter_context(Worker("plain.py", arguments=[*common, name]))
        report.note(check_alike(workload, sides))
        for metric in (False, True):
            found = in_turns(sides, rounds, metric)
            own = found.pop("ours")
            fastest = min(found, key=lambda name: Spread.of(found[name]["cpu"]).median)
            best = found[fastest]
            report.add(
                Row(
                    f"{workload.title}, {'accuracy in both' if metric else 'no metric'}",
                    *(Spread.of(own[clock]) for clock in ("cpu", "wall")),
                    *(Spread.of(best[clock]) for clock in ("cpu", "wall")),
                    fastest,
                    ratio(own["cpu"], best["cpu"]),
                    workload.target,
                )
            )
            report.rest(
                workload.title, metric, {name: Spread.of(times["cpu"]) for name, times in found.items()}
            )
    return fastest


def compare_memory(variant: str, report: Report) -> None:
    """Compare the peak memory of two processes that each train the MLP one way only, five epochs of 20 batches."""
    common = ["mlp", "20"]
    with (
        Worker("ours.py", arguments=common) as ours,
        Worker("plain.py", arguments=[*common, variant]) as plain,
    ):
        for _ in range(5):
            ours.ask("round", metric=True)
            plain.ask("round", metric=True)
        own, theirs = ours.ask("memory"), plain.ask("memory")
    report.figure("peak memory of the MLP run", f"{own:.0f} MB", f"plain {theirs:.0f} MB", own / theirs, 0.8)


def measure_bind(count: int, report: Report) -> None:
    """Bind ResNet-50 for the first time in a new process, and again and again in one."""
    firsts = []
    for _ in range(3):
        with Worker("ours.py", arguments=["none", "0"]) as fresh:
            firsts.append(fresh.ask("bind", simple=False)["cpu"])
    with Worker("ours.py", arguments=["none", "0"]) as ours:
        times: dict[bool, list[float]] = {False: [], True: []}
        for number, simple in itertools.product(range(count + 1), (False, True)):
            answer = ours.ask("bind", simple=simple)
            if number:
                times[simple].append(answer["cpu"])
    nodes = answer["nodes"]
    for title, values in (
        ("Module.bind", times[False]),
        ("simple_bind", times[True]),
        ("first Module.bind", firsts),
    ):
        spread = Spread.of(values)
        report.figure(f"{title}, {nodes} nodes", f"{spread} ms", "CPU time", spread.median, 20.0)


def compare_lightning(python: str, rounds: int, batches: int, report: Report) -> None:
    """Compare the MLP with Lightning's loop, fed by a DataLoader and by slices, one metric in both."""
    with (
        Worker("ours.py", arguments=["mlp", str(batches)]) as ours,
        Worker("lightning_loop.py", python, [str(batches), "slices"]) as slices,
        Worker("lightning_loop.py", python, [str(batches), "DataLoader"]) as loader,
    ):
        own: list[float] = []
        theirs: Times = {"slices": [], "DataLoader": []}
        for number in range(rounds + 1):
            times = (ours.ask("round", metric=True), slices.ask("round"), loader.ask("round"))
            if number:
                for values, answer in zip((own, *theirs.values()), times, strict=True):
                    values.append(answer["cpu"])
    for name, values in theirs.items():
        title, spread = f"Lightning with {name} / ours, MLP, one metric", ratio(values, own)
        detail = f"{Spread.of(values)} / {Spread.of(own)} ms"
        report.figure(title, str(spread), detail, spread.median, 2.0, at_least=True)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nets", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), help="which networks"
    )
    parser.add_argument("--rounds", type=int, default=11, help="measurements of each side")
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that it runs")
    parser.add_argument("--lightning", action="store_true", help="also measure Lightning's loop")
    parser.add_argument("--lightning-python", help="interpreter that has lightning; implies --lightning")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    args = arguments(given)
    report = Report(args.rounds)
    rounds = min(args.rounds, 3) if args.quick else args.rounds
    fastest = "NCHW/fused/slices"
    for name in args.nets:
        workload = WORKLOADS[name]
        variant = compare(
            workload, rounds, max(2, workload.batches // 10) if args.quick else workload.batches, report
        )
        fastest = variant if name == "mlp" else fastest
    if "mlp" in args.nets:
        compare_memory(fastest, report)
        if args.lightning or args.lightning_python:
            compare_lightning(
                args.lightning_python or sys.executable, rounds, 20 if args.quick else 200, report
            )
    measure_bind(3 if args.quick else 20, report)
    if args.write:
        report.write(Path(__file__).with_name("RESULTS.md"))
    return 0 if args.quick or not report.missed else 1


if __name__ == "__main__":
    sys.exit(main())
