"""Wrong calls of `mx.model`."""

import numpy as np

from dpmodule.base import ArgumentError, ShapeError
from dpmodule.model import FeedForward
from helpers.nets import blobs, mlp

X, Y = blobs(16)

ROWS = [
    (lambda: FeedForward(3), ArgumentError, "symbol is int"),
    (lambda: FeedForward(mlp()).fit(X, Y), ArgumentError, "num_epoch is None"),
    (lambda: FeedForward(mlp()).predict(X), ArgumentError, "no parameters yet"),
    (lambda: FeedForward(mlp(), num_epoch=1).fit(X), ArgumentError, "y is None"),
    (lambda: FeedForward(mlp(), num_epoch=1).fit(X, np.ones(3)), ShapeError, r"y has shape \(3,\), expected \(16"),
    (lambda: FeedForward(mlp()).save("x"), ArgumentError, "epoch is None"),
    (lambda: FeedForward(mlp(), num_epoch=1).fit(X, Y, eval_data=(1,)), ArgumentError, "eval_data has 1"),
]  # fmt: skip
