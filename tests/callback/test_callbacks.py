"""Callbacks that `fit` tells where it stands: early stopping, tables, TensorBoard, averages, curves."""

import csv
import importlib
import math
import types

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.programs import TESTS, run_file
from helpers.small_fits import blobs, fixed, parameters, same, trained


class Told(mx.callback.Callback):
    """Notes what it is told; ends training after so many batches."""

    def __init__(self, last=None):
        self.told, self.last, self.steps = [], last, []

    def on_fit_begin(self, run):
        self.told.append("begin")

    def on_batch_end(self, run):
        self.told.append((run.epoch, run.nbatch, run.num_batches))
        self.steps.append((run.num_updates, parameters(run.module)))
        return run.num_batches == self.last

    def on_epoch_end(self, run):
        self.told.append(sorted(run.history.rows[-1]))

    def on_fit_end(self, run):
        self.told.append("end")


def test_a_callback_ends_training():
    _, history = trained(callbacks=Told(last=5))
    assert history.ended == "Told after batch 4 of epoch 0"


@pytest.mark.parametrize(
    ("values", "options", "epochs", "best"),
    [
        ([1, 2, 3, 2, 2, 2, 9], {"patience": 1}, 5, 2),
        ([3, 2, 1, 1, 1], {"patience": 1, "mode": "min"}, 5, 2),
        ([1.0, 1.05, 1.08, 1.2], {"patience": 1, "min_delta": 0.1}, 3, 0),
        ([math.nan, 1, 2, 3, 4], {"patience": 1}, 5, 4),
    ],
)
def test_training_ends_when_nothing_gets_better(values, options, epochs, best):
    stopping = mx.callback.EarlyStopping("train-fixed", **options)
    _, history = trained(96, eval_metric=fixed(*values), num_epoch=len(values), callbacks=stopping)
    assert (len(history), stopping.best_epoch) == (epochs, best)


def test_wrong_names_are_told_before_the_first_batch(tmp_path):
    class Never(mx.callback.Callback):
        def on_batch_end(self, run):
            raise AssertionError("a batch was trained on")

    name = "validation-acuracy"
    best = {"keep_best": 1, "metric": name}
    message = f"'{name}' will not be measured; the metrics will be train-accuracy, validation-accuracy; did you mean"
    for more, options in (
        ([mx.callback.EarlyStopping(name)], {}),
        ([mx.callback.LiveCurve(name)], {}),
        ([], {"checkpoint": mx.callback.Checkpoint(tmp_path / "a", **best)}),
        ([], {"epoch_end_callback": mx.callback.do_checkpoint(str(tmp_path / "b"), **best)}),
        ([], {"optimizer_params": {"lr_scheduler": mx.lr_scheduler.ReduceOnPlateau(name)}}),
    ):
        with pytest.raises(ArgumentError, match=message):
            trained(eval_data=blobs(), callbacks=[Never(), *more], **options)


def test_names_that_only_batches_tell_are_left_alone():
    late = types.SimpleNamespace(reset=lambda: None, update=lambda *_: None, compute=lambda: {"late": 1.0})
    divides = mx.metric.CustomMetric(lambda label, pred: 1.0, "mean")
    divides.get = lambda: ("mean", divides.sum_metric / divides.num_inst)
    for metric, name in ((["acc", late], "train-late"), (divides, "train-mean")):
        _, history = trained(eval_metric=metric, callbacks=mx.callback.EarlyStopping(name))
        assert len(history[name]) == 2


# files


def test_a_table_of_what_was_measured(tmp_path):
    path = tmp_path / "run.csv"
    _, history = trained(callbacks=mx.callback.CSVLogger(path), eval_data=blobs(), eval_every_n_batches=6)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "batch", "time_s", "validation-accuracy", "train-accuracy"]
    assert [float(row["validation-accuracy"]) for row in rows] == history["validation-accuracy"]
    found = [float(row["train-accuracy"] or -1) for row in rows]
    assert found == pytest.approx([each for value in history["train-accuracy"] for each in (-1, value)])


def scalars(folder, name):
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder)).Reload().Scalars(name)
    return [each.step for each in found], [each.value for each in found]


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_was_written(tmp_path):
    metrics = mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path / "b"), prefix="mine")
    _, history = trained(callbacks=[mx.callback.TensorBoard(tmp_path / "a")], batch_end_callback=metrics)
    assert scalars(tmp_path / "a", "train-accuracy") == ([12, 24], pytest.approx(history["train-accuracy"]))
    assert scalars(tmp_path / "b", "mine-accuracy")[0] == list(range(1, 25))


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_goes_on_where_a_run_was_broken_off(tmp_path):
    options = {"eval_data": blobs(), "eval_every_n_batches": 5, "checkpoint": tmp_path / "run"}
    for number in (1, 2, 3):
        board = mx.callback.TensorBoard(tmp_path / "log")
        _, history = trained(callbacks=board, num_epoch=number, resume="auto", **options)
    wanted = list(map(np.float32, history["validation-accuracy"]))
    assert scalars(tmp_path / "log", "validation-accuracy") == ([5, 10, 12, 17, 22, 24, 29, 34, 36], wanted)


# averages


def test_batches_that_only_add_up_leave_the_average_alone():
    told = Told()
    module, _ = trained(callbacks=[told, mx.callback.EMA(0.5)], accumulate=5, num_epoch=1)
    assert [number for number, _ in told.steps] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3]
    first, second, third = (told.steps[i][1]["hidden_weight"] for i in (4, 9, 11))
    wanted = 0.5 * (0.5 * first + 0.5 * second) + 0.5 * third
    np.testing.assert_allclose(parameters(module)["hidden_weight"], wanted, rtol=1e-5)


def test_the_average_may_be_left_apart():
    average = mx.callback.EMA(0.5, every_n_batches=4, use=False)
    module, _ = trained(callbacks=average)
    same(module, trained()[0])
    last = parameters(module)
    assert average.arg_params.keys() == last.keys()
    assert not np.array_equal(average.arg_params["hidden_weight"].asnumpy(), last["hidden_weight"])


def test_curves_are_drawn_in_notebooks_only():
    """One growing picture, and the history's own."""
    _, history = trained(callbacks=mx.callback.LiveCurve("train-accuracy"))
    assert len(history) == 2
    done = run_file(TESTS / "programs" / "notebook_curves.py")
    assert done.returncode == 0, done.stderr
    first, *more, last = done.stdout.splitlines()[-4:]
    assert "image/png" in first
    assert "False" in first
    assert all("True" in each and each.partition("{")[2] == first.partition("{")[2] for each in more)
    assert "image/png" in last
    assert last.endswith("None") or last.endswith("{}")


@pytest.mark.parametrize("place", ["callbacks", "batch_end_callback", "epoch_end_callback"])
def test_a_callback_is_told_of_everything(place):
    told = Told()
    trained(32, **{place: [told]})
    columns = ["batch", "epoch", "time_s", "train-accuracy"]
    first = [(0, 1, 1), (0, 2, 2), (0, 3, 3), columns]
    assert told.told == ["begin", *first, (1, 1, 4), (1, 2, 5), (1, 3, 6), columns, "end"]


def test_an_average_without_decay_is_the_last_step_and_its_state_moves_to_another():
    average, other = mx.callback.EMA(0), mx.callback.EMA()
    module, _ = trained(callbacks=average)
    same(average.arg_params, module.get_params()[0])
    other.load_state_dict(average.state_dict())
    same(other.arg_params, average.arg_params)
