"""Random graphs: inferred shapes, values, gradients and the saved form, against a torch interpretation."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule._core import torch_private
from helpers.graphs import random_graph


def bound(symbol, graph, req, dtype="float64"):
    given = {k: v for k, v in graph.arrays().items() if k in symbol.list_arguments()}
    args = {k: mx.nd.array(v, dtype=dtype) for k, v in given.items()}
    grads = {k: mx.nd.ones(v.shape, dtype=dtype) * 3 for k, v in given.items()}
    return symbol.bind(mx.cpu(), args, grads, req), given


def meant(heads, given):
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in given.items()}
    return tensors, [head[1](tensors) for head in heads]


def check(seed):
    symbol, heads, graph = random_graph(seed)
    names = symbol.list_arguments()
    shapes = symbol.infer_shape(**{k: s for k, s in graph.shapes.items() if k in names})
    assert shapes[1] == [tuple(h[2]) for h in heads]
    executor, given = bound(symbol, graph, "write")
    tensors, want = meant(heads, given)
    for out, tensor in zip(executor.forward(), want, strict=True):
        assert out.shape == tuple(tensor.shape)
        np.testing.assert_allclose(out.asnumpy(), tensor.detach().numpy(), rtol=1e-9, atol=1e-9)
    again = mx.sym.load_json(symbol.tojson())
    other, _ = bound(again, graph, "add")
    rng = np.random.RandomState(seed)
    seeds = [rng.uniform(-1, 1, t.shape) for t in want]
    torch.autograd.backward(want, [torch.tensor(s) for s in seeds])
    for one, base, rounds in ((executor, 0, 1), (other, 3, 2)):
        for out, tensor in zip(one.forward(is_train=True), want, strict=True):
            np.testing.assert_allclose(out.asnumpy(), tensor.detach().numpy(), rtol=1e-9, atol=1e-9)
        for _ in range(rounds):
            one.backward([mx.nd.array(s, dtype="float64") for s in seeds])
        for key, tensor in tensors.items():
            found = one.grad_dict[key].asnumpy()
            exact = 0 if tensor.grad is None else tensor.grad.numpy()
            np.testing.assert_allclose(found, base + rounds * exact, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("start", range(0, 240, 40))
def test_forty_random_graphs(start):
    for seed in range(start, start + 40):
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{random_graph(seed)[0].debug_str()}") from error


def test_public_torch_calls_give_the_same():
    torch_private.select(public=True)
    try:
        for seed in range(10):
            check(seed)
    finally:
        torch_private.select()


@pytest.mark.parametrize("seed", range(6))
def test_gradients_equal_finite_differences(seed):
    symbol, heads, graph = random_graph(1000 + seed)
    executor, given = bound(symbol, graph, "write")
    executor.forward(is_train=True)
    weights = [np.random.RandomState(seed).uniform(0.5, 1, h[2]) for h in heads]
    executor.backward([mx.nd.array(w, dtype="float64") for w in weights])

    def total():
        return sum((o.asnumpy() * w).sum() for o, w in zip(executor.forward(), weights, strict=True))

    for name, values in given.items():
        numeric, step = np.zeros_like(values), 1e-6
        array = executor.arg_dict[name]
        for place in np.ndindex(*values.shape):
            sides = []
            for sign in (1, -1):
                moved = values.copy()
                moved[place] += sign * step
                array[:] = mx.nd.array(moved, dtype="float64")
                sides.append(total())
            numeric[place] = (sides[0] - sides[1]) / (2 * step)
            array[:] = mx.nd.array(values, dtype="float64")
        np.testing.assert_allclose(executor.grad_dict[name].asnumpy(), numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_thousand_random_graphs():
    for seed in range(2000, 5000):
        check(seed)
