"""What `fit` does beyond MXNet's: it ends early, adds up gradients, clips them, and returns a history."""

import logging
import math

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.small_fits import blobs, classifier, parameters, trained

TWO = [mx.cpu(0), mx.cpu(1)]


def assert_same(one, other, tolerance=1e-6):
    first, second = parameters(one), parameters(other)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=tolerance, atol=tolerance, err_msg=name)


# accumulate


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("contexts", [None, TWO])
def test_accumulated_batches_are_one_large_batch(optimizer, contexts):
    options = {"optimizer": optimizer, "optimizer_params": {"learning_rate": 0.05, "wd": 0.01}}
    small, _ = trained(4, contexts, accumulate=4, **options)
    large, _ = trained(16, contexts, **options)
    assert_same(small, large, 2e-6)


def test_a_short_rest_counts_its_samples():
    # 12 batches in groups of 5, 5 and 2: the last one is a batch of 16
    module, _ = trained(8, accumulate=5, num_epoch=1)
    mx.random.seed(1)
    by_hand = mx.mod.Module(classifier())
    data = blobs(batch_size=8)
    by_hand.bind(data.provide_data, data.provide_label)
    by_hand.init_params(mx.init.Xavier())
    by_hand.init_optimizer(optimizer_params={"learning_rate": 0.2, "rescale_grad": 1.0})
    batches = list(data)
    for group in (batches[:5], batches[5:10], batches[10:]):
        for number, batch in enumerate(group):
            if number:
                by_hand.keep_gradients()
            by_hand.forward_backward(batch)
        by_hand.scale_gradients(1 / (8 * len(group)))
        by_hand.update()
    assert_same(module, by_hand)


def test_sparse_gradients_are_added_up():
    def run(batch_size, **options):
        mx.random.seed(2)
        words = mx.nd.array(np.random.RandomState(0).randint(0, 20, (32, 5)))
        label = np.random.RandomState(1).randint(0, 2, 32)
        net = mx.sym.Embedding(
            mx.sym.Variable("data"), input_dim=20, output_dim=4, sparse_grad=True, name="e"
        )
        net = mx.sym.FullyConnected(mx.sym.mean(net, axis=1), num_hidden=2, name="f")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
        data = mx.io.NDArrayIter(words, label, batch_size)
        module.fit(
            data, num_epoch=2, optimizer_params={"learning_rate": 0.5}, initializer="xavier", **options
        )
        return module

    assert_same(run(4, accumulate=4), run(16))


def test_buckets_add_up_together():
    def sym_gen(length):
        data = mx.sym.Variable("data")
        net = mx.sym.FullyConnected(mx.sym.mean(data, axis=1, keepdims=True), num_hidden=2, name="f")
        return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    def batch(length, rows):
        source = np.random.RandomState(length + rows)
        data, label = source.randn(rows, length).astype("f"), source.randint(0, 2, rows).astype("f")
        return mx.io.DataBatch(
            [mx.nd.array(data)],
            [mx.nd.array(label)],
            bucket_key=length,
            provide_data=[("data", data.shape)],
            provide_label=[("softmax_label", label.shape)],
        )

    module = mx.mod.BucketingModule(sym_gen, 6)
    first, second = batch(6, 4), batch(3, 4)
    module.bind(first.provide_data, first.provide_label)
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 1.0, "rescale_grad": 1.0})
    before = parameters(module)
    steps = []
    for each in (first, second):
        module.forward_backward(each)
        module.update()
        steps.append({name: value - before[name] for name, value in parameters(module).items()})
        module.set_params({name: mx.nd.array(value) for name, value in before.items()}, {})
    module.forward_backward(first)
    module.keep_gradients()
    module.forward_backward(second)
    module.update()
    for name, value in parameters(module).items():
        np.testing.assert_allclose(
            value - before[name], steps[0][name] + steps[1][name], rtol=1e-5, atol=1e-6
        )


# clipping


@pytest.mark.parametrize("contexts", [None, TWO])
def test_gradients_are_clipped_as_torch_does(contexts):
    module = mx.mod.Module(classifier(), context=contexts or mx.cpu())
    data = blobs(batch_size=8)
    module.bind(data.provide_data, data.provide_label)
    mx.random.seed(4)
    module.init_params(mx.init.Normal(1.0))
    module.init_optimizer(optimizer_params={"learning_rate": 1.0})
    before = parameters(module)
    batch = data.next()
    module.forward_backward(batch)
    grads = {}
    for name, row in zip(module.param_names, module._exec_group.grad_arrays):
        grads[name] = torch.from_numpy(sum(g.asnumpy() for g in row)) / 8
    leaves = [torch.zeros_like(g).requires_grad_() for g in grads.values()]
    for leaf, grad in zip(leaves, grads.values()):
        leaf.grad = grad.clone()
    wanted = float(torch.nn.utils.clip_grad_norm_(leaves, 0.25))
    assert module.clip_by_global_norm(0.25) == pytest.approx(wanted, rel=1e-5)
    module.update()
    for leaf, (name, value) in zip(leaves, ((n, parameters(module)[n]) for n in grads)):
        np.testing.assert_allclose(
            before[name] - value, leaf.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name
        )


def test_short_gradients_are_left_alone():
    free, _ = trained()
    clipped, _ = trained(clip_global_norm=1e6)
    assert_same(free, clipped, 0)
    shrunk, _ = trained(clip_global_norm=1e-3)
    assert not np.allclose(parameters(free)["hidden_weight"], parameters(shrunk)["hidden_weight"])


def test_a_chain_of_modules_has_one_norm():
    chain = mx.mod.SequentialModule()
    data = mx.sym.Variable("data")
    chain.add(
        mx.mod.Module(mx.sym.FullyConnected(data, num_hidden=4, name="a"), label_names=()), auto_wiring=True
    )
    top = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=3, name="b"), name="softmax")
    chain.add(mx.mod.Module(top), take_labels=True, auto_wiring=True)
    whole = mx.mod.Module(
        mx.sym.SoftmaxOutput(
            mx.sym.FullyConnected(
                mx.sym.FullyConnected(data, num_hidden=4, name="a"), num_hidden=3, name="b"
            ),
            name="softmax",
        )
    )
    norms = []
    for module in (chain, whole):
        points = blobs()
        module.bind(points.provide_data, points.provide_label)
        module.init_params(mx.init.One())
        module.init_optimizer()
        module.forward_backward(points.next())
        norms.append(module.clip_by_global_norm(1.0))
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


# the end


def test_a_callback_that_returns_true_ends_training():
    seen = []
    _, history = trained(batch_end_callback=lambda p: seen.append(p.nbatch) or p.nbatch == 2, num_epoch=5)
    assert seen == [0, 1, 2]
    assert [(row["epoch"], row["batch"]) for row in history] == [(0, 3)]
    assert "batch 2 of epoch 0" in history.ended
    epochs = []
    _, history = trained(
        epoch_end_callback=lambda epoch, *rest: epochs.append(epoch) or epoch == 1, num_epoch=5
    )
    assert epochs == [0, 1]
    assert len(history) == 2
    _, history = trained(eval_data=blobs(), eval_end_callback=lambda p: p.epoch == 1, num_epoch=5)
    assert len(history) == 2


@pytest.mark.parametrize("value", [1, "yes", object()])
def test_other_values_go_on(value):
    _, history = trained(batch_end_callback=lambda p: value, epoch_end_callback=lambda *p: value)
    assert len(history) == 2
    assert not history.ended


def test_batches_and_time_are_limited():
    batches = []
    _, history = trained(max_batches=15, batch_end_callback=lambda p: batches.append(p.nbatch), num_epoch=9)
    assert batches == [*range(12), *range(3)]
    assert history.ended == "max_batches=15"
    batches.clear()
    _, history = trained(max_time_s=1e-6, batch_end_callback=lambda p: batches.append(p.nbatch), num_epoch=9)
    assert batches == [0]
    assert history.ended == "max_time_s=1e-06"


def test_dry_run_tries_everything_once():
    epochs, batches, evaluated = [], [], []
    _, history = trained(
        dry_run=True,
        num_epoch=9,
        eval_data=blobs(),
        batch_end_callback=lambda p: batches.append(p.nbatch),
        epoch_end_callback=lambda *p: epochs.append(p),
        eval_batch_end_callback=lambda p: evaluated.append(p.nbatch),
    )
    assert (batches, epochs, evaluated) == ([0], [], [0])
    assert history.names == ["train-accuracy", "validation-accuracy"]
    assert history.ended == "dry_run"


# what is measured


def test_history_has_what_is_logged(caplog):
    with caplog.at_level(logging.INFO):
        _, history = trained(eval_data=blobs(seed=5), eval_metric=["acc", "ce"], num_epoch=3)
    assert history.names == [
        "train-accuracy",
        "train-cross-entropy",
        "validation-accuracy",
        "validation-cross-entropy",
    ]
    logged = [line.rsplit("=", 1)[1] for line in caplog.messages if "Validation-accuracy" in line]
    assert [f"{value:f}" for value in history["validation-accuracy"]] == logged
    assert history["train-accuracy"][-1] > 0.8
    assert all(row["time_s"] > 0 and row["batch"] == 12 for row in history)
    assert "train-accuracy=" in repr(history)
    with pytest.raises(ArgumentError, match="'train-acuracy' was not measured.*train-accuracy"):
        history["train-acuracy"]


def test_several_evaluations_by_name():
    _, history = trained(eval_data={"validation": blobs(seed=5), "test": blobs(seed=6)})
    assert history.names == ["train-accuracy", "validation-accuracy", "test-accuracy"]
    module, _ = trained()
    assert history["test-accuracy"][-1] == module.score(blobs(seed=6), "acc")[0][1]


def test_evaluation_within_epochs_leaves_the_epochs_metric_alone():
    plain, without = trained(eval_data=blobs(seed=5))
    module, history = trained(eval_data=blobs(seed=5), eval_every_n_batches=5)
    assert_same(plain, module, 0)
    assert [(row["epoch"], row["batch"]) for row in history] == [
        (0, 5),
        (0, 10),
        (0, 12),
        (1, 5),
        (1, 10),
        (1, 12),
    ]
    assert history["train-accuracy"] == without["train-accuracy"]
    assert len(history["validation-accuracy"]) == 6


def test_history_is_drawn():
    _, history = trained(eval_data=blobs(), eval_every_n_batches=6)
    axes = history.plot()
    curves = {line.get_label(): line for line in axes.lines}
    assert list(curves) == history.names
    assert curves["validation-accuracy"].get_xdata() == pytest.approx([0.5, 1, 1.5, 2])
    assert list(curves["train-accuracy"].get_ydata()) == history["train-accuracy"]
    assert len(history.plot("train-accuracy").lines) == 1


# batches that are not finite


def test_bad_batches_are_skipped(caplog):
    data = blobs(batch_size=8).data[0][1].asnumpy().copy()
    label = blobs(batch_size=8).label[0][1].asnumpy()
    data[17] = math.nan  # in the third batch
    keep = np.r_[0:16, 24:96]

    def run(rows, **options):
        mx.random.seed(1)
        module = mx.mod.Module(classifier())
        points = mx.io.NDArrayIter(data[rows], label[rows], 8)
        module.fit(points, num_epoch=1, initializer=mx.init.Xavier(), **options)
        return module

    assert_same(run(np.arange(96), on_nonfinite="skip"), run(keep), 0)
    assert "batch 2 of epoch 0 (samples 17), first at the node 'data'; the batch is skipped" in caplog.text
    added = run(np.arange(96), on_nonfinite="skip", accumulate=3)
    assert all(np.isfinite(value).all() for value in parameters(added).values())


# steps by hand


def test_a_training_step_of_ones_own():
    def step(module, batch):
        module.forward_backward(batch)
        module.update()
        return {"loss": float(batch.label[0].mean().asscalar()), "two": 2}

    own, history = trained(training_step=step)
    plain, _ = trained()
    assert_same(own, plain, 0)
    assert history.names == ["train-loss", "train-two"]
    means = [batch.label[0].asnumpy().mean() for batch in blobs()]
    assert history["train-loss"] == pytest.approx([np.mean(means)] * 2)
    _, history = trained(
        training_step=lambda module, batch: module.forward_backward(batch) or module.update()
    )
    assert history.names == ["train-accuracy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate is 0, expected a whole number of batches, at least 1"),
        ({"accumulate": 1.5}, "accumulate is 1.5"),
        ({"clip_global_norm": 0}, "clip_global_norm is 0, expected a number above 0"),
        ({"clip_global_norm": math.nan}, "clip_global_norm is nan"),
        ({"max_batches": -1}, "max_batches is -1"),
        ({"max_time_s": 0}, "max_time_s is 0"),
        ({"eval_every_n_batches": 0}, "eval_every_n_batches is 0"),
        ({"accumulate": 2, "training_step": print}, "a training_step updates parameters itself"),
        ({"training_step": lambda module, batch: 3}, "training_step returned int, expected a dict"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        trained(**options)


# what is trained, and how fast


@pytest.mark.parametrize("contexts", [None, TWO])
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
    assert module.fixed_param_names == []
    module.fit(blobs(), num_epoch=1)
    assert not np.array_equal(parameters(module)["hidden_weight"], after["hidden_weight"])


@pytest.mark.parametrize("contexts", [None, TWO])
def test_freezing_keeps_the_optimizers_states(contexts):
    options = {"optimizer": "sgd", "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9}}
    touched, _ = trained(contexts=contexts, **options)
    plain, _ = trained(contexts=contexts, **options)
    touched.freeze("scores_bias")
    touched.unfreeze("scores_bias")
    for module in (touched, plain):
        module.fit(blobs(), num_epoch=1)
    assert_same(touched, plain, 0)


def test_parameters_frozen_from_the_start_are_trained_later():
    module = mx.mod.Module(classifier(), context=TWO, fixed_param_names=["hidden_weight"])
    module.fit(blobs(), num_epoch=1, initializer=mx.init.Xavier())
    before = parameters(module)["hidden_weight"]
    module.unfreeze("hidden_weight")
    module.fit(blobs(), num_epoch=1)
    assert not np.array_equal(parameters(module)["hidden_weight"], before)


def test_buckets_are_frozen():
    def sym_gen(length):
        net = mx.sym.FullyConnected(
            mx.sym.mean(mx.sym.Variable("data"), axis=1, keepdims=True), num_hidden=2, name="f"
        )
        return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(sym_gen, 6)
    module.bind([("data", (4, 6))], [("softmax_label", (4,))])
    module.init_params(mx.init.One())
    module.init_optimizer()
    assert module.freeze("f_bias") == ["f_bias"]
    for length in (6, 3):
        module.forward_backward(
            mx.io.DataBatch(
                [mx.nd.ones((4, length))],
                [mx.nd.zeros((4,))],
                bucket_key=length,
                provide_data=[("data", (4, length))],
                provide_label=[("softmax_label", (4,))],
            )
        )
        module.update()
    found = parameters(module)
    assert not found["f_bias"].any()
    assert (found["f_weight"] != 1).all()


def test_freeze_refuses_what_matches_nothing():
    module, _ = trained()
    with pytest.raises(
        ArgumentError, match="freeze: 'hiden_weight' matches none of the parameters.*hidden_weight"
    ):
        module.freeze("hiden_weight")


def test_rates_by_pattern():
    optimizer = mx.optimizer.create(
        "sgd", learning_rate=1.0, param_idx2name={0: "conv1_w", 1: "conv2_w", 2: "fc_w"}
    )
    optimizer.set_lr_mult({"conv*": 0.1, "conv2_w": 0.5})
    optimizer.set_wd_mult({"*_w": 2.0})
    assert [optimizer.multipliers(i) for i in range(3)] == [(0.1, 2.0), (0.5, 2.0), (1.0, 2.0)]


def test_the_rate_falls_when_nothing_gets_better():
    schedule = mx.lr_scheduler.ReduceOnPlateau("train-two", factor=0.5, patience=0, mode="max", base_lr=0.4)

    def step(module, batch):
        module.forward_backward(batch)
        module.update()
        return {"two": 2.0}

    trained(optimizer_params={"lr_scheduler": schedule}, training_step=step, num_epoch=3)
    assert schedule(0) == pytest.approx(0.1)


# what it tells, and how it computes


def test_samples_of_a_bad_batch_are_named():
    data = np.ones((32, 2), "f4")
    data[[5, 20]] = math.inf, math.nan
    points = mx.io.NDArrayIter(data, np.zeros(32), 8, shuffle=True)
    with pytest.raises(
        mx.base.NonFiniteError, match=r"in batch \d of epoch 0 \(samples (5|20|5, 20|20, 5)\)"
    ):
        mx.mod.Module(classifier()).fit(points, num_epoch=1, initializer="xavier")


def test_all_samples_are_named_where_only_gradients_are_bad():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3)
    net = mx.sym.SoftmaxOutput(net + mx.sym.sqrt(net * 0), name="softmax")
    with pytest.raises(mx.base.NonFiniteError, match=r"\(samples 0, 1, 2, 3, 4, 5, 6, 7 and 4 more\)"):
        mx.mod.Module(net).fit(blobs(batch_size=12), num_epoch=1)


def test_profile_logs_three_lines(caplog):
    caplog.set_level(logging.INFO)
    _, history = trained(profile=True, num_epoch=2)
    for epoch in (0, 1):
        lines = [
            text for text in caplog.messages if text.startswith(f"Epoch[{epoch}] ") and " ms each of " in text
        ]
        assert [line.split()[1] for line in lines] == ["data", "compute", "update"]
        shares = [
            float(line.split("s")[1].split("%")[0]) for line in (each.split(" ", 2)[2] for each in lines)
        ]
        assert 0 < sum(shares) <= 100.2
        assert [line.split()[-1] for line in lines] == ["13", "12", "12"]
    caplog.clear()
    trained(num_epoch=1)
    assert "compute" not in caplog.text


def test_deterministic_holds_until_fit_returns():
    seen = []

    def look(param):
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark))

    one, _ = trained(deterministic=True, batch_end_callback=look)
    assert set(seen) == {(True, False)}
    assert not torch.are_deterministic_algorithms_enabled()
    other, _ = trained()
    assert_same(one, other, 0)
    with pytest.raises(ZeroDivisionError):
        trained(deterministic=True, batch_end_callback=lambda param: 1 / 0)
    assert not torch.are_deterministic_algorithms_enabled()


def test_summary_counts_operations_and_memory():
    module, _ = trained(8, TWO)
    lines = module.summary().splitlines()
    assert lines[0].split()[-2:] == ["FLOPs", "memory"]
    hidden = lines[2].split()
    assert hidden[:2] == ["hidden", "(FullyConnected)"]
    assert hidden[-3:] == [f"{2 * 8 * 2 * 8}", f"{8 * 8 * 4}", "B"]
    assert "FLOPs of a batch: 728 forward, 1,112 backward (about)" in lines
    assert lines[-1].startswith("memory: parameters 204 B, gradients 204 B, values of a batch ")
    module.freeze("hidden*")
    assert "gradients 108 B" in module.summary()


def tower(name, data, out):
    net = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=16, name=f"{name}1"), act_type="relu")
    return mx.sym.FullyConnected(net, num_hidden=out, name=f"{name}2")


def test_a_training_step_teaches_two_networks_that_work_against_each_other():
    """One makes numbers, the other tells them from those of a normal distribution."""
    mx.random.seed(2)
    size, mean, deviation = 64, 3.0, 0.5
    adam = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.005, "beta1": 0.5}}
    data = mx.sym.Variable("data")
    maker = mx.mod.Module(tower("maker", data, 1), label_names=None)
    packs = mx.sym.Reshape(
        data, shape=(-1, 8)
    )  # it sees several numbers at once, so that they cannot all be one
    squares = mx.sym.Concat(packs, mx.sym.square(packs), dim=1)
    label = mx.sym.slice_axis(
        mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1, 8)), axis=1, begin=0, end=1
    )
    judge = mx.mod.Module(mx.sym.LogisticRegressionOutput(tower("judge", squares, 1), label, name="softmax"))
    judge.bind([("data", (size, 1))], [("softmax_label", (size, 1))], inputs_need_grad=True)
    judge.init_params(mx.init.Xavier())
    judge.init_optimizer(**adam)
    real, false = mx.nd.ones((size, 1)), mx.nd.zeros((size, 1))

    def step(module, batch):
        module.forward(mx.io.DataBatch([mx.nd.random.normal(shape=(size, 1))]), is_train=True)
        made = module.get_outputs()[0].copy()
        for sample, label in ((batch.data[0], real), (made, false)):
            judge.forward_backward(mx.io.DataBatch([sample], [label]))
            judge.update()
        judge.forward_backward(mx.io.DataBatch([made], [real]))
        module.backward(judge.get_input_grads())
        module.update()
        return {"mean": made.asnumpy().mean(), "deviation": made.asnumpy().std()}

    samples = np.random.RandomState(0).normal(mean, deviation, (size * 200, 1)).astype("f4")
    history = maker.fit(
        mx.io.NDArrayIter(samples, batch_size=size),
        **adam,
        initializer=mx.init.Xavier(),
        num_epoch=4,
        training_step=step,
        callbacks=mx.callback.EMA(0.99),
    )
    assert history.names == ["train-mean", "train-deviation"]
    made = maker.predict(mx.nd.random.normal(shape=(2000, 1))).asnumpy()
    assert abs(made.mean() - mean) < 0.25
    assert 0.5 * deviation < made.std() < 1.5 * deviation
