"""mx.random: one seed for every context and the host."""

import random

import numpy as np
import pytest
import torch

import dpmodule as mx


def draws():
    return [
        mx.random.uniform(0, 1, shape=(4,)).asnumpy().tolist(),
        mx.random.normal(0, 1, shape=(4,), ctx=mx.cpu(1)).asnumpy().tolist(),
    ]


def test_seeding_one_context_leaves_the_others():
    mx.random.seed(3)
    first = draws()
    mx.random.seed(3)
    mx.random.seed(99, ctx=mx.cpu(1))
    again = draws()
    assert again[0] == first[0]
    assert again[1] != first[1]


def test_torchs_own_generator_is_left_alone():
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    mx.random.seed(8)
    draws()
    assert torch.equal(torch.rand(3), want)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "parameters", "edges", "probs"),
    [
        ("uniform", (-1, 1), [-1, -0.5, 0.25, 1], [0.25, 0.375, 0.375]),
        ("normal", (1, 2), [-np.inf, -1, 1, 3, np.inf], [0.158655, 0.341345, 0.341345, 0.158655]),
        ("exponential", (2,), [0, 1, 3, np.inf], [0.393469, 0.383400, 0.223130]),
        ("poisson", (1,), [-1, 0.5, 1.5, np.inf], [0.367879, 0.367879, 0.264241]),
        ("gamma", (1, 2), [0, 1, 3, np.inf], [0.393469, 0.383400, 0.223130]),
    ],
)
def test_generators_pass_the_chi_square_test(name, parameters, edges, probs, dtype):
    def draw(count):
        return getattr(mx.nd.random, name)(*parameters, count, dtype).asnumpy()

    mx.random.seed(11)
    buckets = list(zip(edges, edges[1:], strict=False))
    mx.test_utils.verify_generator(draw, buckets, probs, nsamples=100000, nrepeat=5)


def test_seed_all_repeats_every_source():
    def draw():
        own = mx.nd.random.uniform(shape=(1,)).asscalar()
        return random.random(), np.random.rand(), torch.rand(1).item(), own

    mx.random.seed_all(5)
    first, second = draw(), draw()
    mx.random.seed_all(5)
    assert draw() == first != second
