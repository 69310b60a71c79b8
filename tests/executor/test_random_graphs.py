"""Gradients of random graphs by finite differences; other ways to run them are compared in test_equivalence.py."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule._core import torch_private
from helpers.random_graphs import random_graph


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(40, 60), pytest.param(range(60, 1000), marks=pytest.mark.slow)])
def test_gradients_equal_finite_differences(seeds):
    for seed in seeds:
        torch_private.select(public=seed % 4 == 0)
        try:
            check(seed)
        finally:
            torch_private.select()


def check(seed):
    symbol, inputs, weights = random_graph(seed, 6)
    shapes = {name: (2, *shape) for name, shape in inputs.items()} | weights
    rng = np.random.RandomState(seed)
    values = {k: rng.uniform(0.2, 1.2, s) * rng.choice([-1, 1], s) for k, s in shapes.items()}
    executor = symbol.simple_bind(mx.cpu(), type_dict=dict.fromkeys(shapes, "float64"), **shapes)
    heads = [rng.uniform(0.5, 1, out.shape) for out in executor.forward(is_train=True, **values)]
    executor.backward([mx.nd.array(head, dtype="float64") for head in heads])

    def total(name, change):
        outputs = executor.forward(**values | {name: values[name] + change})
        return sum((out.asnumpy() * head).sum() for out, head in zip(outputs, heads, strict=True))

    for name, shape in shapes.items():
        grad, along = executor.grad_dict[name].asnumpy(), rng.uniform(-1, 1, shape)
        slope = (total(name, 1e-6 * along) - total(name, -1e-6 * along)) / 2e-6
        assert (grad * along).sum() == pytest.approx(slope, rel=1e-4, abs=1e-5), f"{name} of graph {seed}"
