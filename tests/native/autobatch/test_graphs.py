"""Random graphs: values and gradients of the native engine are those of torch in float64."""

from __future__ import annotations

import random

import pytest
import torch

from dpmodule import native
from helpers.programs import run_program
from helpers.raw_graph import ALONG, RawGraph

core = native.core
pytestmark = pytest.mark.skipif(core is None, reason="no native extension")


class Grower:
    """Adds random operations to a graph."""

    def __init__(self, graph, rng, width):
        self.graph, self.rng, self.width = graph, rng, width
        self.bias, self.square, self.other = (
            graph.param(width),
            graph.param(width, width),
            graph.param(width, width),
        )
        self.wide = graph.param(width, 2 * width)
        self.gates = graph.param(4 * width, width), graph.param(4 * width, width), graph.param(4 * width)
        self.words = graph.table(7, width)

    def begin(self):
        graph = self.graph
        graph.renew()
        self.vectors = [graph.lookup(self.words, self.rng.randrange(7)) for _ in range(4)]
        self.vectors += [graph.input(torch.randn(self.width)) for _ in range(2)] + [graph.at(self.bias)]
        self.numbers, self.states = [], []

    def some(self):
        return self.rng.choice(self.vectors[-12:])

    def grow(self):
        ways = [self.unary, self.scalar, self.binary, self.dense, self.joined, self.both, self.loss]
        ways += [self.softmax, self.reduce, self.lstm, self.sum, self.views, self.gated, self.matrices]
        ways += [self.margin, self.along]
        found = self.rng.choice(ways)()
        if found is not None:
            self.vectors.append(self.graph.one("tanh", found))

    def unary(self):
        return self.graph.one(
            self.rng.choice(["tanh", "logistic", "rectify", "negate", "softsign", "abs"]), self.some()
        )

    def scalar(self):
        return self.graph.one(
            self.rng.choice(["scale", "shift", "rsub", "elu"]), self.some(), self.rng.choice([0.5, 0.25])
        )

    def binary(self):
        return self.graph.two(
            self.rng.choice(["add", "sub", "mul"]), self.some(), self.rng.choice(self.vectors)
        )

    def dense(self):
        g = self.graph
        return g.one("tanh", g.affine(g.at(self.bias), g.at(self.square), self.some()))

    def joined(self):
        g = self.graph
        return g.one(
            "logistic", g.affine(None, g.at(self.wide), g.concat(self.some(), self.rng.choice(self.vectors)))
        )

    def both(self):
        g = self.graph
        return g.affine(
            g.at(self.bias), g.at(self.square), self.some(), g.at(self.other), self.rng.choice(self.vectors)
        )

    def loss(self):
        g = self.graph
        scores = g.affine(g.at(self.bias), g.at(self.square), self.some())
        self.numbers.append(g.loss(scores, self.rng.randrange(self.width)))

    def margin(self):
        g = self.graph
        scores = g.affine(g.at(self.bias), g.at(self.square), self.some())
        self.numbers.append(g.hinge(scores, self.rng.randrange(self.width), self.rng.choice([1.0, 0.5])))

    def along(self):
        g, name = self.graph, self.rng.choice([*ALONG])
        states = g.side_by_side(*[self.rng.choice(self.vectors) for _ in range(self.rng.choice([2, 3, 17]))])
        if self.rng.random() < 0.5:
            return g.along(name, states, 1)
        self.numbers.append(g.total(g.along(name, states, 0)))
        return None

    def softmax(self):
        return self.graph.softmax(self.some(), self.rng.random() < 0.5)

    def reduce(self):
        x, y = self.some(), self.rng.choice(self.vectors)
        found = (
            self.graph.dot(x, y) if self.rng.random() < 0.5 else self.graph.total(x, self.rng.random() < 0.5)
        )
        self.numbers.append(found)

    def lstm(self):
        g = self.graph
        h, c = self.rng.choice(self.states) if self.states and self.rng.random() < 0.8 else (None, None)
        self.states.append(g.lstm(self.some(), h, c, *map(g.at, self.gates)))
        return self.states[-1][0]

    def sum(self):
        return self.graph.sum(self.some(), self.some(), self.rng.choice(self.vectors))

    def views(self):
        half = self.width // 2
        first, second = self.graph.view(self.some(), 0, half), self.graph.view(self.some(), half, self.width)
        return self.graph.concat(first, second)

    def gated(self):
        g, x, y = self.graph, self.some(), self.some()
        gate = g.one("logistic", g.affine(None, g.at(self.square), x))
        return g.two(
            "mul", gate, g.one("tanh", g.two("add", g.affine(g.at(self.bias), g.at(self.other), y), y))
        )

    def matrices(self):
        g = self.graph
        states = g.side_by_side(*[self.rng.choice(self.vectors) for _ in range(self.rng.choice([2, 3, 17]))])
        keys = g.multiply(g.at(self.square), states)
        if self.rng.random() < 0.5:
            keys = g.one(self.rng.choice(["rectify", "softsign", "scale"]), keys, 0.5)
        mixed = g.one("tanh", g.add_column(keys, self.some()))
        scores = g.multiply(g.transpose(self.some()), mixed)
        if self.rng.random() < 0.5:
            scores = g.multiply(scores, g.multiply(g.transpose(mixed), mixed))
        scores = g.one("scale", scores, 1.0 / self.width)  # else a softmax is 0 or 1
        share = g.softmax(g.transpose(scores))
        found = g.multiply(g.multiply(states, share), g.transpose(g.one("tanh", self.some())))
        return g.pick(*self.rng.choice([(found, 1), (found, 2, 1), (g.transpose(found), 0)]))

    def finish(self):
        g = self.graph
        self.numbers.append(g.total(self.vectors[-1]))
        return g.one("scale", g.sum(*self.numbers), 1.0 / len(self.numbers))


def check_one(seed, steps):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    graph = RawGraph(core, batched=seed % 5 != 4)
    grower = Grower(graph, rng, rng.choice([3, 5, 16, 17, 40]))
    for _ in range(2):
        grower.begin()
        for _ in range(steps):
            grower.grow()
            if rng.random() < 0.03:  # values in between: the graph is computed piece by piece
                graph.check_value(rng.choice(grower.vectors))
        loss = grower.finish()
        if rng.random() < 0.5:  # also of nodes that have been fused away
            for node in rng.sample(graph.nodes, 8):
                graph.check_value(node)
        graph.check_value(loss)
        graph.check_gradients(loss)


@pytest.mark.parametrize("block", range(12))
def test_random_graphs(block):
    for seed in range(block * 20, block * 20 + 20):
        check_one(seed, (8, 25, 60)[seed % 3])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_graphs():
    for seed in range(1000, 11000):
        check_one(seed, (8, 25, 60)[seed % 3])


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_instruction_sets(isa):
    """The same graphs with other kernels, where this CPU has them; the choice is made once a process."""
    code = "from native.autobatch import test_graphs as t; [t.check_one(seed, 25) for seed in range(12)]"
    done = run_program(code, DPMODULE_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]
