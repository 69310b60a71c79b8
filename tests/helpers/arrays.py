"""Short ways to write arrays and tensors."""

from functools import partial

import numpy as np
import torch

NAN, INF = float("nan"), float("inf")
f2, f4, f8, i1, u1, i4, i8 = (partial(np.array, dtype=x) for x in ["f2", "f4", "f8", "i1", "u1", "i4", "i8"])


def count(*shape, dtype="f8"):
    """Return 0, 1, 2, ... in a shape."""
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def randn(*shape, seed=None):
    """Return normal numbers in float64; without a seed the shape chooses them."""
    return np.random.RandomState(100 * len(shape) + sum(shape) if seed is None else seed).randn(*shape)


def numbers(*shape, seed=0):
    """Return a float32 tensor of numbers between -1 and 1, four dimensions in channels_last."""
    found = torch.from_numpy(np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32))
    return found.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else found
