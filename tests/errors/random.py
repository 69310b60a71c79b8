"""Wrong calls of `mx.random`."""

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, UnknownNameError

ROWS = [
    *[
        (lambda seed=seed: mx.random.seed(seed), ArgumentError, "expected an integer")
        for seed in ("1", 1.5, None, True, np.float32(2))
    ],
    (lambda: mx.random.seed(5, ctx="tpu"), UnknownNameError, "unknown device type"),
    (lambda: mx.random.seed(5, ctx=3), ArgumentError, "expected a Context, a device type"),
]
