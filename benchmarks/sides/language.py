"""A package's side of the language model, dpmodule's or MXNet's: a `BucketingModule` as a user writes it.

Run as ``python -m benchmarks.sides.language PACKAGE CELL BATCHES``: CELL is "unrolled", a stack of `LSTMCell` as in
MXNet's example, or "fused", one `FusedRNNCell` (MXNet 1.9.1 has it too); BATCHES are those in each bucket. This file
also runs under Python 3.8, with MXNet 1.9.1.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np

from ..corpus import (
    BATCH_SIZE,
    BUCKETS,
    LAYERS,
    LEARNING_RATE,
    MOMENTUM,
    PADDING,
    VOCABULARY,
    WIDTH,
    first_weights,
    padded,
    sentences,
)
from .module import load
from .serve import Clock, rss_mb, serve

__all__ = ["Model", "prepare"]


def graph(mx: Any, fused: bool, length: int) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return the graph of a bucket."""
    if fused:
        cell = mx.rnn.FusedRNNCell(WIDTH, num_layers=LAYERS, mode="lstm", prefix="lstm_")
    else:
        cell = mx.rnn.SequentialRNNCell()
        for layer in range(LAYERS):
            cell.add(mx.rnn.LSTMCell(WIDTH, prefix=f"lstm_l{layer}_"))
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    net = mx.sym.Embedding(data, input_dim=VOCABULARY, output_dim=WIDTH, name="embed")
    net, _ = cell.unroll(length, inputs=net, merge_outputs=True, layout="NTC")
    net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, WIDTH)), num_hidden=VOCABULARY, name="scores")
    net = mx.sym.SoftmaxOutput(
        net,
        mx.sym.Reshape(label, shape=(-1,)),
        use_ignore=True,
        ignore_label=PADDING,
        normalization="valid",
        name="softmax",
    )
    return net, ("data",), ("softmax_label",)


def packed(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return weights as the fused cell wants them: those of the LSTM in one vector, biases last."""
    lstm = [name for name in values if name.startswith("lstm_")]
    order = sorted(lstm, key=lambda name: name.endswith("_bias"))
    rest = {name: value for name, value in values.items() if name not in lstm}
    return {**rest, "lstm_parameters": np.concatenate([values[name].ravel() for name in order])}


def unpacked(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the LSTM's weights by name; the reverse of `packed`."""
    found, start = dict(values), 0
    vector = found.pop("lstm_parameters")
    shapes = {name: value.shape for name, value in first_weights().items() if name.startswith("lstm_")}
    for name in sorted(shapes, key=lambda name: name.endswith("_bias")):
        size = int(np.prod(shapes[name]))
        found[name] = vector[start : start + size].reshape(shapes[name])
        start += size
    return found


class Model:
    """The module and its data.

    Args:
        mx: the package.
        cell: "unrolled" or "fused".
        batches: batches in each bucket.
    """

    def __init__(self, mx: Any, cell: str, batches: int) -> None:
        self.mx, self.fused = mx, cell == "fused"
        rows = [sentence for part in sentences(batches).values() for sentence in part]
        self.data = mx.rnn.BucketSentenceIter(rows, BATCH_SIZE, buckets=list(BUCKETS), invalid_label=PADDING)
        self.batches = {
            bucket: [
                mx.io.DataBatch(
                    [mx.nd.array(x)],
                    [mx.nd.array(y)],
                    bucket_key=bucket,
                    provide_data=[mx.io.DataDesc("data", x.shape)],
                    provide_label=[mx.io.DataDesc("softmax_label", y.shape)],
                )
                for x, y in pairs
            ]
            for bucket, pairs in padded(batches).items()
        }
        self.quiet = logging.getLogger("benchmark")
        self.quiet.setLevel(logging.ERROR)

    def start(self, default: int = BUCKETS[-1]) -> None:
        """Bind, and set parameters and optimizer.

        Args:
            default: bucket to bind first.
        """
        self.module = self.mx.mod.BucketingModule(
            lambda length: graph(self.mx, self.fused, length),
            default,
            logger=self.quiet,
            context=self.mx.cpu(),
        )
        first = self.batches[default][0]
        self.module.bind(first.provide_data, first.provide_label)
        values = packed(first_weights()) if self.fused else first_weights()
        self.module.init_params(arg_params={name: self.mx.nd.array(value) for name, value in values.items()})
        options = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM, "rescale_grad": 1.0}
        self.module.init_optimizer(optimizer="sgd", optimizer_params=options)

    def train(self, batch: Any) -> None:
        """Make one step."""
        self.module.forward_backward(batch)
        self.module.update()

    def step(self, bucket: int, count: int) -> dict[str, float]:
        """Return the time of a step of one bucket; the first one, which may have to switch, is not timed."""
        batches = self.batches[bucket]
        self.train(batches[0])
        self.mx.nd.waitall()
        clock = Clock()
        for number in range(count):
            self.train(batches[number % len(batches)])
        self.mx.nd.waitall()
        return clock.read(count)

    def fit(self) -> dict[str, float]:
        """Train one epoch of all buckets in random order, keep the perplexity, and return the time of a batch."""
        clock = Clock()
        self.module.fit(self.data, eval_metric=self.mx.metric.Perplexity(PADDING), num_epoch=1)
        self.mx.nd.waitall()
        return clock.read(len(self.data.idx))

    def check(self, path: str) -> list[float]:
        """Train on each bucket's first batch, save the parameters, and return each batch's loss before its update."""
        losses = []
        for bucket in BUCKETS:
            batch = self.batches[bucket][0]
            self.train(batch)
            labels = batch.label[0].asnumpy().astype(int).ravel()
            found = self.module.get_outputs()[0].asnumpy()[np.arange(len(labels)), labels]
            losses.append(float(-np.log(found[labels != PADDING]).mean()))
        values = {name: value.asnumpy() for name, value in self.module.get_params()[0].items()}
        np.savez(path, **(unpacked(values) if self.fused else values))
        return losses

    def visit(self, order: list[int], rounds: int) -> dict[str, float]:
        """Train on two batches of each bucket in turn, and return the memory after that, in MB.

        Args:
            order: buckets; the first is bound first.
            rounds: how often to go through them.
        """
        self.start(order[0])
        for _ in range(rounds):
            for bucket in order:
                for batch in self.batches[bucket][:2]:
                    self.train(batch)
        self.mx.nd.waitall()
        return {"after": rss_mb()}

    def switch(self, count: int) -> dict[str, float]:
        """Switch among buckets that exist, all of them trained before.

        Args:
            count: how often.

        Returns:
            Milliseconds of a switch, and the memory before and after all of them, in MB.
        """
        shapes = {bucket: (b[0].provide_data, b[0].provide_label) for bucket, b in self.batches.items()}
        for bucket in BUCKETS:
            self.train(self.batches[bucket][0])
        self.module.switch_bucket(BUCKETS[0], *shapes[BUCKETS[0]])
        before = rss_mb()
        clock = Clock()
        for number in range(count):
            bucket = BUCKETS[number % len(BUCKETS)]
            self.module.switch_bucket(bucket, *shapes[bucket])
        return {**clock.read(count), "before": before, "after": rss_mb()}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    package, cell, batches = sys.argv[1:]
    model = Model(load(package), cell, int(batches))
    return {name: getattr(model, name) for name in ("start", "check", "step", "fit", "visit", "switch")}


if __name__ == "__main__":
    serve(prepare)
