"""Ragged values in float64, and gradients of networks on them against finite differences."""

import itertools

import numpy as np
import pytest

import dpmodule as mx

LENGTHS = [3, 0, 1, 4, 0]


def ragged(lengths=LENGTHS, *trailing, seed=0):
    """Return a float64 ragged array of distinct numbers."""
    total = sum(lengths)
    rng = np.random.RandomState(seed)
    values = rng.permutation(total * int(np.prod(trailing, dtype=int))).reshape(total, *trailing) / 7 - 0.95
    return mx.nd.ragged_array(values, np.cumsum([0, *lengths]))


def f8(*shape, seed=3):
    return mx.nd.array(np.random.RandomState(seed).randn(*shape), dtype="f8")


def bound(net, args, grads=True):
    """Bind a net to arrays, with a place for each gradient."""
    args = {k: v for k, v in args.items() if k in net.list_arguments()}
    return net.bind(mx.cpu(), args, {k: v.copy() for k, v in args.items()} if grads else None)


def numbers_of(array):
    return array.values.asnumpy() if array.stype == "ragged" else array.asnumpy()


def with_numbers(array, numbers):
    ragged = array.stype == "ragged"
    return mx.nd.ragged_array(numbers, array.offsets) if ragged else mx.nd.array(numbers, dtype="f8")


def check_gradients(net, args):
    """Compare every gradient with central differences of the outputs weighted at random; return the outputs."""
    executor = bound(net, args)
    outputs = executor.forward(is_train=True)
    rng = np.random.RandomState(5)
    heads = [with_numbers(out, rng.rand(*numbers_of(out).shape)) for out in outputs]
    executor.backward(heads)

    def total(changed):
        found = bound(net, {**args, **changed}, grads=False).forward()
        return sum(float((numbers_of(o) * numbers_of(h)).sum()) for o, h in zip(found, heads, strict=True))

    for name in net.list_arguments():
        start, got = numbers_of(args[name]), numbers_of(executor.grad_dict[name])
        assert got.shape == start.shape, name
        for place in itertools.islice(np.ndindex(*start.shape), 40):
            step = np.zeros(start.shape)
            step[place] = 1e-5
            up, down = (total({name: with_numbers(args[name], start + s)}) for s in (step, -step))
            assert got[place] == pytest.approx((up - down) / 2e-5, abs=1e-6), (name, place)
    return outputs
