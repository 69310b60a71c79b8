"""Our side of Hogwild training, by `AsyncExecutor.run_from_files`, and of reading files into batches.

Run as ``python -m benchmarks.sides.hogwild TASK MODE``, MODE being "native", "process" or "serial".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpmodule as mx
from dpmodule import streams
from dpmodule.hogwild import FileBatches, FileRange

from ..hogwild_tasks import (
    DEEP,
    EPSILON,
    FACTORS,
    FIELDS,
    HIDDEN,
    NUMBERS,
    ROWS,
    TASKS,
    VOCABULARY,
    WIDTH,
    Task,
    feed,
    first_weight,
    shapes,
)
from .serve import Clock, serve

__all__ = ["Trainer", "network", "prepare"]


def network(task: Task) -> mx.sym.Symbol:
    """Return the network of a task."""
    return _bow() if task.net == "bow" else _wide()


def _bow() -> mx.sym.Symbol:
    words = mx.sym.Variable("words", stype="ragged")
    rows = mx.sym.Embedding(words, input_dim=VOCABULARY, output_dim=WIDTH, sparse_grad=True, name="embed")
    x = mx.sym.tanh(mx.sym.sequence_pool(rows, pool_type="sum"))
    for number, size in enumerate(HIDDEN):
        x = mx.sym.tanh(mx.sym.FullyConnected(x, num_hidden=size, name=f"fc{number}"))
    x = mx.sym.FullyConnected(x, num_hidden=2, name=f"fc{len(HIDDEN)}")
    return mx.sym.SoftmaxOutput(x, mx.sym.Variable("label"), name="p")


def _wide() -> mx.sym.Symbol:
    numbers = mx.sym.Variable("numbers", shape=(0, NUMBERS))
    fields = [mx.sym.Variable(f"field{i}", stype="ragged") for i in range(FIELDS)]

    def pooled(table: str, size: int) -> list[mx.sym.Symbol]:
        weight = mx.sym.Variable(table)
        options = {"input_dim": ROWS, "output_dim": size, "sparse_grad": True}
        return [
            mx.sym.sequence_pool(mx.sym.Embedding(each, weight, **options), pool_type="sum")
            for each in fields
        ]

    x = mx.sym.concat(*pooled("embed_weight", FACTORS), numbers, dim=1)
    for number, size in enumerate(DEEP):
        x = mx.sym.relu(mx.sym.FullyConnected(x, num_hidden=size, name=f"fc{number}"))
    x = mx.sym.FullyConnected(x, num_hidden=1, name=f"fc{len(DEEP)}")
    linear = mx.sym.FullyConnected(numbers, num_hidden=1, name="linear0")
    total = mx.sym.add_n(x, linear, *pooled("wide_weight", 1))
    return mx.sym.LogisticRegressionOutput(total, mx.sym.Variable("label"), name="p")


class Trainer:
    """A task's module, and what trains it.

    Args:
        name: name of the task.
        mode: the engine.
    """

    def __init__(self, name: str, mode: str) -> None:
        self.task, self.mode = TASKS[name], mode
        self.feed = mx.DataFeedDesc(feed(self.task))
        *data, label = (slot.name for slot in self.task.slots)
        self.module = mx.mod.Module(network(self.task), data, [label])
        self.executor = mx.AsyncExecutor()
        self.first: dict[str, Any] = {"initializer": mx.init.Uniform(0.01)}

    def train(self, files: Sequence[str], workers: int, mode: str | None = None) -> dict[str, float]:
        """Train on files once and return the time of it."""
        options: dict[str, Any] = {"learning_rate": self.task.learning_rate}
        if self.task.optimizer == "adagrad":
            options["eps"] = EPSILON**2  # added under the root here, after it in Paddle
        clock = Clock()
        self.executor.run_from_files(
            self.module,
            self.feed,
            list(files),
            workers,
            None,
            mode=mode or self.mode,
            optimizer=self.task.optimizer,
            optimizer_params=options,
            **self.first,
        )
        return clock.read()

    def check(self, path: str, files: Sequence[str], workers: int, epochs: int) -> list[float]:
        """Train from the first weights and save the parameters as an npz file."""
        weights = {name: mx.nd.array(first_weight(name, shape)) for name, shape in shapes(self.task).items()}
        self.first = {"arg_params": weights}
        for _ in range(epochs):
            self.train(files, workers)
            self.first = {}
        np.savez(path, **{name: value.asnumpy() for name, value in self.module.get_params()[0].items()})
        return []

    def begin(self, files: Sequence[str]) -> dict[str, float]:
        """Bind the module in the calling thread, and return the time of the first call with workers of the mode."""
        self.train(files[:1], 1, "serial")
        return self.train(files, len(files))


def _batches(name: str, files: Sequence[str]) -> dict[str, float]:
    """Return the time of reading files into batches."""
    parts = iter([FileRange(path) for path in files])
    clock = Clock()
    with FileBatches(mx.DataFeedDesc(feed(TASKS[name])), lambda: next(parts, None)) as batches:
        lines = sum(batch.num_lines for batch in batches)
    return {**clock.read(), "lines": lines}


def _parsed(name: str, files: Sequence[str]) -> dict[str, float]:
    """Return the time of the bare functor on the bytes of the same files."""
    slots = [streams.Slot(slot.name, slot.type, slot.is_dense) for slot in TASKS[name].slots]
    clock, lines = Clock(), 0
    for path in files:
        lines += streams.MultiSlotFunctor(Path(path).read_bytes(), slots)().num_lines
    return {**clock.read(), "lines": lines}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    name, mode = sys.argv[1:]
    trainer = Trainer(name, mode)
    reading = {"batches": _batches, "parsed": _parsed}

    def read(kind: str, files: Sequence[str]) -> dict[str, float]:
        return reading[kind](name, files)

    def explain() -> str:
        return str(trainer.executor.explain(trainer.module, trainer.feed))

    return {
        "train": trainer.train,
        "check": trainer.check,
        "begin": trainer.begin,
        "read": read,
        "explain": explain,
    }


if __name__ == "__main__":
    serve(prepare)
