"""Measure when a network's only convolution should keep the usual layout, and write the table that decides it.

Random convolutions run through an executor, once by torch's kernels for (N, C, H, W) and once converted to
channels_last, with packed weights. For each instruction set, with one and with all threads, boosted regression trees
are fitted to the logarithm of the ratio of the two times. A quarter of the sizes tests them. On an idle machine::

    python tools/choose_layouts.py 2500

It takes a quarter of an hour and writes dpmodule/executor/passes/fused_convolutions/layouts.json. The entries for
other processors, and for instruction sets that the processor lacks, stay.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "dpmodule/executor/passes/fused_convolutions/layouts.json"
TREES, LEVELS, RATE, LEAST = 40, 5, 0.2, 5
"""Number of trees, their levels, the factor of a tree's values, and the samples in a leaf."""
TURN_S, TURNS = 0.002, 7
Sample = tuple[Sequence[int], float, float]
"""Sizes, and the least times of a call in the usual layout and converted, in microseconds."""


def draw(pick: Callable[[Any], Any]) -> dict[str, int]:
    """Return a random convolution of square images, with at most 1.2 billion multiplications."""
    while True:
        rows, channels, filters = (
            pick((1, 1, 2, 4, 8, 16, 32, 64)),
            pick((1, 2, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)),
            pick((2, 8, 16, 24, 32, 64, 96, 128, 256, 512)),
        )
        side, kernel, stride = (
            pick((1, 4, 7, 8, 14, 15, 16, 28, 32, 33, 56, 64, 112, 224)),
            pick((1, 1, 1, 2, 3, 3, 3, 5, 7)),
            pick((1, 1, 2)),
        )
        dilate = pick((1, 1, 1, 1, 2)) if kernel > 1 else 1
        groups = pick((1,) * 14 + (2, 4, 8) + (0,) * 3)
        if not groups:  # depthwise
            groups = filters = channels
        pad = dilate * (kernel // 2)
        result = (side + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1
        if (
            not (channels % groups or filters % groups)
            and result > 0
            and rows * channels * side * side <= 3_200_000
            and rows * filters * result * result <= 6_400_000
            and rows * result * result * channels // groups * filters * kernel * kernel <= 1_200_000_000
        ):
            return {
                "rows": rows, "channels": channels, "side": side, "num_filter": filters, "kernel": kernel,
                "stride": stride, "dilate": dilate, "pad": pad, "num_group": groups,
            }  # fmt: skip


def convolution(drawn: Mapping[str, int], is_fused: bool, name: str) -> Any:
    """Return the symbol of a drawn convolution with a name."""
    import dpmodule as mx

    twos = {name: (drawn[name],) * 2 for name in ("kernel", "stride", "dilate", "pad")}
    counts = {name: drawn[name] for name in ("num_filter", "num_group")}
    symbol = mx.sym.Convolution(mx.sym.var("data"), **twos, **counts, name=name)
    return mx.sym.Activation(symbol, act_type="relu") if is_fused else symbol


def compare(drawn: Mapping[str, int], is_fused: bool) -> Sample | None:
    """Return the features and times of a convolution; None if the layout is not asked for."""
    import dpmodule as mx
    from dpmodule.executor.passes.fused_convolutions import call, layout_choice

    shape = drawn["rows"], drawn["channels"], drawn["side"], drawn["side"]
    asked: dict[bool, Any] = {}

    def runs(keeps: bool) -> Callable[[], None]:
        # programs of equal graphs are one, and choose once: the names differ
        bound = convolution(drawn, is_fused, f"conv_{keeps}").simple_bind(
            mx.cpu(), grad_req="null", data=shape
        )
        for array in bound.arg_arrays:
            array[:] = mx.nd.random.normal(shape=array.shape)

        def chosen(*given: Any) -> bool:
            asked[keeps] = given[1:]
            return keeps

        def run() -> None:
            call.keeps_usual_layout = chosen
            bound.forward(is_train=False)

        return run

    usual: list[float] = []
    converted: list[float] = []
    ways = (runs(True), usual), (runs(False), converted)
    for _ in range(TURNS):
        for run, found in ways:
            run()
            begun = now = time.perf_counter()
            while now - begun < TURN_S:
                before = now
                run()
                now = time.perf_counter()
                found.append((now - before) * 1e6)
    if not asked:
        return None
    if len(asked) < len(ways):
        raise RuntimeError(f"{drawn}: only one way chose its layout, which the other one took over")
    return layout_choice.features(*asked[True]), min(usual), min(converted)


def measure(count: int, seed: int) -> None:
    """Print samples as lines of JSON; in a process with the environment of a setting."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if torch.get_num_threads() == 1:  # a thread that changes its core finds cold caches
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pick = random.Random(seed).choice
    # each one once, since the program of an equal one has chosen
    drawn = dict.fromkeys((*draw(pick).items(), pick((True, False))) for _ in range(count))
    for *sizes, is_fused in drawn:
        found = compare(dict(sizes), is_fused)
        if found is not None:
            print(json.dumps(found), flush=True)


def plain(tree: Any, node: int, scale: float) -> Any:
    """Return a fitted tree, with scaled values, as [feature, limit, tree up to the limit, tree above it] or a value."""
    if tree.children_left[node] < 0:
        return round(float(tree.value[node].item()) * scale, 3)
    branches = (plain(tree, int(child[node]), scale) for child in (tree.children_left, tree.children_right))
    return [int(tree.feature[node]), math.floor(tree.threshold[node]), *branches]


def fit(samples: Sequence[Sample]) -> list[Any]:
    """Return trees whose values add up to the logarithm of the time in the usual layout over the converted one."""
    from sklearn.ensemble import GradientBoostingRegressor

    shares = [math.log(usual / converted) for _, usual, converted in samples]
    model = GradientBoostingRegressor(
        n_estimators=TREES, max_depth=LEVELS, learning_rate=RATE, min_samples_leaf=LEAST, random_state=0
    )
    model.fit([sizes for sizes, _, _ in samples], shares)
    trees = [plain(each[0].tree_, 0, RATE) for each in model.estimators_]
    return [round(sum(shares) / len(shares), 3), *trees]


def main(count: int) -> None:
    """Measure all settings that this processor has, and write the table."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.settings import Setting
    from dpmodule.executor.passes.fused_convolutions.layout_choice import choose, name_of

    seed, table = int(time.time()), json.loads(TABLE.read_text(encoding="utf-8"))
    for isa in ("avx2", "avx512"):
        for threads in ("1", "default"):
            setting = Setting(isa, threads)
            if setting.problem():
                continue
            environment = setting.environment({**os.environ, "PYTHONPATH": str(ROOT)})
            environment.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
            command = [sys.executable, __file__, str(count), str(seed)]
            lines = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            samples = [json.loads(line) for line in lines.splitlines()]
            kept, rest = samples[: len(samples) // 4], samples[len(samples) // 4 :]
            trees = fit(rest)
            figures = {
                "chosen": [sample[1 if choose(trees, sample[0]) else 2] for sample in kept],
                "always usual": [sample[1] for sample in kept],
                "always converted": [sample[2] for sample in kept],
            }
            for name, times in figures.items():
                over = [taken / min(sample[1:]) for taken, sample in zip(times, kept)]
                mean = math.exp(sum(map(math.log, over)) / len(over))
                print(f"{setting}: {name}: {mean:.3f} of the better one's time, at most {max(over):.2f}")
            table[name_of(isa, threads)] = trees
    TABLE.write_text(json.dumps(table, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    measure(*map(int, sys.argv[1:])) if len(sys.argv) > 2 else main(int(sys.argv[1]))
