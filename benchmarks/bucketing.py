"""Compare a `BucketingModule` with plain PyTorch on an LSTM language model, in time and memory.

Run: python benchmarks/bucketing.py [--rounds N] [--quick] [--write]

Each side runs in a process of its own with one thread, in turns with the others. Before anything is timed, all sides
train one batch of every bucket from the same weights, and losses and parameters must agree. Exit status 1: they do
not, or a target is missed (with --quick targets are only shown).
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from bucketing_data import BUCKETS, first_weights
from harness import Spread, Worker, ratio

__all__ = ["main"]

Times = dict[str, dict[str, list[float]]]

UPDATES = ("fused", "foreach")
MXNET_RSS = 491
"""What MXNet 1.9.1's `BucketingModule` holds after all buckets of this model, largest first, in MB."""
ORDERS = {
    "descending": BUCKETS[::-1],
    "ascending": BUCKETS,
    "shuffled": tuple(BUCKETS[i] for i in (2, 0, 5, 1, 4, 3)),
}
HEADING = "## Bucketing"
_ABOUT = """\
Written by `python benchmarks/bucketing.py --write`.

- The model: embedding of 200, two LSTM layers of 200, scores of 10,000 words; batches of 32 sentences of random words,
  padded to buckets of 10 to 60; momentum SGD. Ours is a `BucketingModule` around `mx.rnn.FusedRNNCell` and
  `SoftmaxOutput`; plain is `nn.LSTM`, `F.cross_entropy(ignore_index=...)`, `zero_grad(set_to_none=True)` and fused or
  foreach `torch.optim.SGD`, whichever takes less CPU time, on the same padded batches as tensors.
- Processes, turns, medians and quartiles as above; ratios by CPU time, round by round. A step is `forward_backward` and
  `update`. "fit" is an epoch over all buckets in random order, with `BucketSentenceIter`; with perplexity, ours is
  `mx.metric.Perplexity`, and plain adds up its losses.
- Memory is that of the whole process: Python, torch, package, data. "After" is its resident memory once it has gone
  twice through all buckets, two batches in each; the first bucket of an order is the default one. "Peak" is `ru_maxrss`
  of the same process, held against that of a process that only ever trains the largest bucket.
- A switch is `switch_bucket` alone, to a bucket seen before, with nothing computed in between; "after a step" it also
  frees what the bucket it leaves has computed, which any loop frees sooner or later, and when the next bucket is larger
  returns free heap to the system.
"""


class Results:
    """Shows figures as they come and keeps them as lines of two tables.

    Attributes:
        missed: titles of what missed its target.
    """

    def __init__(self) -> None:
        self.missed: list[str] = []
        self._times: list[str] = []
        self._figures: list[str] = []
        self.notes: list[str] = []

    def _verdict(self, title: str, number: float, target: float | None) -> str:
        if target is None:
            return "recorded"
        if number > target:
            self.missed.append(title)
        return f"at most {target:g}: {'met' if number <= target else 'MISSED'}"

    def compare(self, title: str, own: Mapping[str, list[float]], found: Times, target: float) -> None:
        """Add a comparison of ours with the fastest plain loop."""
        fastest = min(found, key=lambda name: Spread.of(found[name]["cpu"]).median)
        best = found[fastest]
        share, wall = (ratio(own[clock], best[clock]) for clock in ("cpu", "wall"))
        cells = [
            title,
            *(Spread.of(side[clock]) for side in (own, best) for clock in ("cpu", "wall")),
            fastest,
        ]
        cells += [share, wall, self._verdict(title, share.median, target)]
        self._times.append("| " + " | ".join(map(str, cells)) + " |")
        print(self._times[-1], flush=True)

    def figure(self, title: str, text: str, number: float = 0.0, target: float | None = None) -> None:
        """Add a single figure."""
        self._figures.append(f"| {title} | {text} | {self._verdict(title, number, target)} |")
        print(self._figures[-1], flush=True)

    def section(self, rounds: int) -> str:
        """Return everything as a section in Markdown."""
        machine = (
            f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
            f"torch {metadata.version('torch')}, {rounds} rounds. Milliseconds per batch:"
        )
        header = ("workload", "ours CPU", "ours wall", "plain CPU", "plain wall", "plain loop")
        header += ("ratio (CPU)", "ratio (wall)", "target")
        parts = [
            HEADING,
            "",
            _ABOUT,
            machine,
            "",
            "| " + " | ".join(header) + " |",
            "|---" * len(header) + "|",
        ]
        parts += [*self._times, "", *(f"- {note}" for note in self.notes), ""]
        parts += ["| what | figure | target |", "|---|---|---|", *self._figures]
        return "\n".join(parts) + "\n"


def check_alike(sides: Mapping[str, Worker]) -> str:
    """Train every side on a batch of each bucket from the same weights, and say how far they are apart.

    Raises:
        SystemExit: too far.
    """
    losses: dict[str, np.ndarray] = {}
    values: dict[str, dict[str, np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, side in sides.items():
            path = str(Path(folder) / "values.npz")
            side.ask("start")
            losses[name] = np.array(side.ask("check", path=path))
            values[name] = dict(np.load(path))
    own, first = values.pop("ours"), first_weights()
    by_loss = max(float(np.abs(losses["ours"] / each - 1).max()) for each in losses.values())
    moved = sum(float(np.square(own[name] - first[name]).sum()) for name in first)
    by_value = 0.0
    for each in values.values():
        apart = sum(float(np.square(own[name] - each[name]).sum()) for name in first)
        by_value = max(by_value, float(np.sqrt(apart / moved)))
    text = f"after a batch of each bucket losses agree to {by_loss:.1g}, parameters to {by_value:.1g}"
    if not (by_loss <= 1e-4 and by_value <= 1e-3):
        raise SystemExit(f"trains differently: {text}")
    return text


def in_turns(sides: Mapping[str, Worker], rounds: int, ask: Callable[[Worker], Any]) -> Times:
    """Return times by side and clock, one per round; each round begins with another side, a first one is dropped."""
    found: Times = {name: {"wall": [], "cpu": []} for name in sides}
    names = list(sides)
    for number in range(rounds + 1):
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            for clock, value in ask(sides[name]).items():
                if number:
                    found[name][clock].append(value)
    return found


def compare_times(batches: int, count: int, rounds: int, results: Results) -> None:
    """Compare steps of every bucket, and epochs over all of them."""
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(Worker("bucketing_ours.py", arguments=[str(batches)]))}
        for update in UPDATES:
            worker = Worker("bucketing_plain.py", arguments=[str(batches), update])
            sides[update] = stack.enter_context(worker)
        results.notes.append(check_alike(sides))
        for bucket in BUCKETS:
            found = in_turns(sides, rounds, lambda side, b=bucket: side.ask("step", bucket=b, count=count))
            results.compare(f"step, bucket {bucket}", found.pop("ours"), found, 1.0)
        for metric, title in ((False, "fit, no metric"), (True, "fit, perplexity")):
            found = in_turns(sides, rounds, lambda side, m=metric: side.ask("fit", metric=m))
            results.compare(title, found.pop("ours"), found, 1.0)


def visit(script: str, order: Sequence[int], extra: Sequence[str] = ()) -> tuple[float, float]:
    """Go through buckets in a new process; return its memory after that and its peak."""
    with Worker(script, arguments=["2", *extra]) as side:
        after: float = side.ask("visit", order=list(order), rounds=2)["after"]
        return after, side.ask("memory")


def compare_memory(repeats: int, results: Results) -> None:
    """Record the memory of both sides in every order of buckets; the worst of several processes counts for "after"."""
    alone = [visit("bucketing_ours.py", BUCKETS[-1:])[1] for _ in range(repeats)]
    usual = Spread.of(alone).median
    results.figure("peak memory, bucket 60 alone", f"{usual:.0f} MB")
    for title, order in ORDERS.items():
        found = [visit("bucketing_ours.py", order) for _ in range(repeats)]
        after, peak = max(a for a, _ in found), Spread.of([p for _, p in found]).median
        other_after, other_peak = visit("bucketing_plain.py", order, ("fused",))
        results.figure(
            f"memory after all buckets, {title}", f"{after:.0f} MB, plain {other_after:.0f}", after, MXNET_RSS
        )
        share = peak / usual
        text = f"{share:.3f} of bucket 60 alone: {peak:.0f} MB, plain {other_peak:.0f}"
        results.figure(f"peak memory, {title}", text, share, 1.05)


def measure_switches(count: int, rounds: int, results: Results) -> None:
    """Measure switching in one process: its time, what it adds after a step, and growth."""
    with Worker("bucketing_ours.py", arguments=["2"]) as side:
        side.ask("start")
        first = side.ask("switch", count=count)
        found = [first, *(side.ask("switch", count=count // 10) for _ in range(rounds))]
        wall = Spread.of([each["wall"] * 1e3 for each in found])
        results.figure("a switch", f"{wall} microseconds wall time", wall.median, 100.0)
        growth = first["after"] / first["before"] - 1
        text = f"{100 * growth:+.1f} %: {first['before']:.0f} MB before, {first['after']:.0f} after"
        results.figure(f"growth in {count} switches", text, growth, 0.01)
        times = [side.ask("leave", count=len(BUCKETS)) for _ in range(min(rounds, 3))]
        spread = Spread.of([each["cpu"] for each in times])
        results.figure("a switch after a step", f"{spread} ms CPU time")


def write(path: Path, section: str) -> None:
    """Put the section into a file of results, in place of an older one."""
    text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmark results\n"
    before, _, rest = text.partition(HEADING + "\n")
    _, mark, after = rest.partition("\n## ")
    path.write_text(before.rstrip("\n") + "\n\n" + section + (mark + after), encoding="utf-8")


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side")
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that it runs")
    parser.add_argument("--write", action="store_true", help="write a section of benchmarks/RESULTS.md")
    args = parser.parse_args(given)
    rounds = min(args.rounds, 2) if args.quick else args.rounds
    results = Results()
    measure_switches(1000 if args.quick else 10_000, rounds, results)
    compare_memory(1 if args.quick else 3, results)
    compare_times(1 if args.quick else 2, 1 if args.quick else 2, rounds, results)
    if args.write:
        write(Path(__file__).with_name("RESULTS.md"), results.section(rounds))
    return 0 if args.quick or not results.missed else 1


if __name__ == "__main__":
    sys.exit(main())
