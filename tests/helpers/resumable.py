"""Trainings of all kinds that `fit` saves and goes on from: what is trained, on what, and how.

`KINDS` has by name a function that returns (module, data, options of `fit`), as a fresh process would make them.
"""

from functools import partial

import numpy as np

import dpmodule as mx
import dpmodule.autobatch as dy

from .small_fits import blobs, chain, classifier

__all__ = [
    "KINDS",
    "chain",
    "of_buckets",
    "of_examples",
    "of_contexts",
    "sentence_data",
    "some_examples",
    "some_points",
]


def of_contexts(count=2):
    """Return a module with dropout, and statistics that differ between its contexts."""
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="a"), name="bn")
    net = mx.sym.FullyConnected(mx.sym.Dropout(net, p=0.2), num_hidden=3, name="b")
    return mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=[mx.cpu(i) for i in range(count)])


def sentence_data():
    """Return sentences of words 1 to 8, in buckets of two lengths."""
    source = np.random.RandomState(2)
    sentences = [source.randint(1, 9, source.randint(2, 9)).tolist() for _ in range(60)]
    return mx.rnn.BucketSentenceIter(sentences, 4, buckets=[4, 8], invalid_label=0)


def of_buckets():
    """Return a module for these sentences."""

    def sym_gen(length):
        net = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, name="e")
        net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, 4)), num_hidden=9, name="f")
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        return mx.sym.SoftmaxOutput(net, label, name="softmax"), ("data",), ("softmax_label",)

    return mx.mod.BucketingModule(sym_gen, 8)


def some_examples():
    """Return examples of different lengths, for a program that takes one at a time."""
    draw = np.random.RandomState(1)
    examples = [draw.randn(draw.randint(1, 5), 3).astype("f") for _ in range(30)]
    return mx.mod.ExampleIter(examples, [int(each.sum() > 0) for each in examples], 4, shuffle=True)


def of_examples():
    """Return a module of a program for one of these examples."""
    m = dy.ParameterCollection()
    weight = m.add_parameters((2, 3), name="W_weight")

    def program(rows, label):
        scores = weight * dy.dropout(dy.average([dy.inputTensor(row) for row in rows]), 0.2)
        return None if label is None else dy.pickneglogsoftmax(scores, label), dy.softmax(scores)

    return mx.mod.AutobatchModule(program, m)


def some_points(part_index, num_parts, **options):
    """Return an iterator over every num_parts-th of 90 points."""
    points = blobs(count=90)
    data, label = (array[0][1].asnumpy()[part_index::num_parts] for array in (points.data, points.label))
    return mx.io.NDArrayIter(data, label, 8, shuffle=True, **options)


def _plain():
    options = {
        "optimizer_params": {
            "momentum": 0.9,
            "lr_scheduler": mx.lr_scheduler.CosineScheduler(36, 0.1, warmup_steps=4),
        },
        "callbacks": [mx.callback.EMA(0.9), mx.callback.EarlyStopping("validation-accuracy", patience=9)],
        "eval_data": blobs(seed=4),
    }
    return mx.mod.Module(classifier(dropout=0.3)), blobs(shuffle=True), options


def _accumulated():
    options = {
        "optimizer": "adam",
        "optimizer_params": {"lr_scheduler": mx.lr_scheduler.OneCycle(0.1, 12)},
        "accumulate": 3,
        "clip_global_norm": 0.3,
    }
    return mx.mod.Module(classifier(dropout=0.3)), blobs(shuffle=True), options


def _contexts():
    return of_contexts(), blobs(shuffle=True), {"optimizer": "adam"}


def _three_contexts():
    return of_contexts(3), blobs(shuffle=True), {"kvstore": None, "eval_data": blobs(seed=4)}


def _buckets():
    options = {
        "eval_metric": mx.metric.Perplexity(0),
        "optimizer": "adam",
        "optimizer_params": {"lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.8, base_lr=0.05)},
    }
    return of_buckets(), sentence_data(), options


def _chain():
    return chain(), blobs(shuffle=True), {"optimizer": "rmsprop"}


def _examples():
    return of_examples(), some_examples(), {"eval_metric": "acc", "optimizer": "adam"}


def _pictures():
    net = mx.sym.Reshape(mx.sym.Variable("data"), shape=(-1, 1, 2, 1))
    net = mx.sym.Convolution(net, num_filter=4, kernel=(2, 1), pad=(1, 0), name="c")
    net = mx.sym.Dropout(mx.sym.BatchNorm(net, name="bn"), p=0.2)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="s"), name="softmax")
    data = mx.io.PrefetchingIter(blobs(shuffle=True), depth=3)
    return mx.mod.Module(net), data, {"optimizer": "nadam", "on_nonfinite": "skip"}


def _workers():
    make = partial(some_points, last_batch_handle="roll_over")
    data = mx.io.ProcessPrefetchingIter(make, 2, start_method="fork")
    return mx.mod.Module(classifier(dropout=0.3)), data, {"optimizer_params": {"momentum": 0.9}}


def _half():
    net = mx.mod.Module(classifier(dropout=0.3), amp="fp16")
    evaluations = {"first": blobs(seed=5), "second": blobs(seed=6)}
    options = {"optimizer": "ftrl", "eval_data": evaluations, "eval_every_n_batches": 5}
    return net, mx.io.ResizeIter(blobs(shuffle=True), 10), options


KINDS = {
    "plain": _plain,
    "buckets": _buckets,
    "contexts": _contexts,
    "three_contexts": _three_contexts,
    "accumulated": _accumulated,
    "chain": _chain,
    "examples": _examples,
    "pictures": _pictures,
    "workers": _workers,
    "half": _half,
}
