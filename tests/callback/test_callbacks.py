"""Callbacks that `fit` tells where it stands: early stopping, tables, TensorBoard, averages, curves."""

import csv
import importlib
import math

import numpy as np
import pandas
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.programs import run_program
from helpers.small_fits import blobs, parameters, trained


class Fixed(mx.metric.EvalMetric):
    """A metric whose values are given."""

    def __init__(self, values):
        self.values = list(values)
        super().__init__("fixed")

    def update(self, labels, preds):
        pass

    def get_global_name_value(self):
        return [("fixed", self.values.pop(0))]


class Told(mx.callback.Callback):
    def __init__(self):
        self.told = []

    def on_fit_begin(self, run):
        self.told.append("begin")

    def on_batch_end(self, run):
        self.told.append((run.epoch, run.nbatch, run.num_batches))

    def on_epoch_end(self, run):
        self.told.append(sorted(run.history.rows[-1]))

    def on_fit_end(self, run):
        self.told.append("end")


@pytest.mark.parametrize("place", ["callbacks", "batch_end_callback", "epoch_end_callback"])
def test_a_callback_is_told_of_everything(place):
    told = Told()
    trained(32, **{place: [told]})
    columns = ["batch", "epoch", "time_s", "train-accuracy"]
    first = [(0, 1, 1), (0, 2, 2), (0, 3, 3), columns]
    assert told.told == ["begin", *first, (1, 1, 4), (1, 2, 5), (1, 3, 6), columns, "end"]


def test_a_callback_ends_training():
    class Stop(mx.callback.Callback):
        def on_batch_end(self, run):
            return run.num_batches == 5

    _, history = trained(callbacks=Stop())
    assert history.ended == "Stop after batch 4 of epoch 0"


# early stopping


@pytest.mark.parametrize(
    ("values", "options", "epochs", "best"),
    [
        ([1, 2, 3, 2, 2, 2, 9], {"patience": 1}, 5, 2),
        ([1, 2, 3, 2, 2, 2, 9], {"patience": 0}, 4, 2),
        ([3, 2, 1, 1, 1], {"patience": 1, "mode": "min"}, 5, 2),
        ([1.0, 1.05, 1.08, 1.2], {"patience": 1, "min_delta": 0.1}, 3, 0),
        ([math.nan, 1, 2, 3, 4], {"patience": 1}, 5, 4),
    ],
)
def test_training_ends_when_nothing_gets_better(values, options, epochs, best):
    stopping = mx.callback.EarlyStopping("train-fixed", **options)
    _, history = trained(96, eval_metric=Fixed(values), num_epoch=len(values), callbacks=stopping)
    assert (len(history), stopping.best_epoch) == (epochs, best)


def test_losses_are_to_get_smaller():
    stopping = mx.callback.EarlyStopping("validation-cross-entropy", patience=0)
    _, history = trained(eval_data=blobs(), eval_metric="ce", callbacks=stopping, num_epoch=4)
    assert len(history) == 4


def test_the_best_parameters_come_back():
    saved = []
    stopping = mx.callback.EarlyStopping("train-fixed", patience=1, restore_best=True)

    def keep(epoch, symbol, args, states):
        saved.append(args["hidden_weight"].asnumpy())

    module, _ = trained(
        96, eval_metric=Fixed([1, 5, 2, 2]), num_epoch=4, callbacks=stopping, epoch_end_callback=keep
    )
    assert len(saved) == 4
    np.testing.assert_array_equal(parameters(module)["hidden_weight"], saved[1])


def test_early_stopping_refuses():
    with pytest.raises(ArgumentError, match="mode is 'best', expected one of auto, min, max"):
        mx.callback.EarlyStopping("train-accuracy", mode="best")
    with pytest.raises(ArgumentError, match="patience is -1"):
        mx.callback.EarlyStopping("train-accuracy", patience=-1)
    with pytest.raises(ArgumentError, match="min_delta is -1"):
        mx.callback.EarlyStopping("train-accuracy", min_delta=-1)
    with pytest.raises(ArgumentError, match="'accuracy' will not be measured; the metrics will be train-acc"):
        trained(callbacks=mx.callback.EarlyStopping("accuracy"))


def test_wrong_names_are_told_before_the_first_batch(tmp_path):
    class Never(mx.callback.Callback):
        def on_batch_end(self, run):
            raise AssertionError("a batch was trained on")

    name = "validation-acuracy"
    best = {"keep_best": 1, "metric": name}
    message = f"'{name}' will not be measured; the metrics will be train-accuracy, validation-accuracy; did you mean"
    for options in (
        {"callbacks": [Never(), mx.callback.EarlyStopping(name)]},
        {"callbacks": Never(), "checkpoint": mx.callback.Checkpoint(tmp_path / "a", **best)},
        {"callbacks": Never(), "epoch_end_callback": mx.callback.do_checkpoint(str(tmp_path / "b"), **best)},
        {"callbacks": Never(), "optimizer_params": {"lr_scheduler": mx.lr_scheduler.ReduceOnPlateau(name)}},
    ):
        with pytest.raises(ArgumentError, match=message):
            trained(eval_data=blobs(), **options)


def test_names_that_only_batches_tell_are_left_alone():
    class Late:
        def reset(self):
            pass

        def update(self, preds, target):
            pass

        def compute(self):
            return {"late": 1.0}

    class Divides(mx.metric.EvalMetric):
        def get(self):
            return "mean", self.sum_metric / self.num_inst

        def update(self, labels, preds):
            self.sum_metric += 1
            self.num_inst += 1
            self.global_sum_metric += 1
            self.global_num_inst += 1

    for metric, name in ((["acc", Late()], "train-late"), (Divides("mean"), "train-mean")):
        _, history = trained(eval_metric=metric, callbacks=mx.callback.EarlyStopping(name))
        assert len(history[name]) == 2


def test_functions_are_no_callbacks():
    with pytest.raises(ArgumentError, match="callbacks has .*Speedometer.*pass functions, and MXNet's"):
        trained(callbacks=[mx.callback.EMA(0.5), mx.callback.Speedometer(8)])


# files


def test_a_table_of_what_was_measured(tmp_path):
    path = tmp_path / "run.csv"
    _, history = trained(
        callbacks=mx.callback.CSVLogger(path), eval_data=blobs(), eval_every_n_batches=6, num_epoch=2
    )
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "batch", "time_s", "validation-accuracy", "train-accuracy"]
    assert [float(row["validation-accuracy"]) for row in rows] == history["validation-accuracy"]
    assert [row["train-accuracy"] == "" for row in rows] == [True, False, True, False]


def test_pandas_reads_the_table(tmp_path):
    path = tmp_path / "run.csv"
    _, history = trained(callbacks=[mx.callback.CSVLogger(path)], num_epoch=3)
    assert pandas.read_csv(path)["train-accuracy"].tolist() == pytest.approx(history["train-accuracy"])


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_was_written(tmp_path):
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    metrics = mx.contrib.tensorboard.LogMetricsCallback(str(tmp_path / "b"), prefix="mine")
    _, history = trained(
        callbacks=[mx.callback.TensorBoard(tmp_path / "a")], batch_end_callback=metrics, num_epoch=3
    )
    events = accumulator.EventAccumulator(str(tmp_path / "a")).Reload()
    found = events.Scalars("train-accuracy")
    assert [each.value for each in found] == pytest.approx(history["train-accuracy"])
    assert [each.step for each in found] == [12, 24, 36]
    events = accumulator.EventAccumulator(str(tmp_path / "b")).Reload()
    assert [each.step for each in events.Scalars("mine-accuracy")] == list(range(1, 37))


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_goes_on_where_a_run_was_broken_off(tmp_path):
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    for number in (1, 2, 3):
        _, history = trained(
            callbacks=mx.callback.TensorBoard(tmp_path / "log"),
            eval_data=blobs(),
            eval_every_n_batches=5,
            checkpoint=tmp_path / "run",
            resume="auto",
            num_epoch=number,
        )
    events = accumulator.EventAccumulator(str(tmp_path / "log")).Reload()
    found = [(each.step, each.value) for each in events.Scalars("validation-accuracy")]
    steps = [5, 10, 12, 17, 22, 24, 29, 34, 36]
    assert found == list(zip(steps, map(np.float32, history["validation-accuracy"])))


# averages


def test_the_average_is_torchs():
    steps = []

    class Seen(mx.callback.Callback):
        def on_batch_end(self, run):
            steps.append(parameters(run.module))

    average = mx.callback.EMA(0.9)
    module, _ = trained(callbacks=[Seen(), average])
    model = torch.nn.ParameterDict({name: torch.from_numpy(value) for name, value in steps[0].items()})
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    with torch.no_grad():
        for step in steps:
            for name, value in step.items():
                model[name].copy_(torch.from_numpy(value))
            averaged.update_parameters(model)
    for name, value in parameters(module).items():
        np.testing.assert_allclose(value, averaged.module[name].detach().numpy(), rtol=1e-5, atol=1e-6)


def test_batches_that_only_add_up_leave_the_average_alone():
    steps = []

    class Seen(mx.callback.Callback):
        def on_batch_end(self, run):
            steps.append((run.num_updates, parameters(run.module)["hidden_weight"]))

    module, _ = trained(callbacks=[Seen(), mx.callback.EMA(0.5)], accumulate=5, num_epoch=1)
    assert [number for number, _ in steps] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3]
    first, second, third = steps[4][1], steps[9][1], steps[11][1]
    wanted = 0.5 * (0.5 * first + 0.5 * second) + 0.5 * third
    np.testing.assert_allclose(parameters(module)["hidden_weight"], wanted, rtol=1e-5)


def test_the_average_may_be_left_apart():
    average = mx.callback.EMA(0.5, every_n_batches=4, use=False)
    module, _ = trained(callbacks=average)
    plain, _ = trained()
    last = parameters(module)
    np.testing.assert_array_equal(last["hidden_weight"], parameters(plain)["hidden_weight"])
    assert average.arg_params.keys() == last.keys()
    assert not np.array_equal(average.arg_params["hidden_weight"].asnumpy(), last["hidden_weight"])
    with pytest.raises(ArgumentError, match="decay is 1"):
        mx.callback.EMA(1)


def test_nothing_is_drawn_outside_of_notebooks():
    _, history = trained(callbacks=mx.callback.LiveCurve("train-accuracy"))
    assert len(history) == 2
    with pytest.raises(ArgumentError, match="'accuracy' will not be measured"):
        trained(callbacks=mx.callback.LiveCurve("accuracy"))


CELL = """
import dpmodule as mx
from helpers.small_fits import trained
_, history = trained(num_epoch=3, callbacks=mx.callback.LiveCurve())
history.plot("train-accuracy")
"""
NOTEBOOK = """
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from matplotlib_inline.backend_inline import configure_inline_support
import matplotlib
BACKEND = "module://matplotlib_inline.backend_inline"
shell = InteractiveShell.instance()
shell.display_pub = CapturingDisplayPublisher()
matplotlib.use(BACKEND)
matplotlib.interactive(True)
configure_inline_support(shell, BACKEND)
shell.run_cell(CELL).raise_error()
for each in shell.display_pub.outputs:
    print(sorted(each["data"]), each.get("update"), each.get("transient"))
"""


def test_a_notebook_shows_one_growing_picture_and_the_history():
    done = run_program(NOTEBOOK.replace("CELL", repr(CELL)))
    assert done.returncode == 0, done.stderr
    first, *more, last = done.stdout.splitlines()[-4:]
    assert "image/png" in first
    assert "False" in first
    assert all("True" in each and each.partition("{")[2] == first.partition("{")[2] for each in more)
    assert "image/png" in last
    assert last.endswith("None") or last.endswith("{}")
