"""A bag of words on ragged batches, as a measurement of single passes wants it: one module, batches in memory."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from .serve import Clock

__all__ = ["TITLE", "BagOfWords"]

WORDS, WIDTH, HIDDEN, BATCH_SIZE, LENGTH = 90_000, 128, (128, 96), 128, 230
TITLE = f"bag of words, {WORDS} x {WIDTH}, batch {BATCH_SIZE} of {LENGTH} words"


def _graph(mx: Any) -> Any:
    words = mx.sym.Variable("words", stype="ragged")
    net = mx.sym.Embedding(words, input_dim=WORDS, output_dim=WIDTH, sparse_grad=True, name="table")
    net = mx.sym.sequence_pool(net, pool_type="sum", name="pool")
    for number, units in enumerate(HIDDEN):
        net = mx.sym.tanh(mx.sym.FullyConnected(net, num_hidden=units, name=f"fc{number}"))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=2, name="last"), name="softmax")


def _batch(mx: Any, rng: np.random.RandomState) -> Any:
    """Return documents of different lengths, of which some words are frequent and most are not."""
    lengths = rng.randint(LENGTH // 2, LENGTH * 3 // 2, BATCH_SIZE)
    words = np.exp(rng.uniform(0, np.log(WORDS), lengths.sum())).astype(np.int64) - 1
    ragged = mx.nd.ragged_array(words, np.cumsum([0, *lengths]))
    return mx.io.DataBatch([ragged], [mx.nd.array(rng.randint(0, 2, BATCH_SIZE))])


class BagOfWords:
    """A module that is trained by AdaGrad.

    Args:
        mx: the package.
        batches: number of batches of a measurement.
    """

    def __init__(self, mx: Any, batches: int) -> None:
        quiet = logging.getLogger("benchmark")
        quiet.setLevel(logging.ERROR)
        rng = np.random.RandomState(0)
        self._mx, self._batches = mx, [_batch(mx, rng) for _ in range(batches)]
        self.module = mx.mod.Module(_graph(mx), ["words"], logger=quiet)
        data = [mx.io.DataDesc("words", (BATCH_SIZE,), "int64", stype="ragged")]
        self.module.bind(data, [("softmax_label", (BATCH_SIZE,))])
        self.module.init_params(mx.init.Uniform(0.01))
        self.module.init_optimizer(optimizer="adagrad")

    def fit(self) -> dict[str, float]:
        """Return the time of a step."""
        clock = Clock()
        for batch in self._batches:
            self.module.forward_backward(batch)
            self.module.update()
        self._mx.nd.waitall()
        return clock.read(len(self._batches))

    def predict(self) -> dict[str, float]:
        """Return the time of a prediction."""
        clock = Clock()
        for batch in self._batches:
            self.module.forward(batch, is_train=False)
        self._mx.nd.waitall()
        return clock.read(len(self._batches))
