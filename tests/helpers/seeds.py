"""The random numbers that every test starts from."""

import numpy as np

from dpmodule import generators
from dpmodule.context import cpu

__all__ = ["start_random_numbers"]


def start_random_numbers():
    """Seed NumPy's generator and those of four contexts."""
    np.random.seed(0)
    for device_id in range(4):
        generators.seed(device_id, cpu(device_id))
