"""Modules on a GPU: one named twice, memory of buckets, memory given back, and no growth."""

import gc
import weakref

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.nets import lenet, mlp
from helpers.recording import FakeDriver
from helpers.small_fits import batch, bucket_batch, ready, same, step

BATCH = 32


def batch_of(shape=(6,), seed=0):
    return batch(BATCH, seed, shape)


def module(symbol, shape=(6,), **options):
    mx.random.seed(3)
    shapes = [("data", (BATCH, *shape))], [("softmax_label", (BATCH,))]
    mod = ready(mx.mod.Module(symbol, **options), shapes=shapes)
    mod.init_optimizer(kvstore="device", optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    return mod


def train(mod, batch, steps=1):
    for _ in range(steps):
        step(mod, batch)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_module_goes_at_once(recorded, monkeypatch):
    """Nothing holds itself in a circle: memory is free without a run of the garbage collector."""
    mod = module(mlp(), cuda_graphs=recorded)
    if recorded:
        FakeDriver(monkeypatch)
    train(mod, batch_of(), 7)
    mod.evaluate(batch_of())
    executor = mod.group.execs[0]
    gone = [weakref.ref(each) for each in (mod, executor, executor.arg_dict["fc1_weight"].tensor)]
    gc.collect()
    gc.disable()
    try:
        del mod, executor
        assert [each() for each in gone] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.gpu
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(("net", "shape"), [(mlp(), (6,)), (lenet(), (1, 10, 10))])
def test_a_gpu_named_twice_gives_the_same_weights(net, shape, recorded):
    found = []
    for contexts in ([mx.gpu(0)], [mx.gpu(0), mx.gpu(0)], [mx.cpu(0)]):
        mod, metric = module(net, shape, context=contexts, cuda_graphs=recorded), mx.metric.Accuracy()
        for seed in range(12):
            one = batch_of(shape, seed)
            train(mod, one)
            mod.update_metric(metric, one.label)
        found.append((mod, metric.get()[1]))
    for mod, accuracy in found[1:]:
        assert accuracy == pytest.approx(found[0][1], abs=1e-9)
        same(mod, found[0][0], 5e-5)


def language(length):
    """Embedding, an LSTM of some steps, scores of a large vocabulary."""
    data = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=4000, output_dim=64, name="table")
    outputs, _ = mx.rnn.LSTMCell(64, prefix="l_").unroll(length, data, layout="NTC", merge_outputs=True)
    scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, 64)), num_hidden=4000, name="fc")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(scores, label, name="softmax"), ("data",), ("softmax_label",)


@pytest.mark.gpu
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("order", [(30, 20, 10), (10, 20, 30), (20, 30, 10)])
def test_buckets_need_hardly_more_than_the_largest(order, recorded):
    def peak(lengths):
        gc.collect()
        torch.cuda.empty_cache()
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        mod = mx.mod.BucketingModule(language, lengths[0], context=mx.gpu(), cuda_graphs=recorded)
        mod.bind([("data", (BATCH, lengths[0]))], [("softmax_label", (BATCH, lengths[0]))])
        mod.init_params()
        mod.init_optimizer(optimizer="adam")
        for length in lengths * 2:
            train(mod, bucket_batch(length, *np.ones((2, BATCH, length))), 6)
        return torch.cuda.max_memory_allocated() - start

    largest = peak((max(order),))
    assert peak(order) <= 1.05 * largest


@pytest.mark.gpu
@pytest.mark.timeout(120)
@pytest.mark.parametrize("recorded", [False, True])
def test_ten_thousand_predictions_take_no_memory(recorded):
    mod, one = module(mlp(), context=mx.gpu(), cuda_graphs=recorded), batch_of()
    for k in range(10_000):
        mod.forward(one, is_train=False)
        if k == 100:
            before = torch.cuda.memory_allocated()
    assert torch.cuda.memory_allocated() == before
