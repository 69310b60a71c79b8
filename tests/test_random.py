"""mx.random: one seed for every context and the host."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError


def draws():
    return [
        mx.random.uniform(0, 1, shape=(4,)).asnumpy().tolist(),
        mx.random.normal(0, 1, shape=(4,), ctx=mx.cpu(1)).asnumpy().tolist(),
    ]


def test_one_seed_repeats_every_context():
    mx.random.seed(3)
    first = draws()
    mx.random.seed(3)
    assert draws() == first
    mx.random.seed(4)
    assert draws() != first


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


def test_the_names_are_nd_randoms():
    assert all(getattr(mx.random, name) is getattr(mx.nd.random, name) for name in mx.nd.random.__all__)
    assert set(mx.random.__all__) == {"seed", *mx.nd.random.__all__}


@pytest.mark.parametrize("seed", ["1", 1.5, None, True, np.float32(2)])
def test_seed_must_be_an_integer(seed):
    with pytest.raises(ArgumentError, match="expected an integer"):
        mx.random.seed(seed)
