"""Runs that are broken off and go on: bit for bit those that were never broken off."""

import inspect
import logging
import os
import random
import signal
from functools import partial

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError, NonFiniteError, StateError
from dpmodule.checkpoint import run_format
from dpmodule.ndarray import safetensors
from helpers import datasets, resumable
from helpers.small_fits import TWO, blobs, classifier, fixed, ready, same

# Python 3.12 warns of what forked workers do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch):
    """Leave out what only a loss of power would show, and takes most of the time of saving."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


class Killed(Exception):
    pass


def killed_at(batch):
    """Return a callback that raises after so many batches of the whole run."""

    def count(param):
        if param.locals["run"].num_batches == batch:
            raise Killed

    return count


def points():
    return blobs(shuffle=True)


def dropping():
    return mx.mod.Module(classifier(dropout=0.3))


def run(tmp_path, make_data=points, kill=None, prefix="run", module=dropping, kind=None, **options):
    """Return a module and its history after training as a fresh process does it, which goes on from what is saved."""
    mx.random.seed_all(1234 if (tmp_path / f"{prefix}-symbol.json").exists() else 9)
    every = {"every_n_batches": options.pop("every", 5), "every_n_epochs": options.pop("every_n_epochs", 1)}
    module, data, own = resumable.KINDS[kind]() if kind else (module(), make_data(), {})
    known = {"num_epoch": 3, "initializer": mx.init.Xavier(), "optimizer_params": {"learning_rate": 0.1}}
    known |= {"eval_metric": ["acc", "ce"], "checkpoint": mx.callback.Checkpoint(tmp_path / prefix, **every)}
    known |= own | {k: v() if k in FRESH and inspect.isfunction(v) else v for k, v in options.items()}
    known.setdefault("resume", "auto")
    try:
        if kill is None:
            return module, module.fit(data, **known)
        with pytest.raises(Killed):
            module.fit(data, batch_end_callback=killed_at(kill), **known)
        return module, None
    finally:
        getattr(data, "close", lambda: None)()


FRESH = ("callbacks", "optimizer_params")
"""Options that functions make anew for each process."""


def rows_of(history):
    return [{key: value for key, value in row.items() if key != "time_s"} for row in history]


# data


def loader(**options):
    inner = blobs()
    dataset = torch.utils.data.TensorDataset(inner.data[0][1].torch(), inner.label[0][1].torch())
    return torch.utils.data.DataLoader(dataset, batch_size=8, **options)


class Plain(mx.io.DataIter):
    """An iterator of a program: shuffles in place, changes its rows at random, and says nothing of where it stands."""

    def __init__(self, shuffle, noise=lambda: 0.0, count=12):
        super().__init__(8)
        self.inner = blobs(count=8 * count)
        self.provide_data, self.provide_label = self.inner.provide_data, self.inner.provide_label
        self.rows, self.classes = (each[0][1].asnumpy() for each in (self.inner.data, self.inner.label))
        self.order, self.at = np.arange(8 * count), 0
        self.shuffle, self.noise = shuffle, noise

    def reset(self):
        self.at = 0
        self.shuffle(self.order)

    def next(self):
        if self.at == len(self.order):
            raise StopIteration
        part, self.at = self.order[self.at : self.at + 8], self.at + 8
        data, label = mx.nd.array(self.rows[part] + self.noise()), mx.nd.array(self.classes[part])
        return mx.io.DataBatch([data], [label])


class Endless(Plain):
    """Goes on reading one Python generator over all epochs."""

    def __init__(self):
        super().__init__(lambda order: None)
        source = np.random.default_rng(5)
        self.parts = (part for _ in range(99) for part in source.permutation(96).reshape(12, 8))

    def next(self):
        if self.at < 96:
            self.order[self.at : self.at + 8] = next(self.parts)
        return super().next()


def held_by_a_closure():
    source = np.random.RandomState(5)
    return Plain(lambda order: source.shuffle(order), lambda: source.standard_normal() / 9)


def held_by_a_method(**part):
    return Plain(lambda order: order.sort(), random.Random(5).random)


def of_globals():
    def noise():
        return torch.rand(1).item() + mx.nd.random.normal().asscalar()

    return Plain(lambda order: np.random.shuffle(order), noise)


def regression():
    net = mx.sym.FullyConnected(mx.sym.Dropout(mx.sym.Variable("data"), p=0.1), num_hidden=1, name="f")
    return mx.mod.Module(mx.sym.LinearRegressionOutput(net, name="softmax"))


def compressed(threshold=0.05):
    params = {"type": "2bit", "threshold": threshold}
    return mx.mod.Module(classifier(), context=TWO, compression_params=params)


def stopping(**options):
    return mx.callback.EarlyStopping("train-fixed", patience=1, mode="max", **options)


OWN = {"every": 2, "num_epoch": 2}
SLOW = {"eval_metric": "mse", "optimizer_params": {"learning_rate": 1e-4}}
DRAWN = {**SLOW, "num_epoch": 2, "module": regression}
CODES = {"module": compressed, "kvstore": "device"}
ROLLING = partial(resumable.some_points, last_batch_handle="roll_over")
# batches after which it is killed, data, options; see also `resumable.KINDS`, and tests/io/test_state.py for iterators
RUNS = {
    **{kind: ((3, 7, 14, 20), None, {"kind": kind}) for kind in resumable.KINDS},
    "any batch": (range(1, 37, 4), points, {"every": 3}),
    "compression": ((7,), points, CODES),
    "average of updates": ((7, 15), points, {"callbacks": lambda: mx.callback.EMA(0.8), "accumulate": 3}),
    "rolled over after the last batch was saved": ((15,), lambda: ROLLING(0, 1), {"every": 11, "every_n_epochs": 9}),
    "dataset and workers": ((4, 13), lambda: mx.io.DataLoaderIter(
        datasets.Drawn(40), batch_size=4, num_workers=2, start_method="fork", shuffle=True), DRAWN),
    # killed twice within an epoch, and at the beginning of one
    **{f"own data {name}": ((6, 8, 13, 22), make, OWN) for name, make in {
        "of a closure": held_by_a_closure,
        "of globals": of_globals,
        "of a generator": lambda: loader(shuffle=True, generator=torch.Generator().manual_seed(5)),
        "of workers": lambda: mx.io.ProcessPrefetchingIter(held_by_a_method, 1, start_method="fork")}.items()},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:learning_rate")
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_ends_in_the_same_bits(name, tmp_path, caplog):
    """A run killed after some batches, again and again, ends in the bits of one that was never killed."""
    caplog.set_level(logging.INFO)
    kills, make_data, options = RUNS[name]
    whole, history = run(tmp_path, make_data, prefix="whole", **options)
    for kill in kills:
        run(tmp_path, make_data, kill=kill, prefix="killed", **options)
    again, found = run(tmp_path, make_data, prefix="killed", **options)
    same(whole, again)
    assert rows_of(found) == rows_of(history)
    silent = "the iterators of the workers do not save their position" in caplog.text
    assert silent == (name == "own data of workers")


def test_no_optimizer_becomes_another_by_training(tmp_path):
    # for matrices only; made with arguments
    others = ["groupadagrad", "test", "torchoptimizer", "_svrgoptimizer"]
    for name in sorted(mx.optimizer.Optimizer.opt_registry.keys() - {*others}):
        module = mx.mod.Module(classifier(2))
        for last in (1, 2):
            options = {"optimizer": name, "num_epoch": last, "checkpoint": tmp_path / name, "resume": "auto"}
            assert len(module.fit(blobs(count=16), **options)) == last, name


class Drawing:
    """A callback that draws random numbers of all kinds, and changes parameters by them."""

    def __init__(self):
        self.own = [random.Random(3), np.random.default_rng(3)]

    def __call__(self, *args):
        value = sum(each.random() for each in [*self.own, random, np.random]) + torch.rand(1).item()
        module = getattr(args[0], "locals", {}).get("run") and args[0].locals["module"]
        if module:
            weights, states = module.get_params()
            module.set_params({name: weight + value / 99 for name, weight in weights.items()}, states)


def drawing_metric():
    own = np.random.RandomState(3)
    return mx.metric.CustomMetric(lambda label, pred: own.rand() + np.random.rand(), "drawing")


def test_callbacks_and_metrics_that_draw_random_numbers(tmp_path):
    def options(*callbacks, evaluation=()):
        found = {name: [Drawing()] for name in ("epoch_end_callback", "eval_end_callback")}
        found |= {"batch_end_callback": [Drawing(), *callbacks], "eval_metric": ["acc", drawing_metric()]}
        found |= {"eval_batch_end_callback": [Drawing(), *evaluation], "eval_data": blobs(count=24)}
        return {**found, "num_epoch": 2, "every": 3}

    whole, history = run(tmp_path, prefix="whole", **options())
    for error, given in (
        (Killed, options(killed_at(5))),
        (KeyboardInterrupt, options(evaluation=[signal_at(2, signal.SIGINT)])),
        (Killed, options(killed_at(20))),
    ):
        with pytest.raises(error):
            run(tmp_path, **given)
    again, found = run(tmp_path, **options())
    same(whole, again)
    assert rows_of(found) == rows_of(history)
    with pytest.raises(StateError, match="drew random numbers from .*callbacks.*which is missing here"):
        run(tmp_path, eval_metric=["acc", drawing_metric()], eval_data=blobs(count=24))


def of_globals_from_the_start():
    data = of_globals()
    data.reset()
    return data


INEXACT = [
    (of_globals_from_the_start, 7, "it returns another batch at this position than before"),
    (lambda: Endless(), 13, "and parts cannot be restored on resume"),
    (lambda: loader(shuffle=True, num_workers=1, persistent_workers=True), 13, "and _iterator cannot be restored"),
    (lambda: mx.io.ResizeIter(of_globals(), 12), 7, "an iterator inside it, does not define state_dict"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kill", "words"), INEXACT)
def test_what_cannot_be_resumed_exactly_is_refused_before_it_trains(tmp_path, make, kill, words):
    run(tmp_path, make, kill=kill)
    batches = []
    with pytest.raises(StateError, match=words):
        run(tmp_path, make, batch_end_callback=batches.append)
    assert batches == []


def signal_at(count, number):
    """Return a callback that sends this process a signal when it has been called so many times."""
    left = iter(range(count - 1))

    def count_and_send(*_, sent=[]):  # noqa: B006 (it is to stay)
        if next(left, None) is None and not sent:
            sent.append(number)
            signal.raise_signal(number)

    return count_and_send


PLACES = {
    "the last batch": ("batch_end_callback", 12),
    "the end of an epoch": ("epoch_end_callback", 1),
    "evaluation": ("eval_batch_end_callback", 3),
    "the end of evaluation": ("eval_end_callback", 1),
    "the last epoch": ("eval_end_callback", 2),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_signal_between_batches(tmp_path, number):
    """What an epoch has come to is saved, and is not lost by what is evaluated, and evaluated again, after it."""
    options = {"module": resumable.of_contexts, "eval_data": points(), "num_epoch": 2}
    options |= {"every": 7, "every_n_epochs": 9}
    whole, history = run(tmp_path, prefix="whole", **options)
    handler = signal.getsignal(number)
    for place, (argument, count) in PLACES.items():
        with pytest.raises(SystemExit if number == signal.SIGTERM else KeyboardInterrupt) as error:
            run(tmp_path, **{**options, argument: signal_at(count, number)}, prefix=place)
        assert number == signal.SIGINT or error.value.code == 143
        assert signal.getsignal(number) is handler
        batches = []
        again, found = run(tmp_path, **options, batch_end_callback=batches.append, prefix=place)
        assert len(batches) == (0 if place == "the last epoch" else 12)
        same(whole, again)
        assert rows_of(found) == rows_of(history)


def test_the_best_parameters_come_back_over_resuming(tmp_path):
    best, _ = run(tmp_path, prefix="best", num_epoch=1)
    run(tmp_path, kill=20, eval_metric=fixed(9, 1, 2), callbacks=stopping(restore_best=True))
    again, _ = run(tmp_path, eval_metric=fixed(1, 2), callbacks=stopping(restore_best=True))
    same(best, again)


def test_what_a_callback_has_ended_stays_so(tmp_path):
    ended, history = run(tmp_path, eval_metric=fixed(5, 4, 3), num_epoch=9, callbacks=stopping())
    assert (len(history), history.ended) == (3, "EarlyStopping after epoch 2")
    again, history = run(tmp_path, eval_metric=fixed(), num_epoch=9, callbacks=stopping())
    assert (len(history), history.ended) == (3, "EarlyStopping before it was resumed")
    same(ended, again)
    patient = mx.callback.EarlyStopping("train-fixed", patience=3, mode="max")
    _, history = run(tmp_path, eval_metric=fixed(2, 1), num_epoch=9, callbacks=patient)
    assert len(history) == 5


def test_states_of_callbacks_find_their_owners(tmp_path, caplog):
    def options(*more):
        return {"eval_metric": fixed(1, 2, 3), "callbacks": [*more, mx.callback.EMA(0.9)]}

    whole, _ = run(tmp_path, prefix="whole", **options())
    run(tmp_path, kill=20, **options())
    with caplog.at_level(logging.INFO):
        again, _ = run(tmp_path, **options(stopping()))
    same(whole, again)
    assert "the run was saved without EarlyStopping, which starts from its initial state" in caplog.text


# ends before the last epoch


def test_limits_save_where_they_end_a_run(tmp_path):
    whole, _ = run(tmp_path, prefix="whole")
    for limit in (17, 24, 24, 30):
        _, history = run(tmp_path, max_batches=limit, every=None)
        assert history.ended == f"max_batches={limit}"
    same(whole, run(tmp_path)[0])
    for _ in range(2):
        _, history = run(tmp_path, prefix="timed", max_time_s=1e-9, every=None)
        assert history.ended == "max_time_s=1e-09"
    assert history.rows[-1]["batch"] == 2
    same(whole, run(tmp_path, prefix="timed")[0])


def poisoned(at, shuffle):
    """Points of which one is NaN, in some batch of each epoch."""
    inner = blobs()
    data = inner.data[0][1].asnumpy().copy()
    data[8 * at] = np.nan
    return mx.io.NDArrayIter(data, inner.label[0][1].asnumpy(), 8, shuffle)


@pytest.mark.parametrize(("at", "accumulate"), [(0, 1), (5, 3), (11, 1), (11, 3)])
def test_the_last_finite_state_is_saved(tmp_path, at, accumulate):
    options = {"make_data": lambda: poisoned(at, at == 5), "accumulate": accumulate, "num_epoch": 2}
    skipped, _ = run(tmp_path, prefix="skipped", on_nonfinite="skip", **options)
    for _ in range(2):
        before = contents(tmp_path, "run-0")
        with pytest.raises(NonFiniteError):
            run(tmp_path, every=None, **options)
        assert before.items() <= contents(tmp_path, "run-0").items()
        assert (tmp_path / "run-last.run").exists()
    same(skipped, run(tmp_path, **options)[0])


def test_a_spoilt_state_is_not_saved(tmp_path):
    module = ready(classifier(), shapes=(blobs().provide_data, blobs().provide_label))
    values = module.get_params()[0]
    module.set_params({**values, "scores_bias": values["scores_bias"] * np.nan}, {})
    with pytest.raises(NonFiniteError, match="not finite in scores_bias"):
        module.fit(blobs(), num_epoch=1, checkpoint=tmp_path / "a")
    assert contents(tmp_path) == {}


def test_a_dry_run_leaves_files_alone(tmp_path):
    run(tmp_path, num_epoch=1)
    before = contents(tmp_path)
    run(tmp_path, num_epoch=2, every=1, dry_run=True)
    assert contents(tmp_path) == before


# the files


def contents(folder, start=""):
    return {path.name: path.read_bytes() for path in folder.glob(f"{start}*")}


def test_epochs_that_are_kept(tmp_path):
    best = {"keep_best": 2, "metric": "train-fixed", "mode": "max"}
    checkpoint = mx.callback.Checkpoint(tmp_path / "a", keep_last=1, **best)
    metric = fixed(0.5, 0.9, 0.8, 0.7, 0.6)
    mx.mod.Module(classifier()).fit(blobs(), num_epoch=5, eval_metric=metric, checkpoint=checkpoint)
    sets = [f"a-{epoch:04d}.{ending}" for epoch in (2, 3, 5) for ending in ("params", "run", "states")]
    assert sorted(contents(tmp_path)) == [*sets, "a-symbol.json"]


SCHEDULES = {
    "a rate": lambda: {"learning_rate": 0.2},
    "a schedule": lambda: {"lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.5, base_lr=0.4)},
    "its like": lambda: {"lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.7, base_lr=0.4)},
    "another": lambda: {"lr_scheduler": mx.lr_scheduler.CosineScheduler(20, 0.3, final_lr=0.01)},
}


def test_another_learning_rate_or_schedule_is_taken_and_logged(tmp_path, caplog):
    """The run goes on as one whose optimizer was given the other rate at that moment."""

    def rates(prefix, name):
        found, options = [], {"prefix": prefix, "num_epoch": 2, "optimizer_params": SCHEDULES[name]}
        run(
            tmp_path,
            batch_end_callback=lambda p: found.append(p.locals["module"].optimizer.learning_rate),
            **options,
        )
        return found

    caplog.set_level(logging.INFO)
    wholes, names = {name: rates(name, name) for name in SCHEDULES}, [*SCHEDULES]
    for first, second in [*zip(names, names), *zip(names, names[1:] + names[:1]), ("another", "a schedule")]:
        caplog.clear()
        prefix = f"{first}, {second}"
        run(tmp_path, prefix=prefix, kill=12, num_epoch=2, optimizer_params=SCHEDULES[first])
        assert rates(prefix, second) == wholes[second][10:], prefix
        assert (" of the saved run becomes " in caplog.text) is (first != second), prefix


def test_a_run_that_was_begun_anew_is_the_newest(tmp_path):
    run(tmp_path, num_epoch=3)
    options = {"initializer": mx.init.Xavier(), "optimizer_params": {"learning_rate": 0.1}}
    module = mx.mod.Module(classifier(dropout=0.3))
    module.fit(points(), num_epoch=1, checkpoint=tmp_path / "run", **options)
    _, history = run(tmp_path, num_epoch=2, eval_metric="acc")
    assert [list(row) for row in history] == [["epoch", "batch", "time_s", "train-accuracy"]] * 2
    assert (tmp_path / "run-0003.run").exists()


def test_other_kernels_are_told(tmp_path, caplog):
    run(tmp_path, num_epoch=1)
    state = run_format.read(tmp_path / "run-0001.run")
    assert state["kernels"]["torch"] == torch.__version__
    state["kernels"]["instructions"], state["threads"] = "abacus", 99
    with (tmp_path / "run-0001.run").open("wb") as file:
        run_format.write(file, state)
    run(tmp_path, num_epoch=2)
    here = torch.backends.cpu.get_cpu_capability()
    assert f"with instructions: abacus, here {here}; with threads: 99, here" in caplog.text


def test_a_checkpoint_among_callbacks(tmp_path):
    mx.mod.Module(classifier()).fit(blobs(), num_epoch=1, callbacks=[mx.callback.Checkpoint(tmp_path / "a")])
    assert (tmp_path / "a-0001.run").exists()


def test_a_state_goes_on_under_another_prefix(tmp_path):
    whole, _ = run(tmp_path, prefix="whole")
    run(tmp_path, prefix="old", kill=13)
    again, _ = run(tmp_path, resume=str(tmp_path / "old"), checkpoint=None)
    same(whole, again)


@pytest.mark.parametrize("damage", ["foreign", "version", "text"])
def test_damaged_files_are_refused(tmp_path, damage):
    run(tmp_path, num_epoch=1)
    path = tmp_path / "run-0001.run"
    arrays, texts = safetensors.read(str(path))
    text = {"version": texts["run"].replace('"version": 2', '"version": 7'), "text": texts["run"][:-5]}
    with path.open("wb") as file:
        safetensors.write(file, arrays, {"run": text[damage]} if damage in text else {})
    (tmp_path / "run-last.run").unlink()
    before = contents(tmp_path)
    with pytest.raises(FileFormatError, match=r"run-0001.run.*remove the files .*run-0001.\*"):
        run(tmp_path)
    assert contents(tmp_path) == before


class Mute(Plain):
    """Says nothing of where it stands, and has so many batches."""

    num_data = 96

    def __init__(self, count):
        super().__init__(lambda order: None, count=count)


TYPO = "'train-acuracy' will not be measured; the metrics will be train-accuracy.*did you mean train-accuracy"
TWICE = "there are two checkpoints; a run is saved under one prefix"
MUTE = "cannot be resumed with this Mute: Mute does not define load_state_dict; pass the same data with the same seed"
STEPS = {"accumulate": 3, "clip_global_norm": 1.0}
FROZEN = partial(mx.mod.Module, classifier(dropout=0.3), fixed_param_names=["hidden_bias"], amp="bf16")
# options of the first run and of the second, error
REFUSED = [
    ({}, {"callbacks": lambda: mx.callback.EarlyStopping("train-acuracy")}, ArgumentError, TYPO),
    ({}, {"callbacks": lambda: mx.callback.Checkpoint("run")}, ArgumentError, TWICE),
    ({}, {"make_data": lambda: Mute(12)}, StateError, MUTE),
    ({"make_data": lambda: Mute(12), "every": 4}, {"make_data": lambda: Mute(3)}, StateError,
     "Mute: it has 3 batches, but the run was saved after . batches of an epoch"),
    ({}, {"optimizer": "adam", "make_data": lambda: blobs(count=60, batch_size=4)}, ArgumentError,
     "optimizer was .*SGD.* is .*Adam.*; the batch size was 8, is 4.*number of examples was 96, is 60"),
    ({}, {"module": lambda: mx.mod.Module(classifier(5))}, ArgumentError, r"'hidden_weight' was \[8, 2\], is \[5, 2\]"),
    ({}, {"module": lambda: mx.mod.Module(classifier(dropout=0.4))}, ArgumentError, "other operators or attributes"),
    ({}, {"eval_metric": "mse"}, ArgumentError,
     "the metric was accuracy, cross-entropy, is mse, which can be changed only at the start"),
    ({}, {"eval_metric": ["acc", mx.metric.CrossEntropy(1e-3)]}, ArgumentError,
     r"was Accuracy\(.*, is Accuracy\(.*CrossEntropy\({'eps': 0.001"),
    (STEPS, {"module": FROZEN, "accumulate": 2}, ArgumentError,
     r"the types of 16 bits \(amp\) was \[\], is \['bfloat16'\]; .*accumulate was 3, is 2; "
     "clip_global_norm was 1.0, is None"),
    (CODES, {**CODES, "module": partial(compressed, 0.5)}, ArgumentError,
     r"compression of gradients was \['2bit', 0.05\], is \['2bit', 0.5\]"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "kind", "words"), REFUSED)
def test_what_is_refused_leaves_the_good_checkpoint(tmp_path, first, second, kind, words):
    run(tmp_path, kill=18, **first)
    before = contents(tmp_path, "run-0"), set(contents(tmp_path))
    with pytest.raises(kind, match=words):
        run(tmp_path, **second)
    assert (contents(tmp_path, "run-0"), set(contents(tmp_path))) == before
    run(tmp_path, **first)
