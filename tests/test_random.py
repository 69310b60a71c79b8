"""mx.random: one seed for every context and the host."""

import random

import numpy as np
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


def test_seed_all_repeats_every_source():
    def draw():
        own = mx.nd.random.uniform(shape=(1,)).asscalar()
        return random.random(), np.random.rand(), torch.rand(1).item(), own

    mx.random.seed_all(5)
    first, second = draw(), draw()
    mx.random.seed_all(5)
    assert draw() == first != second
