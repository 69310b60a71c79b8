"""Measure the kernels of convolutions, and write the table that chooses among them.

In prediction, random convolutions of images and of sequences run through an executor, alone and between two poolings:
by the extension's tiles, by oneDNN and, alone, by torch's kernel for the usual layout. In training, the result and the
gradients of random convolutions are each computed by the tiles and by torch. Boosted regression trees are fitted to the
logarithms of the ratios: of oneDNN or torch over the tiles with one thread for each instruction set, and of the usual
layout over the better of these with one and with all threads. A quarter of the predictions is kept for a test. On an
idle machine::

    python tools/choose_kernels.py 2000

It takes half an hour and writes dpmodule/ops/nn/kernel_choices.json. The entries for other processors, and for
instruction sets that the processor lacks, stay.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "dpmodule/ops/nn/kernel_choices.json"
TREES, LEVELS, RATE, LEAST = 24, 4, 0.25, 8
"""Number of trees, their levels, the factor of a tree's values, and the samples in a leaf."""
TURN_S, TURNS = 0.002, 7
ALONE, IN_RUN = ("usual", "tiles", "onednn"), ("tiles", "onednn")
"""Kernels of a convolution alone and of one between other layers."""
PARTS = ("result", "for_data", "for_weight")
TRAINED = {part: (part, "") for part in PARTS} | {f"{part} windows": (part, "windows") for part in PARTS[:2]}
"""Choices in training: a part, and the kernel that is compared with the tiles."""
MOST_TRAINED = 2**28
"""Multiplications above which a convolution is not measured in training."""
FUNCTION_US = 15
"""Time of an autograd function in Python over torch's, forward and backward, in microseconds."""
Features = Sequence[int]
Times = Mapping[str, float]
"""Least times of a call, in microseconds."""
Sample = tuple[Features, Times, Times]
"""Features, and the times of each kernel alone and between other layers."""
Training = tuple[Features, Mapping[str, Times], Times, float]
"""Features, the times of each part by each kernel ("" is torch's) in channels_last, those of torch in the usual layout,
and that of the conversions of data and result and their gradients."""
Pairs = Sequence[tuple[Features, float]]


def draw(pick: Callable[[Any], Any]) -> dict[str, int]:
    """Return a random convolution of square images or of sequences, with at most 1.2 billion multiplications."""
    while True:
        axes, rows, channels, filters = (
            pick((2, 2, 2, 2, 2, 2, 1)),
            pick((1, 1, 2, 4, 8, 16, 32, 64)),
            pick((1, 2, 3, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)),
            pick((2, 8, 10, 16, 24, 32, 40, 48, 64, 96, 100, 128, 200, 256, 512)),
        )
        side, kernel, stride = (
            pick((1, 4, 7, 8, 14, 15, 16, 28, 32, 33, 56, 64, 112, 224)),
            pick((1, 1, 1, 2, 3, 3, 3, 5, 7)),
            pick((1, 1, 2)),
        )
        dilate = pick((1, 1, 1, 1, 2)) if kernel > 1 else 1
        groups = pick((1,) * 14 + (2, 4, 8, 32) + (0,) * 3)
        if not groups:  # depthwise
            groups = filters = channels
        pad = dilate * (kernel // 2) * pick((1, 1, 1, 1, 0))
        result = (side + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1
        if (
            not (channels % groups or filters % groups)
            and result > 0
            and rows * channels * side**axes <= 3_200_000
            and rows * filters * result**axes <= 6_400_000
            and rows * result**axes * channels // groups * filters * kernel**axes <= 1_200_000_000
        ):
            return {
                "axes": axes, "rows": rows, "channels": channels, "side": side, "num_filter": filters, "kernel": kernel,
                "stride": stride, "dilate": dilate, "pad": pad, "num_group": groups,
            }  # fmt: skip


def network(drawn: Mapping[str, int], is_fused: bool, in_run: bool, name: str) -> Any:
    """Return the symbol of a drawn convolution with a name, between two poolings if it is `in_run`."""
    import dpmodule as mx

    axes, symbol = drawn["axes"], mx.sym.var("data")
    if in_run:
        symbol = mx.sym.Pooling(symbol, kernel=(1,) * axes)
    windows = {name: (drawn[name],) * axes for name in ("kernel", "stride", "dilate", "pad")}
    counts = {name: drawn[name] for name in ("num_filter", "num_group")}
    symbol = mx.sym.Convolution(symbol, **windows, **counts, name=name)
    if is_fused:
        symbol = mx.sym.Activation(symbol, act_type="relu")
    return mx.sym.Pooling(symbol, kernel=(1,) * axes) if in_run else symbol


def timed(ways: Mapping[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Return the least time of a call of each function, in microseconds; they take turns."""
    found = dict.fromkeys(ways, math.inf)
    for _ in range(TURNS):
        for name, run in ways.items():
            run()
            begun = now = time.perf_counter()
            while now - begun < TURN_S:
                before = now
                run()
                now = time.perf_counter()
                found[name] = min(found[name], (now - before) * 1e6)
    return found


def measure(drawn: Mapping[str, int], is_fused: bool) -> Sample:
    """Return the features and times of a convolution in prediction."""
    import dpmodule as mx
    from dpmodule.executor.passes.fused_convolutions import call
    from dpmodule.ops.nn.kernel_choice import features

    shape = drawn["rows"], drawn["channels"], *(drawn["side"],) * drawn["axes"]
    asked: set[tuple[Any, ...]] = set()

    def runs(kernel: str, in_run: bool) -> Callable[[], None]:
        # programs of equal graphs are one, and choose once: the names differ
        symbol = network(drawn, is_fused, in_run, f"{kernel}_{in_run}")
        bound = symbol.simple_bind(mx.cpu(), grad_req="null", data=shape)
        for array in bound.arg_arrays:
            array[:] = mx.nd.random.normal(shape=array.shape)

        def prefers_tiles(*convolution: Any) -> bool:
            asked.add(convolution[:-1])
            return kernel == "tiles"

        def run() -> None:
            call.keeps_usual_layout = lambda *_: kernel == "usual"
            call.prefers_tiles = prefers_tiles
            bound.forward(is_train=False)

        return run

    ways = [(kernel, False) for kernel in ALONE] + [(kernel, True) for kernel in IN_RUN]
    times = timed({way: runs(*way) for way in ways})
    convolution = max(asked, key=lambda each: each[0].data)  # plans for parts of a batch ask, too
    alone, in_run = (
        {k: t for (k, joined), t in times.items() if joined == is_joined} for is_joined in (False, True)
    )
    return features(*convolution), alone, in_run


def measure_training(drawn: Mapping[str, int]) -> Training | None:
    """Return the features and times of a convolution in training; None for one with groups or much work."""
    import torch

    from dpmodule.ops.nn import trained_convolution as trained
    from dpmodule.ops.nn.relayout import in_channels_last
    from dpmodule.ops.nn.unfold import WindowGrid

    if drawn["num_group"] > 1:
        return None

    def pair(name: str, of_sequences: int = 1) -> tuple[int, int]:  # sequences are images of one row
        return of_sequences if drawn["axes"] == 1 else drawn[name], drawn[name]

    kernel, stride, pad, dilate = pair("kernel"), pair("stride"), pair("pad", 0), pair("dilate")
    filters, shape = drawn["num_filter"], (drawn["rows"], drawn["channels"], *pair("side"))
    sizes = trained.sizes_of(shape, filters, WindowGrid(kernel, stride, pad, dilate))
    # see `training_kernels`
    is_unsafe = drawn["channels"] < trained.FEW_CHANNELS and kernel == (1, 1) != stride
    if is_unsafe or sizes.windows * sizes.weight > MOST_TRAINED:
        return None
    usual = torch.randn(shape), torch.randn(shape[0], filters, *sizes.counts)
    weight = torch.randn(filters, shape[1], *kernel)
    x, grad = map(in_channels_last, usual)

    def by_torch(
        part: str, x: torch.Tensor, grad: torch.Tensor, of_weight: Callable[..., Any]
    ) -> Callable[[], Any]:
        if part == "result":
            return lambda: torch.conv2d(x, of_weight(weight), None, stride, pad, dilate)
        wanted = [part == "for_data", part == "for_weight", False]
        geometry = [filters], stride, pad, dilate, False, (0, 0), 1, wanted
        of_weight = of_weight if part == "for_data" else lambda weight: weight
        return lambda: torch.ops.aten.convolution_backward(grad, x, of_weight(weight), *geometry)

    own: dict[str, Callable[[str], Any]] = {
        "result": lambda kernel: trained._result(x, weight, None, sizes, kernel),
        "for_data": lambda kernel: trained._for_data(grad, weight, None, sizes, kernel),
        "for_weight": lambda kernel: trained._for_weight(x, grad, weight, sizes, kernel, False),
    }
    ways: dict[Any, Callable[[], Any]] = {
        "convert": lambda: [each.contiguous() for each in map(in_channels_last, usual)]
    }
    for part, names, by_3x3 in zip(PARTS, trained.kernels_of(sizes), trained.kernels3x3(sizes, True)):
        ways[part, "usual"] = by_torch(part, *usual, lambda weight: weight)
        ways[part, ""] = by_torch(part, x, grad, in_channels_last)
        for name in [*sorted(names - {""}), *["3x3"] * by_3x3]:
            ways[part, name] = lambda part=part, name=name: own[part](name)
    with torch.no_grad():
        times = timed(ways)
    parts = {
        part: {k: times[part, k] for k in ("", "tiles", "3x3", "windows") if (part, k) in times}
        for part in PARTS
    }
    return trained.features(sizes), parts, {part: times[part, "usual"] for part in PARTS}, times["convert"]


def measure_all(count: int, seed: int) -> None:
    """Print samples as lines of JSON; in a process with the environment of a setting."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if torch.get_num_threads() == 1:  # a thread that changes its core finds cold caches
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pick = random.Random(seed).choice
    # each one once, since the program of an equal one has chosen
    drawn = dict.fromkeys((*draw(pick).items(), pick((True, False))) for _ in range(count))
    for *sizes, is_fused in drawn:
        print(json.dumps((measure(dict(sizes), is_fused), measure_training(dict(sizes)))), flush=True)


def samples_of(setting: Any, count: int, seed: int) -> tuple[list[Sample], list[Training]]:
    """Return the samples of a process with the environment of a setting, in prediction and in training."""
    environment = setting.environment({**os.environ, "PYTHONPATH": str(ROOT)})
    environment.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))
    command = [sys.executable, __file__, str(count), str(seed)]
    lines = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [json.loads(line) for line in lines.splitlines()]
    return [sample for sample, _ in found], [training for _, training in found if training]


def plain(tree: Any, node: int) -> Any:
    """Return a fitted tree as [feature, limit, tree up to the limit, tree above it] or a value."""
    if tree.children_left[node] < 0:
        return round(float(tree.value[node].item()) * RATE, 3)
    branches = (plain(tree, int(child[node])) for child in (tree.children_left, tree.children_right))
    return [int(tree.feature[node]), math.floor(tree.threshold[node]), *branches]


def fit(pairs: Pairs) -> list[Any]:
    """Return trees whose values add up to the logarithm of a ratio, from pairs of features and ratio."""
    from sklearn.ensemble import GradientBoostingRegressor

    shares = [math.log(ratio) for _, ratio in pairs]
    model = GradientBoostingRegressor(
        n_estimators=TREES, max_depth=LEVELS, learning_rate=RATE, min_samples_leaf=LEAST, random_state=0
    )
    model.fit([sizes for sizes, _ in pairs], shares)
    return [round(sum(shares) / len(shares), 3), *(plain(each[0].tree_, 0) for each in model.estimators_)]


def over_tiles(samples: Sequence[Sample]) -> Iterator[tuple[Features, float]]:
    """Yield the features of convolutions alone and between other layers, and the time of oneDNN over the tiles'."""
    for sizes, alone, in_run in samples:
        yield sizes, alone["onednn"] / alone["tiles"]
        yield (*sizes[:-1], True), in_run["onednn"] / in_run["tiles"]


def part_over_tiles(samples: Sequence[Training], part: str, kernel: str) -> Pairs:
    """Return the features of convolutions in training, and the time of a part by a kernel over the tiles'."""
    times = ((sizes, parts[part]) for sizes, parts, *_ in samples)
    return [(sizes, of[kernel] / of["tiles"]) for sizes, of in times if {kernel, "tiles"} <= of.keys()]


def over_converted(samples: Sequence[Training], table: Mapping[str, Any]) -> Iterator[tuple[Features, float]]:
    """Yield the features of convolutions in training, and the time in the usual layout over the converted.

    Args:
        table: trees of each part, and of each part by windows.
    """
    from dpmodule.ops.nn.kernel_choice import predict

    for sizes, parts, usual, conversions in samples:
        for wanted in (PARTS, ("result", "for_weight")):
            converted = conversions + FUNCTION_US
            for part in wanted:
                times = parts[part]
                found = {"tiles": 0.0, "": predict(table[part], sizes), "3x3": -math.inf}
                if "windows" in times:
                    found["windows"] = predict(table[f"{part} windows"], sizes)
                converted += times[min(times, key=found.__getitem__)]
            yield (*sizes[:-1], wanted is PARTS), sum(usual[part] for part in wanted) / converted


def report(title: str, samples: Sequence[Sample], chosen: Sequence[str]) -> None:
    """Print by how much chosen kernels of convolutions alone miss the fastest."""
    over = [alone[kernel] / min(alone.values()) for kernel, (_, alone, _) in zip(chosen, samples)]
    mean = math.exp(sum(map(math.log, over)) / len(over))
    print(f"{title}: {mean:.3f} of the fastest kernel's time, at most {max(over):.2f}", flush=True)


def main(count: int) -> None:
    """Measure all settings that this processor has, and write the table."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.settings import Setting
    from dpmodule.ops.nn.kernel_choice import name_of, pays, predict

    table = dict(map(json.loads, TABLE.read_text(encoding="utf-8").splitlines()))
    seed = int(time.time())
    for isa in ("avx2", "avx512"):
        for threads in ("1", "default"):
            setting = Setting(isa, threads)
            if setting.problem():
                continue
            samples, trained = samples_of(setting, count, seed)
            rest, kept = samples[len(samples) // 4 :], samples[: len(samples) // 4]
            if threads == "1":
                table[name_of(isa, "tiles")] = fit(list(over_tiles(rest)))
                for choice, pair in TRAINED.items():
                    table[name_of(isa, choice)] = fit(part_over_tiles(trained, *pair))
            of_parts = {choice: table[name_of(isa, choice)] for choice in TRAINED}
            table[name_of(isa, f"train {threads}")] = fit(list(over_converted(trained, of_parts)))
            tiles = table[name_of(isa, "tiles")]

            def packed(sizes: Features, tiles: Any = tiles) -> str:
                return "tiles" if predict(tiles, sizes) > 0 else "onednn"

            layout = fit([(sizes, alone["usual"] / alone[packed(sizes)]) for sizes, alone, _ in rest])
            table[name_of(isa, threads)] = layout
            for kernel in ALONE:
                report(f"{setting}: always {kernel}", kept, [kernel] * len(kept))
            chosen = [packed(sizes) if pays(layout, sizes) else "usual" for sizes, *_ in kept]
            report(f"{setting}: chosen", kept, chosen)
    lines = (json.dumps(entry, separators=(",", ":")) for entry in sorted(table.items()))
    TABLE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    measure_all(*map(int, sys.argv[1:])) if len(sys.argv) > 2 else main(int(sys.argv[1]))
