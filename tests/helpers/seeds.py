"""The random numbers that every test starts from."""

import contextlib
import random

import numpy as np
import torch

from dpmodule._devices import generators
from dpmodule.context import cpu


def start_random_numbers():
    """Seed the generators of Python, NumPy and torch, and those of four contexts."""
    random.seed(0)
    torch.manual_seed(0)
    np.random.seed(0)
    # the host draws from NumPy's generator, even after a fixture of a file that called `mx.random.seed`
    generators.set_state({"contexts": {}, "host": np.random.get_state(), "seeded": False})
    for device_id in range(4):
        generators.seed(device_id, cpu(device_id))


@contextlib.contextmanager
def fixed_random_numbers():
    """Start from the same random state as every test, and put back what is changed."""
    state = generators.get_state()
    start_random_numbers()
    try:
        yield
    finally:
        generators.set_state(state)
