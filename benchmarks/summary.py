"""Summary page: one table per system and one picture, from the targets of all parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .report import Section

__all__ = ["picture", "summary"]

SYSTEMS: dict[str, list[tuple[str, str, str, str]]] = {
    "Training and prediction by `Module`": [
        ("Train a perceptron", "fit", "MLP 784*batch 64: fit, accuracy, against *", "MXNet|PyTorch"),
        ("Train LeNet", "fit", "LeNet*: fit, accuracy, against *", "MXNet|PyTorch"),
        ("Train ResNet-20", "fit", "ResNet-20*: fit, accuracy, against *", "MXNet|PyTorch"),
        ("Train an LSTM in buckets", "bucketing", "fit, perplexity, unrolled, against *", "MXNet|PyTorch"),
        ("Predict with ResNet-50, batch 1", "fit", "ResNet-50*: predict, against *", "PyTorch|ONNX Runtime"),
        ("Open an export of ResNet-50", "interop", "ResNet-50 export, from files*against *", "MXNet"),
        ("Export ResNet-50 to ONNX", "interop", "ONNX export, ResNet-50, against *", "torch.onnx"),
    ],
    "Automatic batching": [
        ("Tag sentences with a BiLSTM", "autobatch", "BiLSTM tagger, against *", "DyNet autobatch|PyTorch"),
        ("Classify trees with a TreeLSTM", "autobatch", "TreeLSTM, against *", "DyNet autobatch|PyTorch"),
        ("Parse by transitions", "autobatch", "transition parser, against *", "DyNet autobatch"),
    ],
    "Training from files by `AsyncExecutor`": [
        ("Bag of words, 2 workers", "hogwild", "bow net, AdaGrad, native, 2 workers, against *", "Paddle"),
        ("Wide & deep, 2 workers", "hogwild", "wide & deep*native, 2 workers, against *", "Paddle"),
    ],
    "Agents in worlds": [
        ("32 dialogues at a time", "agents", "BatchWorld 32, bag of words, against *", "serial"),
        ("Two Hogwild workers", "agents", "Hogwild 2, bag of words, against *", "serial"),
    ],
    "Streams": [
        (
            "Send 8 tensors of 64 KB",
            "streams",
            "dict of 8 tensors, 64 KB*against *",
            "torch.multiprocessing.Queue",
        ),
        ("1,000 jobs from asyncio", "streams", "1,000 empty jobs*against *", "run_in_executor"),
        ("Read and decode pictures", "data", "pictures*against *", "torch DataLoader"),
        ("Read CSV files", "data", "csv*against *", "np.loadtxt"),
    ],
}
"""By system: description of the workload, part, pattern of targets, and other sides."""

_ABOUT = """\
# Benchmark results

dpmodule is this many times as fast as another system: the other's CPU time over ours, with one thread, on the machine
below. `python -m benchmarks` takes these figures on your machine. [The tables](results_tables.md) have every figure
with its spread, how it was measured, and its target.

![Ratios of the tables below](results.svg)
"""


class Ratio(NamedTuple):
    """A bar of the picture."""

    what: str
    other: str
    value: float


def _ratios(sections: Mapping[str, Section], rows: list[tuple[str, str, str, str]]) -> Iterator[Ratio]:
    for what, part, pattern, others in rows:
        targets = sections[part].targets if part in sections else []
        for other in others.split("|"):
            for target in targets:
                against = target.what.rpartition("against ")[2]
                if fnmatchcase(target.what, pattern) and against.startswith(other):
                    yield Ratio(what, other, target.value)
                    break


def summary(sections: Mapping[str, Section]) -> str:
    """Return the page in Markdown."""
    targets = [target for section in sections.values() for target in section.targets]
    lines = [_ABOUT]
    for system, rows in SYSTEMS.items():
        ratios = list(_ratios(sections, rows))
        if ratios:
            lines += [f"**{system}**\n", "| what | times as fast as |", "|---|---|"]
            for what in dict.fromkeys(ratio.what for ratio in ratios):
                found = [f"{each.other} {each.value:.3g}" for each in ratios if each.what == what]
                lines.append(f"| {what} | {', '.join(found)} |")
            lines.append("")
    met = sum(target.meets(target.must) for target in targets)
    lines.append(f"{met} of {len(targets)} targets are met. {_where(sections)}")
    return "\n".join(lines) + "\n"


def _where(sections: Mapping[str, Section]) -> str:
    section = sections.get("fit")
    return (
        f"Machine: {section.where.partition(', torch')[0]}." if section is not None and section.where else ""
    )


_LEFT, _WIDTH, _ROW = 350, 670, 18


def _place(value: float) -> float:
    """Return the position of a ratio on the logarithmic axis from 0.5 to 256."""
    return _LEFT + (_WIDTH - _LEFT - 60) * (math.log2(min(max(value, 0.5), 256)) + 1) / 9


def picture(sections: Mapping[str, Section]) -> str:
    """Return the picture: a bar for each ratio, from 1 (as fast) to the right (faster)."""
    ratios = [each for rows in SYSTEMS.values() for each in _ratios(sections, rows)]
    height = _ROW * len(ratios) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="12" fill="#555" style="background:#fff"><title>Times as fast as other systems</title>',
    ]
    for tick in (1, 2, 4, 16, 64):
        x = _place(tick)
        parts.append(f'<path d="M{x:.0f} 20V{height}" stroke="#888" stroke-opacity=".4"/>')
        parts.append(f'<text x="{x:.0f}" y="14" text-anchor="middle">{tick}×</text>')
    for number, (what, other, value) in enumerate(ratios):
        top, low, high = 26 + number * _ROW, *sorted((_place(1), _place(value)))
        color = "#2a8f5c" if value >= 1 else "#c0563f"
        parts.append(
            f'<text x="{_LEFT + 8}" y="{top + 11}" text-anchor="end">{escape(f"{what}, {other}")}</text>'
        )
        parts.append(
            f'<rect x="{low:.0f}" y="{top}" width="{max(high - low, 1):.0f}" height="12" fill="{color}"/>'
        )
        parts.append(f'<text x="{high + 5:.0f}" y="{top + 11}">{value:.3g}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
