"""What `fit` does beyond MXNet's: it ends early, adds up gradients, clips them, and returns a history."""

import logging
import math

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.small_fits import (
    blobs,
    both_contexts,
    bucket_batch,
    chain,
    classifier,
    mean_of_bucket,
    parameters,
    ready,
    same,
    step,
    trained,
)

POINTS = blobs().provide_data, blobs().provide_label


# accumulate


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@both_contexts
def test_accumulated_batches_are_one_large_batch(optimizer, contexts):
    options = {"optimizer": optimizer, "optimizer_params": {"learning_rate": 0.05, "wd": 0.01}}
    small, _ = trained(4, contexts, accumulate=4, **options)
    large, _ = trained(16, contexts, **options)
    same(small, large, 2e-6)


def of_buckets(**optimizer):
    shapes = [("data", (4, 6))], [("softmax_label", (4,))]
    return ready(mx.mod.BucketingModule(mean_of_bucket, 6), shapes=shapes, optimizer=optimizer)


# clipping


@both_contexts
def test_gradients_are_clipped_as_torch_does(contexts):
    module = ready(classifier(), contexts, {"learning_rate": 1.0}, POINTS, mx.init.Normal(1.0))
    before = parameters(module)
    module.forward_backward(next(blobs()))
    leaves = {}
    for name, row in zip(module.param_names, module._exec_group.grad_arrays):
        leaves[name] = torch.zeros(row[0].shape, requires_grad=True)
        leaves[name].grad = torch.from_numpy(sum(g.asnumpy() for g in row)) / 8
    wanted = float(torch.nn.utils.clip_grad_norm_(leaves.values(), 0.25))
    assert module.clip_by_global_norm(0.25) == pytest.approx(wanted, rel=1e-5)
    module.update()
    same(parameters(module), {name: before[name] - leaf.grad.numpy() for name, leaf in leaves.items()}, 1e-6)


# the end


def test_a_callback_that_returns_true_ends_training():
    seen, epochs = [], []
    _, history = trained(batch_end_callback=lambda p: seen.append(p.nbatch) or p.nbatch == 2, num_epoch=5)
    assert (seen, [(row["epoch"], row["batch"]) for row in history]) == ([0, 1, 2], [(0, 3)])
    assert "batch 2 of epoch 0" in history.ended
    _, history = trained(epoch_end_callback=lambda epoch, *_: epochs.append(epoch) or epoch == 1, num_epoch=5)
    assert (epochs, len(history)) == ([0, 1], 2)
    _, history = trained(eval_data=blobs(), eval_end_callback=lambda p: p.epoch == 1, num_epoch=5)
    assert len(history) == 2


def test_a_dry_run_tries_everything_once():
    batches, epochs, evaluated = [], [], []
    calls = {"batch_end_callback": batches.append, "eval_batch_end_callback": evaluated.append}
    calls["epoch_end_callback"] = lambda *p: epochs.append(p)
    _, history = trained(dry_run=True, **calls, num_epoch=9, eval_data=blobs())
    assert (len(batches), epochs, len(evaluated), history.ended) == (1, [], 1, "dry_run")
    assert history.names == ["train-accuracy", "validation-accuracy"]


# what is measured


def test_history_has_what_is_logged_and_is_drawn(caplog):
    caplog.set_level(logging.INFO)
    options = {"eval_metric": ["acc", "ce"], "num_epoch": 3, "eval_every_n_batches": 6}
    _, history = trained(eval_data=blobs(seed=5), **options)
    names = [f"{part}-{name}" for part in ("train", "validation") for name in ("accuracy", "cross-entropy")]
    assert sorted(history.names) == names
    logged = [line.rsplit("=", 1)[1] for line in caplog.messages if "Validation-accuracy" in line]
    assert [f"{value:f}" for value in history["validation-accuracy"]] == logged
    assert history["train-accuracy"][-1] > 0.8
    assert [(row["batch"], row["time_s"] > 0) for row in history] == [(6, True), (12, True)] * 3
    assert "train-accuracy=" in repr(history)
    curves = {line.get_label(): line for line in history.plot("train-accuracy", "validation-accuracy").lines}
    assert curves["validation-accuracy"].get_xdata() == pytest.approx([0.5, 1, 1.5, 2, 2.5, 3])
    assert list(curves["train-accuracy"].get_ydata()) == history["train-accuracy"]
    assert len(history.plot("train-accuracy").lines) == 1


def test_bad_batches_are_skipped(caplog):
    data, label = blobs().data[0][1].asnumpy().copy(), blobs().label[0][1].asnumpy()
    data[17] = math.nan  # in the third batch

    def run(rows=slice(None), **options):
        mx.random.seed(1)
        module, points = mx.mod.Module(classifier()), mx.io.NDArrayIter(data[rows], label[rows], 8)
        module.fit(points, num_epoch=1, initializer=mx.init.Xavier(), **options)
        return module

    same(run(on_nonfinite="skip"), run(np.r_[0:16, 24:96]))
    assert "batch 2 of epoch 0 (samples 17), first at the node 'data'; the batch is skipped" in caplog.text
    added = run(on_nonfinite="skip", accumulate=3)
    assert all(np.isfinite(value).all() for value in parameters(added).values())


def test_a_training_step_of_ones_own():
    def own_step(module, batch):
        step(module, batch)
        return {"loss": float(batch.label[0].mean().asscalar()), "two": 2}

    own, history = trained(training_step=own_step)
    same(own, trained()[0])
    assert history.names == ["train-loss", "train-two"]
    means = [batch.label[0].asnumpy().mean() for batch in blobs()]
    assert history["train-loss"] == pytest.approx([np.mean(means)] * 2)
    assert trained(training_step=step)[1].names == ["train-accuracy"]


# what is trained, and how fast


@both_contexts
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_frozen_parameters_keep_their_bits(contexts, optimizer):
    module, _ = trained(contexts=contexts, optimizer=optimizer)
    before = parameters(module)
    assert module.freeze("hidden_*") == ["hidden_weight", "hidden_bias"]
    module.fit(blobs(), num_epoch=1)
    after = parameters(module)
    for name, value in after.items():
        assert np.array_equal(value, before[name]) == name.startswith("hidden"), name
    assert module.unfreeze() == ["hidden_weight", "hidden_bias"]
    module.fit(blobs(), num_epoch=1)
    assert not np.array_equal(parameters(module)["hidden_weight"], after["hidden_weight"])


def test_buckets_are_frozen():
    module = of_buckets()
    before = parameters(module)
    assert module.freeze("f_bias") == ["f_bias"]
    for length in (6, 3):
        step(module, bucket_batch(length, np.ones((4, length)), np.zeros(4)))
    assert (parameters(module)["f_bias"] == before["f_bias"]).all()
    assert (parameters(module)["f_weight"] != before["f_weight"]).all()


def test_the_rate_falls_when_nothing_gets_better():
    schedule = mx.lr_scheduler.ReduceOnPlateau("train-two", factor=0.5, patience=0, mode="max", base_lr=0.4)
    options = {"optimizer_params": {"lr_scheduler": schedule}, "num_epoch": 3}
    trained(training_step=lambda module, batch: step(module, batch) or {"two": 2.0}, **options)
    assert schedule(0) == pytest.approx(0.1)


# what it tells, and how it computes


def test_deterministic_holds_until_fit_returns():
    seen = []

    def look(param):
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark))

    trained(deterministic=True, batch_end_callback=look)
    assert set(seen) == {(True, False)}
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ZeroDivisionError):
        trained(deterministic=True, batch_end_callback=lambda param: 1 / 0)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_short_rest_counts_its_samples():
    # 12 batches in groups of 5, 5 and 2: the last one is a batch of 16
    module, _ = trained(8, accumulate=5, num_epoch=1)
    mx.random.seed(1)
    by_hand = ready(classifier(), shapes=POINTS, optimizer={"learning_rate": 0.2, "rescale_grad": 1.0})
    batches = list(blobs())
    for group in (batches[:5], batches[5:10], batches[10:]):
        for number, batch in enumerate(group):
            if number:
                by_hand.keep_gradients()
            by_hand.forward_backward(batch)
        by_hand.scale_gradients(1 / (8 * len(group)))
        by_hand.update()
    same(module, by_hand, 1e-6)


def test_a_chain_of_modules_has_one_norm():
    joined = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="a")
    joined = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(joined, num_hidden=3, name="b"), name="softmax")
    norms = []
    for module in (chain(), joined):
        module = ready(module, shapes=POINTS, init="ones", optimizer={})
        module.forward_backward(next(blobs()))
        norms.append(module.clip_by_global_norm(1.0))
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
