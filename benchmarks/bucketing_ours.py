"""dpmodule's side of the bucketing comparison: the language model in a `BucketingModule`, as a user writes it.

Run by bucketing.py as ``bucketing_ours.py BATCHES``, batches in each bucket.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import torch
from bucketing_data import (
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
    rss_mb,
    sentences,
)
from side import Clock, serve

import dpmodule as mx

__all__ = ["Model", "main", "sym_gen"]


def sym_gen(length: int) -> tuple[mx.sym.Symbol, tuple[str], tuple[str]]:
    """Return the graph of a bucket."""
    cell = mx.rnn.FusedRNNCell(WIDTH, num_layers=LAYERS, mode="lstm", prefix="lstm_")
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    net = mx.sym.Embedding(data, input_dim=VOCABULARY, output_dim=WIDTH, name="embed")
    net, _ = cell.unroll(length, net, merge_outputs=True, layout="NTC")
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


def packed(values: dict[str, np.ndarray]) -> dict[str, mx.nd.NDArray]:
    """Return weights as the graph wants them: those of the LSTM in one vector, biases last."""
    lstm = [name for name in values if name.startswith("lstm_")]
    order = sorted(lstm, key=lambda name: name.endswith("_bias"))
    vector = np.concatenate([values[name].ravel() for name in order])
    rest = {name: mx.nd.array(value) for name, value in values.items() if name not in lstm}
    return {**rest, "lstm_parameters": mx.nd.array(vector)}


def unpacked(vector: np.ndarray) -> dict[str, np.ndarray]:
    """Return the LSTM's weights by name; the reverse of `packed`."""
    names = [name for name in first_weights() if name.startswith("lstm_")]
    found, start, shapes = {}, 0, {name: value.shape for name, value in first_weights().items()}
    for name in sorted(names, key=lambda name: name.endswith("_bias")):
        size = int(np.prod(shapes[name]))
        found[name] = vector[start : start + size].reshape(shapes[name])
        start += size
    return found


class Model:
    """The module and its data.

    Args:
        batches: batches in each bucket.
    """

    def __init__(self, batches: int) -> None:
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
        logger = logging.getLogger("benchmark")
        logger.setLevel(logging.ERROR)
        self.module = mx.mod.BucketingModule(sym_gen, BUCKETS[-1], logger=logger)
        self.idle = rss_mb()

    def start(self, default: int | None = None) -> None:
        """Bind, and set parameters and optimizer.

        Args:
            default: bucket to bind first; None = the largest.
        """
        if default is not None:
            self.module = mx.mod.BucketingModule(sym_gen, default, logger=self.module.logger)
        first = self.batches[default or BUCKETS[-1]][0]
        self.module.bind(first.provide_data, first.provide_label)
        self.module.init_params(arg_params=packed(first_weights()))
        options = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM, "rescale_grad": 1.0}
        self.module.init_optimizer(optimizer="sgd", optimizer_params=options)

    def train(self, batch: Any) -> None:
        """Make one step."""
        self.module.forward_backward(batch)
        self.module.update()

    def step(self, bucket: int, count: int) -> dict[str, float]:
        """Return the time of a step of one bucket; the first one, which may have to switch, is not timed."""
        self.train(self.batches[bucket][0])
        clock = Clock()
        for number in range(count):
            self.train(self.batches[bucket][number % len(self.batches[bucket])])
        return clock.read(count)

    def fit(self, metric: bool) -> dict[str, float]:
        """Train one epoch of all buckets in random order and return the time of a batch."""
        clock = Clock()
        self.module.fit(
            self.data,
            eval_metric=mx.metric.Perplexity(PADDING) if metric else [],
            num_epoch=1,
        )
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
        np.savez(path, **unpacked(values.pop("lstm_parameters")), **values)
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
        return {"idle": self.idle, "after": rss_mb()}

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

    def leave(self, count: int) -> dict[str, float]:
        """Return the time of a switch right after a step, which has outputs to give up."""
        total = {"wall": 0.0, "cpu": 0.0}
        for number in range(count):
            bucket, following = BUCKETS[number % len(BUCKETS)], BUCKETS[(number + 1) % len(BUCKETS)]
            self.train(self.batches[bucket][0])
            batch = self.batches[following][0]
            clock = Clock()
            self.module.switch_bucket(following, batch.provide_data, batch.provide_label)
            total = {name: total[name] + value / count for name, value in clock.read().items()}
        return total


def main() -> None:
    """Answer the parent's requests."""
    torch.set_num_threads(1)
    model = Model(int(sys.argv[1]))
    serve(
        {
            "start": model.start,
            "check": model.check,
            "step": model.step,
            "fit": model.fit,
            "visit": model.visit,
            "switch": model.switch,
            "leave": model.leave,
        }
    )


if __name__ == "__main__":
    main()
