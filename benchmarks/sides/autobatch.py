"""A package's side of automatic batching, dpmodule.autobatch's or DyNet's.

Run as ``python -m benchmarks.sides.autobatch PACKAGE TASK BATCHES ON [HIDDEN]``: PACKAGE is "dynet", "native" or
"python", the latter two being ours with and without its native extension, or "cuda:0", ours on a GPU; ON is 1 or 0;
HIDDEN is the width of hidden states, if it is not the task's own. This file also runs under Python 3.8, with
DyNet.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

import numpy as np

from ..autobatch_tasks import EXAMPLES, TASKS, batch_size
from ..treebank import cut, examples
from .serve import Clock, serve

__all__ = ["Nodes", "Program", "load", "prepare"]


def load(package: str, autobatch: bool) -> Any:
    """Import a package and switch batching on or off."""
    if package == "dynet":
        importlib.import_module("dynet_config").set(
            autobatch=int(autobatch), mem=4096, random_seed=1
        )  # it cannot grow
        return importlib.import_module("dynet")
    if package == "python":
        os.environ["DPMODULE_NATIVE"] = "0"
    importlib.import_module("torch").set_num_threads(1)
    dy = importlib.import_module("dpmodule.autobatch")
    dy.configure(autobatch=autobatch, device=package if package.startswith("cuda") else "cpu")
    return dy


class Program:
    """The network and its trainer.

    Args:
        dy: the package.
        task: name of the task.
        batches: number of batches.
        sizes: of the task, where they are not its own.
    """

    def __init__(self, dy: Any, task: str, batches: int, **sizes: int) -> None:
        self.dy = dy
        self.examples = examples(EXAMPLES[task], batches)
        self.batches = cut(self.examples, batch_size(task))
        self.task = TASKS[task](dy, **sizes)
        self.start()

    def start(self) -> None:
        """Reset training."""
        self.task.reset()
        self.trainer = self.dy.AdamTrainer(self.task.model)
        self.trainer.set_clip_threshold(0)

    def step(self, batch: list[Any]) -> float:
        """Train on a batch, and return its mean loss of a sentence."""
        self.dy.renew_cg()
        losses = []
        for example in batch:
            losses += self.task.losses(*example)
        loss = self.dy.esum(losses) / len(batch)
        value = float(loss.value())
        loss.backward()
        self.trainer.update()
        return value

    def epoch(self, count: int) -> dict[str, float]:
        """Return the mean time of a batch."""
        clock = Clock()
        for batch in self.batches[:count]:
            self.step(batch)
        return clock.read(count)

    def sized(self, size: int, count: int) -> dict[str, float]:
        """Return the mean time of a batch of some size."""
        clock = Clock()
        batches = cut(self.examples[:count], size)
        for batch in batches:
            self.step(batch)
        return clock.read(len(batches))

    def check(self, path: str) -> list[float]:
        """Train on the first two batches, save the parameters, and return the losses."""
        self.start()
        losses = [self.step(batch) for batch in self.batches[:2]]
        np.savez(path, **self.task.values())
        return losses


class Nodes:
    """Nodes made one by one; nothing is computed.

    Args:
        dy: the package.
    """

    def __init__(self, dy: Any) -> None:
        self.dy, self.model = dy, dy.ParameterCollection()
        self.matrix, self.bias = self.model.add_parameters((50, 50)), self.model.add_parameters((50,))
        self.table = self.model.add_lookup_parameters((1000, 50))
        self.builder = dy.VanillaLSTMBuilder(1, 50, 50, self.model)
        self.units = dy.GRUBuilder(1, 50, 50, self.model)

    def measure(self, kind: str, count: int) -> dict[str, float]:
        """Return the milliseconds of making one.

        Args:
            kind: "tanh", "add", "product", "affine", "lookup", "concatenate", "lstm", "gru", "matrices", "dropout",
                "distance", "number" or "numbers".
            count: number of them in one graph.
        """
        self.dy.renew_cg()
        x = self.dy.inputVector([0.5] * 50)
        make = getattr(self, kind)(x)
        found: list[Any] = [None] * count
        gc.collect()
        gc.freeze()
        clock = Clock()
        for number in range(count):
            found[number] = make(x)
        return clock.read(count)

    def tanh(self, x: Any) -> Any:
        """Return a function that creates a node of one operand."""
        return self.dy.tanh

    def add(self, x: Any) -> Any:
        """Return a function that adds two vectors."""
        return x.__add__

    def product(self, x: Any) -> Any:
        """Return a function that multiplies a matrix."""
        return self.matrix.expr().__mul__

    def affine(self, x: Any) -> Any:
        """Return a function that creates an affine transformation."""
        affine, bias, matrix = self.dy.affine_transform, self.bias.expr(), self.matrix.expr()
        return lambda each: affine([bias, matrix, each])

    def lookup(self, x: Any) -> Any:
        """Return a function that looks up a row."""
        table = self.table
        return lambda each: table[7]

    def concatenate(self, x: Any) -> Any:
        """Return a function that creates one of two vectors."""
        concatenate = self.dy.concatenate
        return lambda each: concatenate([each, each])

    def lstm(self, x: Any) -> Any:
        """Return a function that creates a step of an LSTM."""
        return self.builder.initial_state().add_input(x).add_input

    def gru(self, x: Any) -> Any:
        """Return a function that creates a step of a GRU."""
        return self.units.initial_state().add_input(x).add_input

    def matrices(self, x: Any) -> Any:
        """Return a function that multiplies a matrix that is not a parameter."""
        return self.dy.inputTensor(np.ones((50, 50))).__mul__

    def dropout(self, x: Any) -> Any:
        """Return a function that creates a node of an operand and an attribute."""
        dropout = self.dy.dropout
        return lambda each: dropout(each, 0.5)

    def distance(self, x: Any) -> Any:
        """Return a function that creates a node of two operands."""
        distance = self.dy.squared_distance
        return lambda each: distance(each, each)

    def number(self, x: Any) -> Any:
        """Return a function that creates an input of one number."""
        number = self.dy.scalarInput
        return lambda each: number(0.5)

    def numbers(self, x: Any) -> Any:
        """Return a function that creates an input of a list of numbers."""
        vector, given = self.dy.inputVector, [0.5] * 8
        return lambda each: vector(given)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    package, task, batches, on, *hidden = sys.argv[1:]
    dy = load(package, on == "1")
    if task == "nodes":
        return {"measure": Nodes(dy).measure}
    sizes = {"hidden": int(hidden[0])} if hidden else {}
    program = Program(dy, task, int(batches), **sizes)
    return {"check": program.check, "epoch": program.epoch, "sized": program.sized}


if __name__ == "__main__":
    serve(prepare)
