"""The tasks of automatic batching in plain PyTorch, batched by hand in the fastest ways found.

Run as ``python -m benchmarks.sides.hand_batched TASK BATCHES WAY``: WAY is "groups", `nn.LSTM` on four groups of
sentences of similar length, or "cells", a loop over time in which the batch shrinks as sentences end; for the tree
"levels", a loop over its levels; for equal lengths "whole", one `nn.LSTM`. Sorting and padding belong to the step, as
making the graph does on the other sides.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..autobatch_tasks import EXAMPLES, first_value
from ..treebank import BATCH_SIZE, CHARACTERS, LABELS, TAGS, VOCABULARY, cut, examples, spelling
from .hand_parts import LSTM, Both, Table, inverse
from .serve import Clock, serve

__all__ = ["WAYS", "Program", "prepare"]

WAYS = {
    "tagger": ("groups", "cells"),
    "characters": ("groups", "cells"),
    "tree": ("levels",),
    "equal": ("whole",),
}
"""Variants of batching by task."""
Tensor = torch.Tensor


class Net:
    """Base of the networks: parameters with DyNet's names."""

    def __init__(self) -> None:
        self.dense: dict[str, Tensor] = {}
        self.tables: dict[str, Table] = {}
        self.lstms: list[LSTM] = []

    def parameter(self, name: str, *shape: int) -> Tensor:
        """Add a parameter."""
        self.dense[name] = torch.from_numpy(first_value(name, shape)).requires_grad_()
        return self.dense[name]

    def lstm(self, name: str, inputs: int, hidden: int) -> LSTM:
        """Add an LSTM."""
        self.lstms.append(LSTM(name, inputs, hidden))
        return self.lstms[-1]

    def parameters(self) -> list[Tensor]:
        """Return all but tables."""
        inner = [each for lstm in self.lstms for each in lstm.module.parameters() if each.requires_grad]
        return [*self.dense.values(), *inner]

    def values(self) -> dict[str, np.ndarray]:
        """Return all parameters as DyNet has them."""
        found = {name: each.detach().numpy() for name, each in self.dense.items()}
        found.update({name: each.value.numpy() for name, each in self.tables.items()})
        for each in self.lstms:
            found.update(each.values())
        return found

    def loss(self, batch: list[Any]) -> Tensor:
        """Return the total loss of a batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define loss")


class Tagger(Net):
    """See `autobatch_tasks.Tagger`."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.words = self.tables["words"] = Table("words", VOCABULARY, 128)
        self.ahead, self.back = self.lstm("ahead", 128, 50), self.lstm("back", 128, 50)
        self.both = Both(self.ahead, self.back, way)
        self.hidden, self.output = self.parameter("hidden", 32, 100), self.parameter("output", TAGS, 32)

    def vectors(self, words: np.ndarray) -> Tensor:
        """Return the vectors of words."""
        return self.words.rows(torch.from_numpy(words))

    def loss(self, batch: list[Any]) -> Tensor:
        """Return the total loss of a batch."""
        lengths = np.array([len(words) for words, _ in batch])
        words, tags = (np.concatenate([each[place] for each in batch]) for place in (0, 1))
        flat = self.vectors(words)
        if self.way == "whole":
            rows = flat.view(len(batch), -1, flat.shape[1])
            found = [self.ahead.module(rows)[0], self.back.module(rows.flip(1))[0].flip(1)]
            states = torch.cat(found, 2).flatten(0, 1)
        else:
            states = torch.cat(self.both(flat, lengths), 1)
        scores = F.linear(torch.tanh(F.linear(states, self.hidden)), self.output)
        return F.cross_entropy(scores, torch.from_numpy(tags), reduction="sum")


class CharacterTagger(Tagger):
    """See `autobatch_tasks.CharacterTagger`."""

    def __init__(self, way: str) -> None:
        super().__init__(way)
        self.letters = self.tables["letters"] = Table("letters", CHARACTERS, 20)
        ahead, back = self.lstm("spelled_ahead", 20, 64), self.lstm("spelled_back", 20, 64)
        self.spelled = Both(ahead, back, way)
        self.spelling = [np.array(row) for row in spelling()]
        self.is_rare = np.array([len(row) > 0 for row in self.spelling])

    def vectors(self, words: np.ndarray) -> Tensor:
        """Return the vectors of words."""
        rare = self.is_rare[words]
        frequent = self.words.rows(torch.from_numpy(words[~rare]))
        rows = [self.spelling[word] for word in words[rare]]
        lengths = np.array([len(row) for row in rows])
        ahead, back = self.spelled(self.letters.rows(torch.from_numpy(np.concatenate(rows))), lengths)
        ends = np.cumsum(lengths)
        last = ahead.index_select(0, torch.from_numpy(ends - 1))
        first = back.index_select(0, torch.from_numpy(ends - lengths))
        order = np.concatenate([np.flatnonzero(~rare), np.flatnonzero(rare)])
        return torch.cat([frequent, torch.cat([last, first], 1)]).index_select(0, inverse(order))


class TreeLSTM(Net):
    """See `autobatch_tasks.TreeLSTM`: all leaves in one batch, then level by level, gates of a level in one product."""

    def __init__(self, way: str, width: int = 128) -> None:
        super().__init__()
        self.width = width
        self.words = self.tables["words"] = Table("words", VOCABULARY, width)
        for gate in "iou":
            self.parameter(f"leaf_{gate}", width, width)
            self.parameter(f"node_{gate}", width, 2 * width)
        for gate in "iouf":
            self.parameter(f"bias_{gate}", width)
        self.parameter("forget_left", width, width)
        self.parameter("forget_right", width, width)
        self.output = self.parameter("output", LABELS, width)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return weights and biases of all gates side by side, of leaves and of nodes: i, o, u and i, o, f, g, u."""
        p, zero = self.dense, torch.zeros(self.width, self.width)
        leaf = torch.cat([p["leaf_i"], p["leaf_o"], p["leaf_u"]]).t()
        left = torch.cat([p["forget_left"], zero], 1)
        right = torch.cat([zero, p["forget_right"]], 1)
        node = torch.cat([p["node_i"], p["node_o"], left, right, p["node_u"]]).t()
        i, o, u, f = (p[f"bias_{gate}"] for gate in "iouf")
        return leaf, torch.cat([i, o, u]), node, torch.cat([i, o, f, f, u])

    def loss(self, batch: list[Any]) -> Tensor:
        """Return the total loss of a batch."""
        leaves, levels = self._levels(batch)
        leaf, leaf_bias, node, node_bias = self._weights()
        width = self.width
        gates = torch.addmm(leaf_bias, self.words.rows(torch.from_numpy(leaves)), leaf)
        i, o = torch.sigmoid(gates[:, : 2 * width]).chunk(2, 1)
        c = i * torch.tanh(gates[:, 2 * width :])
        outputs = [o * torch.tanh(c)]
        waiting = torch.cat([outputs[0], c], 1)
        for count, order in levels:
            rows = waiting.index_select(0, order)
            left, right, rest = rows.split([count, count, len(rows) - 2 * count])
            h, c = left.split(width, 1)
            k, d = right.split(width, 1)
            gates = torch.addmm(node_bias, torch.cat([h, k], 1), node)
            i, o, f, g = torch.sigmoid(gates[:, : 4 * width]).chunk(4, 1)
            c = i * torch.tanh(gates[:, 4 * width :]) + f * c + g * d
            outputs.append(o * torch.tanh(c))
            waiting = torch.cat([rest, torch.cat([outputs[-1], c], 1)])
        scores = F.linear(torch.cat(outputs), self.output)
        return F.cross_entropy(scores, self._labels, reduction="sum")

    def _levels(self, batch: list[Any]) -> tuple[np.ndarray, list[tuple[int, Tensor]]]:
        """Return the words of leaves, and of each level its size and the order of rows that wait for their parents.

        Left children come first, then right ones, then those with higher parents.
        """
        words: list[int] = []
        labels: list[int] = []
        found: list[list[tuple[int, int, int]]] = [[]]
        for text, left, right, marks in batch:
            heights: list[int] = []
            base = len(labels)
            for number, (first, second) in enumerate(zip(left, right)):
                height = 0 if first < 0 else 1 + max(heights[first], heights[second])
                heights.append(height)
                if height == len(found):
                    found.append([])
                found[height].append((base + number, base + first, base + second))
                if first < 0:
                    words.append(text[-1 - first])
            labels += marks
        made = [np.array(level) for level in found]
        order = np.concatenate([level[:, 0] for level in made])
        self._labels = torch.tensor(labels)[torch.from_numpy(order)]
        return np.array(words), list(_orders(made, len(labels)))


def _orders(levels: list[np.ndarray], count: int) -> Iterator[tuple[int, Tensor]]:
    waiting, place = levels[0][:, 0], np.empty(count, np.int64)
    for level in levels[1:]:
        place[waiting] = np.arange(len(waiting))
        used = place[level[:, 1:].T.ravel()]
        rest = np.delete(np.arange(len(waiting)), used)
        yield len(level), torch.from_numpy(np.concatenate([used, rest]))
        waiting = np.concatenate([waiting[rest], level[:, 0]])


NETS: dict[str, Any] = {
    "tagger": Tagger,
    "characters": CharacterTagger,
    "tree": TreeLSTM,
    "equal": Tagger,
}


class Program:
    """A network with its optimizer; see `sides.autobatch.Program`."""

    def __init__(self, task: str, batches: int, way: str) -> None:
        self.examples = examples(EXAMPLES[task], batches)
        self.batches = cut(self.examples, BATCH_SIZE)
        self._make = lambda: NETS[task](way)
        self.start()

    def start(self) -> None:
        """Reset training."""
        self.net = self._make()
        self.optimizer = torch.optim.Adam(self.net.parameters(), fused=True)
        self._steps = 0

    def step(self, batch: list[Any]) -> float:
        """Train on a batch, and return its mean loss of a sentence."""
        loss = self.net.loss(batch) / len(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self._steps += 1
        # DyNet adds its epsilon to the root of the square before that is corrected for the beginning
        self.optimizer.param_groups[0]["eps"] = 1e-8 / (1 - 0.999**self._steps) ** 0.5
        self.optimizer.step()
        for table in self.net.tables.values():
            table.update()
        return float(loss.detach())

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
        np.savez(path, **self.net.values())
        return losses


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    task, batches, way = sys.argv[1:]
    torch.set_num_threads(1)
    program = Program(task, int(batches), way)
    return {"check": program.check, "epoch": program.epoch, "sized": program.sized}


if __name__ == "__main__":
    serve(prepare)
