import io
import logging
import sys
import threading
import types

import numpy as np
import pytest
import torch
import tqdm

import dpmodule as mx
from dpmodule.base import ShapeError, StateError
from dpmodule.module.lockstep import Lockstep
from helpers.nets import blobs, mlp
from helpers.small_fits import TWO, both_contexts, parameters, same

SGD = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.001}


def batches(count=48, size=16):
    return mx.io.NDArrayIter(*blobs(count), batch_size=size)


def fitted(data, net=None, contexts=None, workload=None, **options):
    """Return a module that has been trained from values that do not depend on the contexts."""
    mx.random.seed(5)
    mod = mx.mod.Module(mlp() if net is None else net, context=contexts, work_load_list=workload)
    known = {"num_epoch": 2, "optimizer_params": SGD, "initializer": mx.init.Uniform(0.3)}
    mod.fit(data, **{**known, **options})
    return mod


@pytest.mark.parametrize("kvstore", ["local", "device"])
def test_one_two_and_uneven_contexts_give_the_same_parameters(kvstore):
    for workload in (None, [1, 3]):
        same(fitted(batches(), None, TWO, workload, kvstore=kvstore), fitted(batches()), 1e-5)


def test_fit_over_contexts_binds_again_and_keeps_parameters():
    """The optimizer's states survive, too."""
    moved = fitted(batches())
    moved.fit(batches(), contexts=TWO, begin_epoch=2, num_epoch=3)
    moved.fit(batches(), contexts=[mx.cpu(0)], begin_epoch=3, num_epoch=4)
    assert moved.group.contexts == [mx.cpu(0)]
    same(moved, fitted(batches(), num_epoch=4), 1e-5)


def loader(count=48):
    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, blobs(count)))
    return torch.utils.data.DataLoader(dataset, batch_size=16)


def pairs():
    return [*zip(*(each.reshape(3, 16, *each.shape[1:]) for each in blobs(48)))]


SOURCES = {
    "DataLoader": loader,
    "pairs": pairs,
    "dicts": lambda: [{"data": x, "softmax_label": y} for x, y in pairs()],
    "DataBatch": lambda: [mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)]) for x, y in pairs()],
}


@pytest.mark.parametrize("source", SOURCES)
@both_contexts
def test_fit_takes_any_source_of_batches(source, contexts):
    same(fitted(SOURCES[source](), contexts=contexts), fitted(batches(), contexts=contexts))


def test_padding_counts_only_if_asked_for():
    mod, data = fitted(batches(10, size=4), contexts=TWO), batches(10, size=4)
    right = mod.predict(data).asnumpy().argmax(1) == blobs(10)[1]
    assert (len(right), dict(mod.score(data, "acc"))["accuracy"]) == (10, pytest.approx(right.mean()))
    padded = np.append(right, right[:2])
    assert dict(mod.score(data, "acc", count_padding=True))["accuracy"] == pytest.approx(padded.mean())


def test_an_output_that_trains_nothing_may_be_non_finite():
    """A cross entropy shown beside the loss, as face recognition programs have it, is NaN where 0 * log(0) is."""
    net = mlp()
    net = mx.sym.Group([net, mx.sym.BlockGrad(mx.sym.log(mx.sym.zeros_like(net)) * 0)])
    metric = mx.metric.Accuracy(output_names=["softmax_output"], label_names=["softmax_label"])
    mod = fitted(batches(32), net, eval_metric=metric)
    assert np.isnan(mod.get_outputs()[1].asnumpy()).all()
    assert all(np.isfinite(value).all() for value in parameters(mod).values())


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
        return (tuple if self.kind is tuple else list)(["a", "b"]), self.kind(values)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_a_metric_of_several_names_logs_each(kind, caplog):
    caplog.set_level(logging.INFO)
    own = Several("own")
    own.kind = kind  # what it returns its values in
    lines = [mx.callback.Speedometer(16, 1), mx.callback.log_train_metric(1, auto_reset=True)]
    options = {"eval_data": batches(32), "eval_metric": own, "num_epoch": 1, "batch_end_callback": lines}
    mod = fitted(batches(32), eval_end_callback=mx.callback.LogValidationMetricsCallback(), **options)
    for text in ("Epoch[0] Train-", "Epoch[0] Validation-", "Iter[0] Batch[0] Train-"):
        for value in ("a=1.000000", "b=2.000000"):
            assert any(line.startswith(text + value) for line in caplog.messages), text + value
    assert "\ta=" in caplog.text
    assert mod.score(batches(32), own) == own.get_name_value() == [("a", 1.0), ("b", 2.0)]
    assert mod.score(batches(32), [own, "acc"])[:2] == [("a", 1.0), ("b", 2.0)]


def test_an_iterator_that_is_at_its_end_begins_anew():
    it = batches(32)
    mod, seen = fitted(it), []
    for use in (lambda: mod.score(it, "acc"), lambda: list(it), lambda: mod.predict(it)):
        use()
        seen.clear()
        before = parameters(mod)["fc1_weight"]
        mod.fit(it, num_epoch=2, batch_end_callback=lambda param: seen.append((param.epoch, param.nbatch)))
        assert seen == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert (parameters(mod)["fc1_weight"] != before).any()
    it = batches(64)
    next(it)  # one that has been begun goes on
    seen.clear()
    mod.fit(it, num_epoch=1, batch_end_callback=lambda param: seen.append(param.nbatch))
    assert seen == [0, 1, 2]


def test_an_epoch_without_a_batch_is_an_error():
    empty = batches(32)
    empty.iter_next = lambda: False
    with pytest.raises(StateError, match=r"train_data has no batch in epoch 3, even after reset\(\)"):
        fitted(empty, num_epoch=5, begin_epoch=3)


@both_contexts
def test_an_empty_batch_is_named(contexts):
    mod = mx.mod.Module(mlp(), context=contexts)
    full, empty = blobs(8), tuple(each[:0] for each in blobs(8))
    batch = mx.io.DataBatch([mx.nd.from_numpy(empty[0])], [mx.nd.from_numpy(empty[1])])
    words = r"data has shape \(0, 6\): the batch is empty, expected at least one sam"
    for use in (
        lambda: mod.fit([full, empty], num_epoch=1),
        lambda: mod.forward(batch),
        lambda: mod.predict(empty[0]),
        lambda: mx.mod.Module(mlp(), context=contexts).bind([("data", (0, 6))]),
    ):
        with pytest.raises(ShapeError, match=words):
            use()
    mod.fit([full], num_epoch=1)  # nothing has been broken


def test_fit_works_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(fitted(batches(), contexts=TWO)))
    thread.start()
    thread.join()
    same(found[0], fitted(batches(), contexts=TWO))


def test_monitor_shows_operators_and_changes_nothing():
    names = []

    spy = types.SimpleNamespace(
        install=lambda each: each.set_monitor_callback(lambda name, array: names.append(name)),
        tic=lambda: names.append("tic"),
        toc_print=lambda: names.append("toc"),
    )
    same(fitted(batches(16), num_epoch=1, monitor=spy), fitted(batches(16), num_epoch=1))
    back = {"softmax": 2, "fc2": 3, "tanh1": 1, "fc1": 3}
    backward = [f"{n}_backward_output{i if k > 1 else ''}" for n, k in back.items() for i in range(k)]
    assert names == ["tic", "fc1_output", "tanh1_output", "fc2_output", "softmax_output", *backward, "toc"]


# the bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def said(monkeypatch):
    """Return a function that returns what `fit` writes to stderr in two epochs of three batches."""

    def call(stderr=Terminal, data=batches, **options):
        monkeypatch.setattr("sys.stderr", stderr())
        fitted(data(), **options)
        return sys.stderr.getvalue()

    return call


def test_fit_shows_a_bar_in_a_terminal_and_in_a_notebook(said, monkeypatch):
    text = said()
    assert all(part in text for part in ("Epoch 0: 100%", "Epoch 1: 100%", "3/3", "accuracy="))
    first, _, second = said(data=loader).partition("Epoch 1")  # it learns how many batches there are
    assert ("3batch" in first, "3/3" in first, "3/3" in second) == (True, False, True)
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert "Epoch 1: 100%" in said(io.StringIO)


NO_BAR = {"progress": False}, {"dry_run": True}, {"stderr": io.StringIO}


@pytest.mark.parametrize("options", [*NO_BAR, {"batch_end_callback": [mx.callback.ProgressBar(total=3)]}])
def test_fit_shows_no_bar_where_a_program_reports_progress_or_wants_none(options, said):
    assert said(**options) == ""


def test_fit_shows_no_bar_within_another_bar_nor_on_ranks_other_than_0(said, monkeypatch):
    for _ in tqdm.tqdm(range(1), desc="outer", file=io.StringIO()):
        assert said() == ""
    with monkeypatch.context() as patch:
        patch.setenv("DPMODULE_PROGRESS", "0")
        assert said() == ""

    def other_rank(module):
        found = Lockstep(module)
        found.rank = 1
        return found

    monkeypatch.setattr("dpmodule.module.fit.Lockstep", other_rank)
    assert said() == ""
