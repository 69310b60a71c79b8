import io
import logging
import os
import signal
import sys
import threading
import types

import numpy as np
import pytest
import torch
import tqdm

import dpmodule as mx
from dpmodule.base import ArgumentError, NonFiniteError, ShapeError, StateError
from dpmodule.module.lockstep import Lockstep
from helpers.nets import blobs, lenet, mlp

TWO = [mx.cpu(0), mx.cpu(1)]
SGD = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.001}


def start_values(net, shape):
    rng = np.random.RandomState(5)
    shapes, _, _ = net.infer_shape(data=shape)
    return {
        name: mx.nd.array(rng.randn(*s) * 0.2)
        for name, s in zip(net.list_arguments(), shapes)
        if name not in ("data", "softmax_label")
    }


def trained(
    net, data, contexts, workload=None, epochs=3, batch=16, kvstore="local", optimizer="sgd", params=SGD
):
    mod = mx.mod.Module(net, context=contexts, work_load_list=workload)
    it = mx.io.NDArrayIter(*data, batch_size=batch)
    values = start_values(net, (batch, *data[0].shape[1:]))
    mod.fit(
        it, num_epoch=epochs, optimizer=optimizer, optimizer_params=params, arg_params=values, kvstore=kvstore
    )
    return {k: v.asnumpy() for k, v in mod.get_params()[0].items()}


@pytest.mark.parametrize("kvstore", ["local", "device"])
@pytest.mark.parametrize(("net", "shape"), [(mlp(), (6,)), (lenet(), (1, 12, 12))], ids=["mlp", "lenet"])
def test_one_two_and_uneven_contexts_give_the_same_parameters(net, shape, kvstore):
    data = blobs(48, shape)
    alone = trained(net, data, mx.cpu())
    for workload in (None, [1, 3]):
        spread = trained(net, data, TWO, workload, kvstore=kvstore)
        for name in alone:
            np.testing.assert_allclose(
                spread[name], alone[name], atol=1e-5, err_msg=f"{name} under {workload}"
            )


@pytest.mark.parametrize("optimizer", ["sgd", "nag", "adam", "adagrad", "rmsprop"])
def test_every_optimizer_agrees_on_one_and_two_contexts(optimizer):
    data, params = blobs(48), {"learning_rate": 0.05, "wd": 0.01}
    alone = trained(mlp(), data, mx.cpu(), optimizer=optimizer, params=params)
    spread = trained(mlp(), data, TWO, optimizer=optimizer, params=params)
    for name in alone:
        np.testing.assert_allclose(spread[name], alone[name], atol=2e-4, err_msg=name)


@pytest.mark.parametrize("contexts", [[mx.cpu(0)], TWO], ids=["one", "two"])
def test_two_runs_with_one_seed_are_equal_bit_for_bit(contexts):
    def run():
        mx.random.seed(42)
        mod = mx.mod.Module(mlp(dropout=0.5), context=contexts)
        it = mx.io.NDArrayIter(*blobs(50), batch_size=16, shuffle=True)
        mod.fit(it, num_epoch=3, optimizer_params=SGD, initializer=mx.init.Xavier())
        return mod.get_params()[0]

    one, other = run(), run()
    for name in one:
        assert one[name].asnumpy().tobytes() == other[name].asnumpy().tobytes(), name


def test_another_seed_gives_another_run():
    def run(seed):
        mx.random.seed(seed)
        mod = mx.mod.Module(mlp())
        mod.fit(mx.io.NDArrayIter(*blobs(), batch_size=16), num_epoch=1)
        return mod.get_params()[0]["fc1_weight"].asnumpy()

    assert not np.array_equal(run(1), run(2))


def test_fit_learns():
    data, mod = blobs(128), mx.mod.Module(mlp())
    it = mx.io.NDArrayIter(*data, batch_size=16, shuffle=True)
    mod.fit(it, num_epoch=10, optimizer_params=SGD, initializer=mx.init.Xavier())
    assert dict(mod.score(it, "acc"))["accuracy"] > 0.95


def test_a_name_is_an_initializer():
    mod = mx.mod.Module(mlp())
    options = {"initializer": "ones", "optimizer_params": {"learning_rate": 0.0}}
    mod.fit(mx.io.NDArrayIter(*blobs(16), batch_size=16), num_epoch=1, **options)
    assert (mod.get_params()[0]["fc1_weight"].asnumpy() == 1).all()


@pytest.mark.parametrize("contexts", [[mx.cpu(0)], TWO], ids=["one", "two"])
def test_an_epoch_ends_with_the_moving_means_of_its_last_step(contexts):
    net = mx.sym.FullyConnected(
        mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn", momentum=0.5), num_hidden=2
    )
    mod, seen = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=contexts), []
    data, label = blobs(16)
    mod.fit(
        mx.io.NDArrayIter(data, label, batch_size=16),
        num_epoch=3,
        epoch_end_callback=lambda epoch, symbol, args, states: seen.append(
            states["bn_moving_mean"].asnumpy()
        ),
    )
    expected = [(1 - 0.5**epoch) * data.mean(0) for epoch in (1, 2, 3)]
    np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-6)


def test_fit_over_contexts_binds_again_and_keeps_parameters():
    data, mod = blobs(), mx.mod.Module(mlp())
    it = mx.io.NDArrayIter(*data, batch_size=16)
    mod.fit(it, num_epoch=2, optimizer_params=SGD, initializer=mx.init.Xavier())
    before = mod.get_params()[0]
    mod.fit(it, contexts=TWO, begin_epoch=2, num_epoch=2)
    assert mod.group.contexts == TWO
    for name, value in mod.get_params()[0].items():
        np.testing.assert_array_equal(value.asnumpy(), before[name].asnumpy())
    mod.fit(it, contexts=[mx.cpu(0)], num_epoch=1)
    assert mod.group.contexts == [mx.cpu(0)]


def test_optimizer_states_survive_a_change_of_contexts():
    data, net = blobs(48), mlp()
    straight = mx.mod.Module(net)
    it = mx.io.NDArrayIter(*data, batch_size=16)
    values = start_values(net, (16, 6))
    straight.fit(it, num_epoch=4, optimizer_params=SGD, arg_params=values)
    moved = mx.mod.Module(net)
    moved.fit(it, num_epoch=2, optimizer_params=SGD, arg_params=values)
    moved.fit(it, contexts=TWO, begin_epoch=2, num_epoch=3)
    moved.fit(it, contexts=[mx.cpu(0)], begin_epoch=3, num_epoch=4)
    for name, value in straight.get_params()[0].items():
        np.testing.assert_allclose(moved.get_params()[0][name].asnumpy(), value.asnumpy(), atol=1e-5)


class _Pairs(torch.utils.data.Dataset):
    def __init__(self, data, label):
        self.data, self.label = torch.from_numpy(data), torch.from_numpy(label)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i], self.label[i]


def _sources(data, label):
    batches = [(data[i : i + 16], label[i : i + 16]) for i in range(0, len(data), 16)]
    return {
        "NDArrayIter": mx.io.NDArrayIter(data, label, batch_size=16),
        "DataLoader": torch.utils.data.DataLoader(_Pairs(data, label), batch_size=16),
        "pairs": batches,
        "tensors": [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in batches],
        "dicts": [{"data": x, "softmax_label": y} for x, y in batches],
        "DataBatch": [mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]) for x, y in batches],
    }


@pytest.mark.parametrize("source", ["NDArrayIter", "DataLoader", "pairs", "tensors", "dicts", "DataBatch"])
@pytest.mark.parametrize("contexts", [[mx.cpu(0)], TWO], ids=["one", "two"])
def test_fit_takes_any_source_of_batches(source, contexts):
    data, label = blobs(48)
    net = mlp()
    values = start_values(net, (16, 6))

    def run(name):
        mod = mx.mod.Module(net, context=contexts)
        mod.fit(_sources(data, label)[name], num_epoch=2, optimizer_params=SGD, arg_params=values)
        return mod.get_params()[0]

    want = run("NDArrayIter")
    for name, value in run(source).items():
        np.testing.assert_array_equal(value.asnumpy(), want[name].asnumpy())


def test_a_short_last_batch_trains_scores_and_predicts():
    data, label = blobs(42)
    loader = torch.utils.data.DataLoader(_Pairs(data, label), batch_size=16)
    mod = mx.mod.Module(mlp(), context=TWO)
    mod.fit(loader, eval_data=loader, num_epoch=5, optimizer_params=SGD, initializer=mx.init.Xavier())
    predicted = mod.predict(loader).asnumpy()
    assert predicted.shape == (42, 4)
    accuracy = dict(mod.score(loader, "acc"))["accuracy"]
    assert accuracy == pytest.approx((predicted.argmax(1) == label).mean())


def test_padding_counts_only_if_asked_for():
    data, label = blobs(10)
    mod = mx.mod.Module(mlp(), context=TWO)
    it = mx.io.NDArrayIter(data, label, batch_size=4)
    mod.bind(it.provide_data, it.provide_label)
    mod.init_params(mx.init.Xavier())
    right = mod.predict(it).asnumpy().argmax(1) == label
    assert len(right) == 10
    assert dict(mod.score(it, "acc"))["accuracy"] == pytest.approx(right.mean())
    padded = np.append(right, right[:2])
    assert dict(mod.score(it, "acc", count_padding=True))["accuracy"] == pytest.approx(padded.mean())


def test_callbacks_see_every_batch_and_epoch():
    seen, epochs, scored = [], [], []
    it = mx.io.NDArrayIter(*blobs(32), batch_size=16)
    mx.mod.Module(mlp()).fit(
        it,
        eval_data=it,
        num_epoch=2,
        batch_end_callback=[lambda p: seen.append((p.epoch, p.nbatch))],
        epoch_end_callback=lambda epoch, sym, arg, aux: epochs.append((epoch, sorted(arg), aux)),
        eval_end_callback=lambda p: scored.append(p.epoch),
    )
    assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert epochs == [(e, ["fc1_bias", "fc1_weight", "fc2_bias", "fc2_weight"], {}) for e in (0, 1)]
    assert scored == [0, 1]


def test_fit_logs_metrics(caplog):
    it = mx.io.NDArrayIter(*blobs(32), batch_size=16)
    with caplog.at_level(logging.INFO):
        mx.mod.Module(mlp()).fit(it, eval_data=it, num_epoch=1, eval_metric=["acc", "ce"])
    text = caplog.text
    for part in (
        "Epoch[0] Train-accuracy=",
        "Epoch[0] Train-cross-entropy=",
        "Time cost=",
        "Validation-accuracy=",
    ):
        assert part in text


def test_a_non_finite_output_stops_before_the_update():
    data, label = blobs(32)
    data[20, 2] = np.nan
    mod = mx.mod.Module(mlp())
    it = mx.io.NDArrayIter(data, label, batch_size=16)
    with pytest.raises(NonFiniteError, match=r"'softmax_output' is not finite in batch 1 of epoch 0"):
        mod.fit(it, num_epoch=1)
    assert all(np.isfinite(v.asnumpy()).all() for v in mod.get_params()[0].values())


def test_an_output_that_trains_nothing_may_be_non_finite():
    """A cross entropy shown beside the loss, as face recognition programs have it, is NaN where 0 * log(0) is."""
    net = mlp()
    shown = mx.sym.BlockGrad(mx.sym.log(mx.sym.zeros_like(net)) * 0)
    mod = mx.mod.Module(mx.sym.Group([net, shown]))
    data, label = blobs(32)
    metric = mx.metric.Accuracy(output_names=["softmax_output"], label_names=["softmax_label"])
    mod.fit(mx.io.NDArrayIter(data, label, batch_size=16), num_epoch=1, eval_metric=metric)
    assert np.isnan(mod.get_outputs()[1].asnumpy()).all()
    assert all(np.isfinite(v.asnumpy()).all() for v in mod.get_params()[0].values())


class Several(mx.metric.EvalMetric):
    """A metric of two names, as detectors have: sums in lists, and a `reset` from before there were global sums."""

    def reset(self):
        self.sum_metric, self.num_inst = [0.0, 0.0], [0, 0]

    def update(self, labels, preds):
        for k in range(2):
            self.sum_metric[k] += k + 1.0
            self.num_inst[k] += 1

    def get(self):
        values = [total / count if count else 0.5 for total, count in zip(self.sum_metric, self.num_inst)]
        return ["a", "b"], values


class InTuples(Several):
    def get(self):
        names, values = super().get()
        return tuple(names), tuple(values)


class InArrays(Several):
    def get(self):
        names, values = super().get()
        return names, np.array(values)


class OnTopOfOurs(mx.metric.Accuracy):
    def get(self):
        return ["a", "b"], [1.0, 2.0]


@pytest.mark.parametrize(
    "make", [Several, InTuples, InArrays, OnTopOfOurs], ids=["list", "tuple", "array", "derived"]
)
def test_a_metric_of_several_names_logs_each(make, caplog):
    own = make() if make is OnTopOfOurs else make("own")
    data = mx.io.NDArrayIter(*blobs(32), batch_size=16)
    mod = mx.mod.Module(mlp())
    lines = [
        mx.callback.Speedometer(16, 1),
        mx.callback.log_train_metric(1, auto_reset=True),
        mx.callback.TqdmBar(disable=True),
    ]
    with caplog.at_level(logging.INFO):
        mod.fit(
            data,
            eval_data=data,
            eval_metric=own,
            num_epoch=1,
            batch_end_callback=lines,
            eval_end_callback=mx.callback.LogValidationMetricsCallback(),
        )
    for text in ("Epoch[0] Train-", "Epoch[0] Validation-", "Iter[0] Batch[0] Train-"):
        assert [line for line in caplog.messages if line.startswith(text + "a=1.000000")]
        assert [line for line in caplog.messages if line.startswith(text + "b=2.000000")]
    assert "\ta=" in caplog.text
    assert mod.score(data, own) == own.get_name_value() == [("a", 1.0), ("b", 2.0)]
    assert mod.score(data, [own, "acc"])[:2] == [("a", 1.0), ("b", 2.0)]


def test_a_non_finite_output_can_be_passed_over(caplog):
    data, label = blobs(32)
    data[20, 2] = np.nan
    it = mx.io.NDArrayIter(data, label, batch_size=16)
    mx.mod.Module(mlp()).fit(it, num_epoch=1, on_nonfinite="warn")
    assert "is not finite" in caplog.text


def test_an_iterator_that_is_at_its_end_begins_anew():
    it = mx.io.NDArrayIter(*blobs(32), batch_size=16)
    mod = mx.mod.Module(mlp())
    mod.fit(it, num_epoch=1)
    seen = []
    for use in (lambda: mod.score(it, "acc"), lambda: list(it), lambda: mod.predict(it)):
        use()
        seen.clear()
        before = mod.get_params()[0]["fc1_weight"].asnumpy()
        mod.fit(it, num_epoch=2, batch_end_callback=lambda param: seen.append((param.epoch, param.nbatch)))
        assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert (mod.get_params()[0]["fc1_weight"].asnumpy() != before).any()


def test_an_iterator_that_has_been_begun_goes_on():
    it = mx.io.NDArrayIter(*blobs(64), batch_size=16)
    next(it)
    seen = []
    mx.mod.Module(mlp()).fit(it, num_epoch=1, batch_end_callback=lambda param: seen.append(param.nbatch))
    assert seen == [0, 1, 2]


def test_an_epoch_without_a_batch_is_an_error():
    class Empty(mx.io.NDArrayIter):
        def iter_next(self):
            return False

    mod = mx.mod.Module(mlp())
    with pytest.raises(StateError, match=r"train_data has no batch in epoch 3, even after reset\(\)"):
        mod.fit(Empty(*blobs(32), batch_size=16), num_epoch=5, begin_epoch=3)


@pytest.mark.parametrize("contexts", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
def test_an_empty_batch_is_named(contexts):
    mod = mx.mod.Module(mlp(), context=contexts)
    full, empty = blobs(8), tuple(each[:0] for each in blobs(8))
    message = r"data has shape \(0, 6\): the batch is empty, expected at least one sample on axis 0"
    with pytest.raises(ShapeError, match=message):
        mod.fit([full, empty], num_epoch=1)
    batch = mx.io.DataBatch([mx.nd.from_numpy(empty[0])], [mx.nd.from_numpy(empty[1])])
    uses = (
        lambda: mod.forward(batch),
        lambda: mod.forward_backward(batch),
        lambda: mod.predict(empty[0]),
        lambda: mod.score([empty], "acc"),
        lambda: mod.reshape([("data", (0, 6))], [("softmax_label", (0,))]),
        lambda: mx.mod.Module(mlp(), context=contexts).bind([("data", (0, 6))]),
    )
    for use in uses:
        with pytest.raises(ShapeError, match=message):
            use()
    mod.fit([full], num_epoch=1)  # nothing has been broken


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "num_epoch is missing"), ({"num_epoch": 1, "on_nonfinite": "stop"}, "on_nonfinite is 'stop'")],
)
def test_fit_refuses_bad_options(options, message):
    with pytest.raises(ArgumentError, match=message):
        mx.mod.Module(mlp()).fit(mx.io.NDArrayIter(*blobs(), batch_size=16), **options)


def test_ctrl_c_ends_at_a_batch_and_leaves_the_module_usable():
    mod = mx.mod.Module(mlp())
    it = mx.io.NDArrayIter(*blobs(), batch_size=8)
    done = []

    def press(param):
        done.append(param.nbatch)
        if len(done) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        mod.fit(it, num_epoch=1, batch_end_callback=press)
    assert done == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before
    it.reset()
    mod.fit(it, num_epoch=1)
    assert np.isfinite(mod.predict(it).asnumpy()).all()


def test_fit_works_outside_the_main_thread():
    mod, errors = mx.mod.Module(mlp(), context=TWO), []

    def work():
        try:
            mod.fit(mx.io.NDArrayIter(*blobs(), batch_size=16), num_epoch=1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
    assert mod.optimizer_initialized


def test_an_error_in_a_context_reaches_the_caller_and_names_the_node():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(mx.sym.Reshape(net, shape=(8, 3), name="fixed"), name="softmax")
    mod = mx.mod.Module(net)
    mod.bind([("data", (8, 5))], [("softmax_label", (8,))])
    mod.init_params()
    small = mx.io.DataBatch([mx.nd.zeros((4, 5))], [mx.nd.zeros((4,))])
    with pytest.raises(mx.MXNetError, match="fixed"):
        mod.forward(small)


def test_monitor_shows_operators_and_changes_nothing():
    data = blobs(16)
    it = mx.io.NDArrayIter(*data, batch_size=16)
    net, names = mlp(), []
    values = start_values(net, (16, 6))

    class Spy:
        def install(self, executor):
            executor.set_monitor_callback(lambda name, array: names.append(name))

        def tic(self):
            names.append("tic")

        def toc_print(self):
            names.append("toc")

    plain, watched = mx.mod.Module(net), mx.mod.Module(net)
    plain.fit(it, num_epoch=1, optimizer_params=SGD, arg_params=values)
    it.reset()
    watched.fit(it, num_epoch=1, optimizer_params=SGD, arg_params=values, monitor=Spy())
    assert names == [
        "tic",
        *("fc1_output", "tanh1_output", "fc2_output", "softmax_output"),
        *("softmax_backward_output0", "softmax_backward_output1"),
        *(f"fc2_backward_output{i}" for i in range(3)),
        "tanh1_backward_output",
        *(f"fc1_backward_output{i}" for i in range(3)),
        "toc",
    ]
    for name, value in plain.get_params()[0].items():
        np.testing.assert_array_equal(watched.get_params()[0][name].asnumpy(), value.asnumpy())


class Terminal(io.StringIO):
    def isatty(self):
        return True


def fitted(stderr, monkeypatch, **options):
    """Return what `fit` writes to stderr in two epochs of three batches."""
    monkeypatch.setattr("sys.stderr", stderr)
    data = mx.io.NDArrayIter(*blobs(48), batch_size=16)
    mx.mod.Module(mlp()).fit(data, num_epoch=2, optimizer_params=SGD, **options)
    return stderr.getvalue()


def test_fit_shows_a_bar_in_a_terminal(monkeypatch):
    said = fitted(Terminal(), monkeypatch)
    for epoch in ("Epoch 0: 100%", "Epoch 1: 100%"):
        assert epoch in said
    assert "3/3" in said
    assert "accuracy=" in said


def test_fit_shows_a_bar_in_a_notebook(monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert "Epoch 1: 100%" in fitted(io.StringIO(), monkeypatch)


def test_the_bar_learns_how_many_batches_an_epoch_has(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*map(torch.from_numpy, blobs(48))), batch_size=16
    )
    mx.mod.Module(mlp()).fit(loader, num_epoch=2, optimizer_params=SGD)
    first, _, second = sys.stderr.getvalue().partition("Epoch 1")
    assert "3batch" in first
    assert "3/3" not in first
    assert "3/3" in second


@pytest.mark.parametrize(
    "options",
    [
        {"progress": False},
        {"dry_run": True},
        {"batch_end_callback": mx.callback.Speedometer(16, 100)},
        {"batch_end_callback": [mx.callback.ProgressBar(total=3)]},
        {"batch_end_callback": mx.callback.TqdmBar(disable=True)},
    ],
    ids=lambda options: f"{[*options][0]}-{type([*options.values()][0]).__name__}",
)
def test_fit_shows_no_bar_where_a_program_reports_progress_or_wants_none(options, monkeypatch):
    assert fitted(Terminal(), monkeypatch, **options) == ""


def test_fit_shows_no_bar_in_files_nor_within_another_bar(monkeypatch):
    assert fitted(io.StringIO(), monkeypatch) == ""
    monkeypatch.setenv("DPMODULE_PROGRESS", "0")
    assert fitted(Terminal(), monkeypatch) == ""
    monkeypatch.delenv("DPMODULE_PROGRESS")
    for _ in tqdm.tqdm(range(1), desc="outer", file=io.StringIO()):
        assert fitted(Terminal(), monkeypatch) == ""


def test_fit_shows_no_bar_on_ranks_other_than_0(monkeypatch):
    class OtherRank(Lockstep):
        def __init__(self, module):
            super().__init__(module)
            self.rank = 1

    monkeypatch.setattr("dpmodule.module.fit.Lockstep", OtherRank)
    assert fitted(Terminal(), monkeypatch) == ""
