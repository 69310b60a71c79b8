"""Tasks of Hogwild training for both sides: slots, sizes, first weights, and predictions from parameters.

It only needs NumPy, like workloads.py, so that memory is measured for each side; Paddle also runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .workloads import first_value

__all__ = [
    "BATCH_SIZE",
    "TASKS",
    "Lines",
    "Slot",
    "Task",
    "area",
    "feed",
    "first_weight",
    "predict",
    "shapes",
]

BATCH_SIZE = 128
VOCABULARY, WIDTH, HIDDEN = 90_000, 128, (128, 96)
ROWS, FIELDS, NUMBERS, FACTORS, DEEP = 1_000_000, 26, 13, 16, (128, 64)

EPSILON = 1e-10
"""Epsilon of AdaGrad; so small that the formula does not matter."""

Lines = dict[str, tuple[np.ndarray, np.ndarray]]
"""Values and offsets, (N + 1,), by slot."""


@dataclass(frozen=True)
class Slot:
    """A slot of a line.

    Attributes:
        name: name of its input.
        type: "uint64" or "float".
        is_dense: True if each line has the same number of values.
    """

    name: str
    type: str = "uint64"
    is_dense: bool = False


@dataclass(frozen=True)
class Task:
    """A network, its optimizer and its number of examples.

    Attributes:
        net: "bow", a bag of words, or "wide", wide & deep.
        title: title in reports.
        optimizer: name of the optimizer.
        learning_rate: its step size.
        examples: lines of an epoch, which is one measurement.
        targets: (must, aim) of Paddle's time over ours with the native engine, with one worker and with two.
        generic: the same for worker processes; None if only recorded.
    """

    net: str
    title: str
    optimizer: str
    learning_rate: float
    examples: int
    targets: tuple[float, float]
    generic: tuple[float, float] | None = None

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Slots of a line, in order."""
        if self.net == "bow":
            return Slot("words"), Slot("label", is_dense=True)
        fields = (Slot(f"field{i}") for i in range(FIELDS))
        return Slot("numbers", "float", True), *fields, Slot("label", is_dense=True)


TASKS = {
    "bow-adagrad": Task("bow", "bow net, AdaGrad", "adagrad", 0.002, 20_000, (2.5, 5.0), (1.0, 1.5)),
    "bow-sgd": Task("bow", "bow net, SGD", "sgd", 0.05, 20_000, (1.5, 3.0)),
    "wide": Task("wide", "wide & deep, 26 slots", "adagrad", 0.01, 16_000, (2.0, 4.0)),
}


def feed(task: Task) -> str:
    """Return the description of the lines, as prototxt."""
    slots = "".join(
        f'  slots {{ name: "{slot.name}" type: "{slot.type}" is_dense: {str(slot.is_dense).lower()} is_used: true }}\n'
        for slot in task.slots
    )
    return f'name: "MultiSlotDataFeed"\nbatch_size: {BATCH_SIZE}\nmulti_slot_desc {{\n{slots}}}\n'


def shapes(task: Task) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters; weights of layers are (outputs, inputs)."""
    if task.net == "bow":
        return {"embed_weight": (VOCABULARY, WIDTH), **_layers("fc", (WIDTH, *HIDDEN, 2))}
    inputs = FIELDS * FACTORS + NUMBERS
    tables = {"embed_weight": (ROWS, FACTORS), "wide_weight": (ROWS, 1)}
    return {**tables, **_layers("fc", (inputs, *DEEP, 1)), **_layers("linear", (NUMBERS, 1))}


def _layers(name: str, sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for number, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        found[f"{name}{number}_weight"] = (outputs, inputs)
        found[f"{name}{number}_bias"] = (outputs,)
    return found


def first_weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a parameter's value before training, the same on all sides; tables begin near 0."""
    found = first_value(name, shape)
    if name in ("embed_weight", "wide_weight"):
        found *= np.float32(0.05)
    return found


def predict(task: Task, weights: Mapping[str, np.ndarray], lines: Lines) -> np.ndarray:
    """Return the scores of class 1, positive if it is likelier.

    Shape:
        scores: (N,), float32.
    """
    if task.net == "bow":
        hidden = np.tanh(_pooled(weights["embed_weight"], lines["words"]))
        scores = _through(weights, hidden, len(HIDDEN) + 1, np.tanh)
        return scores[:, 1] - scores[:, 0]
    fields = [lines[f"field{i}"] for i in range(FIELDS)]
    numbers = lines["numbers"][0].reshape(-1, NUMBERS)
    deep = np.concatenate([*(_pooled(weights["embed_weight"], each) for each in fields), numbers], axis=1)
    wide = sum(_pooled(weights["wide_weight"], each) for each in fields)
    linear = numbers @ weights["linear0_weight"].T + weights["linear0_bias"]
    return (_through(weights, deep, len(DEEP) + 1, lambda x: np.maximum(x, 0)) + wide + linear)[:, 0]


def _pooled(table: np.ndarray, slot: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    values, offsets = slot
    return np.add.reduceat(table[values], offsets[:-1], axis=0)


def _through(
    weights: Mapping[str, np.ndarray], x: np.ndarray, layers: int, activation: np.ufunc
) -> np.ndarray:
    for number in range(layers):
        x = x @ weights[f"fc{number}_weight"].T + weights[f"fc{number}_bias"]
        x = x if number == layers - 1 else activation(x)
    return x


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the ROC curve: the probability that a score of class 1 exceeds one of class 0."""
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    ones = int(labels.sum())
    zeros = len(labels) - ones
    return float((ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros))
