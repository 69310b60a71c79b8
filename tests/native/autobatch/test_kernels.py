"""Single kernels of the native engine: accuracy, gradients against finite differences, odd numbers, odd sizes."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from dpmodule import native
from helpers.raw_graph import OF_ONE, OF_TWO, OP, UNARY, RawGraph
from helpers.walk import walks

core = native.core
pytestmark = pytest.mark.skipif(core is None, reason="no native extension")


@pytest.fixture
def graph():
    found = RawGraph(core)
    found.renew()
    return found


def apply(graph, name, values, number=0.0):
    node = graph.machine.kernel(
        OP["unary"], UNARY[name], (graph.input(np.asarray(values, np.float32)),), number
    )
    return np.frombuffer(graph.machine.value(node), np.float32)


@pytest.mark.parametrize("name", ["tanh", "logistic", "exp"])
def test_accuracy(graph, name):
    x = np.concatenate([np.linspace(-30, 30, 20001), np.linspace(-1, 1, 20001), [1e-30, -1e-30, 0.0]])
    x = x.astype(np.float32)
    wide = x.astype(np.float64)
    wanted = {"tanh": np.tanh(wide), "logistic": 1 / (1 + np.exp(-wide)), "exp": np.exp(wide)}[name]
    found = apply(graph, name, x).astype(np.float64)
    assert np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), 1e-35)) < 5e-7


def test_limits(graph):
    x = [np.inf, -np.inf, np.nan, 100.0, -200.0, 88.0]
    np.testing.assert_allclose(apply(graph, "tanh", x), [1, -1, np.nan, 1, -1, 1])
    np.testing.assert_allclose(apply(graph, "logistic", x), [1, 0, np.nan, 1, 0, 1], atol=1e-37)
    np.testing.assert_allclose(
        apply(graph, "exp", x), [np.inf, 0, np.nan, np.inf, 0, math.exp(88.0)], rtol=1e-6
    )
    assert np.isnan(apply(graph, "rectify", x)[2])


@walks(product([1, 7, 16, 33], sorted(OF_ONE)))
def test_of_one(width, name):
    graph = RawGraph(core)
    param = graph.param(width)
    if name in ("sqrt", "log", "recip"):
        graph.params[0][0].abs_().add_(0.5)
    graph.renew()
    x = graph.at(param)
    found = graph.one(name, x, 0.7)
    loss = graph.dot(found, graph.one("square", x))
    graph.check_value(found, 1e-6)
    graph.check_gradients(loss)


@walks(product([1, 7, 16, 33], sorted(OF_TWO)))
def test_of_two(width, name):
    graph = RawGraph(core)
    a, b = graph.param(width), graph.param(width)
    graph.params[1][0].abs_().add_(0.5)
    graph.renew()
    found = graph.two(name, graph.at(a), graph.at(b))
    loss = graph.dot(found, graph.one("square", graph.at(a)))
    graph.check_value(found, 1e-6)
    graph.check_gradients(loss)


@walks(
    [
        (a, *b)
        for a, b in product(
            [1, 2, 5, 13, 64, 700], [(1, 1), (3, 5), (16, 16), (50, 200), (130, 65), (400, 9)]
        )
    ]
)
def test_products(rows, inner, outer):
    graph = RawGraph(core)
    w, b = graph.param(outer, inner), graph.param(outer)
    graph.renew()
    xs = [graph.input(torch.randn(inner)) for _ in range(rows)]
    found = [graph.affine(graph.at(b), graph.at(w), x) for x in xs]
    loss = graph.sum(*[graph.total(each, square=True) for each in found])
    graph.forward(loss)
    for node in (found[0], found[-1]):
        graph.check_value(node)
    graph.check_gradients(loss)


def test_shared_operand_is_no_packed_matrix():
    """All rows of one batch may be the same vector: its block has a stride of zero."""
    graph = RawGraph(core)
    w, v = graph.param(6, 6), graph.param(6)
    graph.renew()
    losses = [graph.loss(graph.affine(None, graph.at(w), graph.at(v)), k % 6) for k in range(9)]
    graph.check_gradients(graph.sum(*losses))


def test_repeated_words_are_multiplied_once_and_counted_often():
    graph = RawGraph(core)
    w, words = graph.param(5, 4), graph.table(3, 4)
    graph.renew()
    outputs = [
        graph.one("tanh", graph.affine(None, graph.at(w), graph.lookup(words, k % 3))) for k in range(40)
    ]
    loss = graph.sum(*[graph.loss(each, k % 5) for k, each in enumerate(outputs)])
    graph.check_value(loss)
    graph.check_gradients(loss)
    assert sorted(np.frombuffer(graph.machine.touched(words), np.int64)) == [0, 1, 2]
    assert not graph.machine.touched(words)


def test_finite_differences():
    """Not through autograd: the loss itself, moved along random directions."""
    graph = RawGraph(core)
    w, v, words = graph.param(8, 8), graph.param(32, 8), graph.table(5, 8)
    u, b = graph.param(32, 8), graph.param(32)

    def run():
        graph.renew()
        h = c = None
        for k in range(6):
            h, c = graph.lstm(graph.lookup(words, k % 5), h, c, graph.at(v), graph.at(u), graph.at(b))
        return graph.sum(graph.loss(graph.affine(None, graph.at(w), h), 3), graph.total(c, square=True))

    loss = run()
    graph.backward(loss)
    gradients = [grad.clone() for _, grad in graph.params + graph.tables]
    for (value, _), gradient in zip(graph.params + graph.tables, gradients):
        direction, kept, step = torch.randn_like(value) / value.numel() ** 0.5, value.clone(), 1e-2
        ends = []
        for sign in (1, -1):
            value.copy_(kept + sign * step * direction)
            ends.append(float(graph.value(run())))
        value.copy_(kept)
        wanted = float((gradient * direction).sum())
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(wanted, rel=2e-2, abs=2e-3)
