"""Trainings of all kinds that `fit` saves and goes on from: what is trained, on what, and how.

`KINDS` has by name a function that returns (module, data, options of `fit`), as a fresh process would make them.
"""

from functools import partial

import numpy as np

import dpmodule as mx
import dpmodule.autobatch as dy

from .small_fits import TWO, blobs, chain, classifier


def of_contexts():
    """Return a module with dropout, and statistics that differ between its contexts."""
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="a"), name="bn")
    net = mx.sym.FullyConnected(mx.sym.Dropout(net, p=0.2), num_hidden=3, name="b")
    return mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=TWO)


def of_bucket(length):
    net = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, name="e")
    net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, 4)), num_hidden=9, name="f")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(net, label, name="softmax"), ("data",), ("softmax_label",)


def some_points(part_index, num_parts, **options):
    """Return an iterator over every num_parts-th of 90 points."""
    points = blobs(count=90)
    data, label = (array[0][1].asnumpy()[part_index::num_parts] for array in (points.data, points.label))
    return mx.io.NDArrayIter(data, label, 8, shuffle=True, **options)


def plain():
    schedule = mx.lr_scheduler.CosineScheduler(36, 0.1, warmup_steps=4)
    callbacks = [mx.callback.EMA(0.9), mx.callback.EarlyStopping("validation-accuracy", patience=9)]
    options = {"optimizer_params": {"momentum": 0.9, "lr_scheduler": schedule}, "callbacks": callbacks}
    return mx.mod.Module(classifier(dropout=0.3)), blobs(shuffle=True), options | {"eval_data": blobs(seed=4)}


def accumulated():
    options = {"optimizer": "adam", "accumulate": 3, "clip_global_norm": 0.3}
    options["optimizer_params"] = {"lr_scheduler": mx.lr_scheduler.OneCycle(0.1, 12)}
    return mx.mod.Module(classifier(dropout=0.3)), blobs(shuffle=True), options


def contexts():
    return of_contexts(), blobs(shuffle=True), {"optimizer": "adam"}


def buckets():
    source = np.random.RandomState(2)
    sentences = [source.randint(1, 9, source.randint(2, 9)).tolist() for _ in range(60)]
    data = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[4, 8], invalid_label=0)
    schedule = mx.lr_scheduler.FactorScheduler(5, 0.8, base_lr=0.05)
    options = {"optimizer": "adam", "optimizer_params": {"lr_scheduler": schedule}}
    return mx.mod.BucketingModule(of_bucket, 8), data, options | {"eval_metric": mx.metric.Perplexity(0)}


def chained():
    return chain(), blobs(shuffle=True), {"optimizer": "rmsprop"}


def examples():
    """Train a program that takes one example at a time, of any length."""
    m, draw = dy.ParameterCollection(), np.random.RandomState(1)
    weight = m.add_parameters((2, 3), name="W_weight")

    def program(rows, label):
        scores = weight * dy.dropout(dy.average([dy.inputTensor(row) for row in rows]), 0.2)
        return None if label is None else dy.pickneglogsoftmax(scores, label), dy.softmax(scores)

    rows = [draw.randn(draw.randint(1, 5), 3).astype("f") for _ in range(30)]
    data = mx.mod.ExampleIter(rows, [int(each.sum() > 0) for each in rows], 4, shuffle=True)
    return mx.mod.AutobatchModule(program, m), data, {"eval_metric": "acc", "optimizer": "adam"}


def workers():
    make = partial(some_points, last_batch_handle="roll_over")
    data = mx.io.ProcessPrefetchingIter(make, 2, start_method="fork")
    return mx.mod.Module(classifier(dropout=0.3)), data, {"optimizer_params": {"momentum": 0.9}}


def half():
    data = mx.io.ResizeIter(mx.io.PrefetchingIter(blobs(shuffle=True), depth=3), 10)
    options = {"optimizer": "ftrl", "eval_every_n_batches": 5, "on_nonfinite": "skip"}
    options["eval_data"] = {"first": blobs(seed=5), "second": blobs(seed=6)}
    return mx.mod.Module(classifier(dropout=0.3), amp="fp16"), data, options


KINDS = {f.__name__: f for f in (plain, accumulated, contexts, buckets, chained, examples, workers, half)}
