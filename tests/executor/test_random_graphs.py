"""Random graphs: inferred shapes, values, gradients and the saved form, against a torch interpretation."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule._core import torch_private
from helpers.graphs import random_graph


def as_double(value):
    return mx.nd.array(value, dtype="float64")


def bound(symbol, graph, req):
    given = {k: v for k, v in graph.arrays().items() if k in symbol.list_arguments()}
    args = {k: as_double(v) for k, v in given.items()}
    return symbol.bind(
        mx.cpu(), args, {k: as_double(np.full(v.shape, 3)) for k, v in given.items()}, req
    ), given


def check(seed):
    symbol, heads, graph = random_graph(seed)
    names = symbol.list_arguments()
    shapes = symbol.infer_shape(**{k: s for k, s in graph.shapes.items() if k in names})
    assert shapes[1] == [tuple(h[2]) for h in heads]
    executor, given = bound(symbol, graph, "write")
    other, _ = bound(mx.sym.load_json(symbol.tojson()), graph, "add")
    tensors, rng = (
        {k: torch.tensor(v, requires_grad=True) for k, v in given.items()},
        np.random.RandomState(seed),
    )
    want = [head[1](tensors) for head in heads]
    seeds = [rng.uniform(-1, 1, t.shape) for t in want]
    torch.autograd.backward(want, [torch.tensor(s) for s in seeds])
    for one, base, rounds in ((executor, 0, 1), (other, 3, 2)):
        for is_train in (False, True):
            for out, tensor in zip(one.forward(is_train=is_train), want, strict=True):
                assert out.shape == tuple(tensor.shape)
                np.testing.assert_allclose(out.asnumpy(), tensor.detach().numpy(), rtol=1e-9, atol=1e-9)
        for _ in range(rounds):
            one.backward([as_double(s) for s in seeds])
        for key, tensor in tensors.items():
            exact = 0 if tensor.grad is None else tensor.grad.numpy()
            found = one.grad_dict[key].asnumpy()
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
    weights = [np.random.RandomState(seed).uniform(0.5, 1, h[2]) for h in heads]
    executor.forward(is_train=True)
    executor.backward([as_double(w) for w in weights])

    def total(array, values, place, change):
        moved = values.copy()
        moved[place] += change
        array[:] = as_double(moved)
        return sum((o.asnumpy() * w).sum() for o, w in zip(executor.forward(), weights, strict=True))

    for name, values in given.items():
        array, grad = executor.arg_dict[name], executor.grad_dict[name].asnumpy()
        for place in np.ndindex(*values.shape):
            ends = [total(array, values, place, step) for step in (1e-6, -1e-6)]
            assert grad[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-6)
        array[:] = as_double(values)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_thousand_random_graphs():
    for seed in range(2000, 5000):
        check(seed)
