"""Callbacks: the lines MXNet 1.9.1 writes, when they write, and the tqdm bar."""

import logging
import re

import pytest

import dpmodule as mx
from helpers.small_fits import blobs, classifier, fixed


class FakeMetric:
    """Counts resets; shows the pairs it is given."""

    def __init__(self, *pairs):
        self.pairs, self.resets = list(pairs), 0

    def get_name_value(self):
        return self.pairs

    def reset_local(self):
        self.resets += 1


def at(nbatch, metric=None, epoch=0):
    return mx.callback.BatchEndParam(epoch, nbatch, metric, None)


@pytest.fixture
def lines(caplog):
    """Return a function that calls a callback and returns the lines it writes, without the speed."""
    caplog.set_level(logging.INFO)

    def call(callback, *params):
        caplog.clear()
        for param in params:
            callback(param)
        return [re.sub(r"Speed: (\d+\.\d\d|inf) samples/sec", "Speed", text) for text in caplog.messages]

    return call


def test_speedometer_lines_are_mxnets(lines):
    metric = FakeMetric(("accuracy", 0.5), ("cross-entropy", 0.25))
    params = [*(at(n, metric) for n in range(7)), *(at(n, metric, epoch=1) for n in range(3))]
    places = ("Epoch[0] Batch [0-2]", "Epoch[0] Batch [2-4]", "Epoch[0] Batch [4-6]", "Epoch[1] Batch [0-2]")
    found = lines(mx.callback.Speedometer(10, frequent=2), *params)
    assert found == [f"{place}\tSpeed\taccuracy=0.500000\tcross-entropy=0.250000" for place in places]
    assert metric.resets == 4
    metric = FakeMetric(("accuracy", 0.5))  # without reset it counts from the start
    found = lines(mx.callback.Speedometer(10, 2, auto_reset=False), *(at(n, metric) for n in range(5)))
    assert found == [f"Epoch[0] Batch [0-{n}]\tSpeed\taccuracy=0.500000" for n in (2, 4)]
    assert metric.resets == 0
    found = lines(mx.callback.Speedometer(10, frequent=2), *(at(n, epoch=1) for n in range(3)))
    assert found == ["Iter[1] Batch [2]\tSpeed"]


@pytest.mark.parametrize(("later", "speed"), [(102.0, "80.00"), (100.0, "inf")])
def test_speed_is_samples_per_second(lines, caplog, monkeypatch, later, speed):
    clock = iter([100.0])  # and the other from then on: logging looks at the clock too
    monkeypatch.setattr(mx.callback.time, "time", lambda: next(clock, later))
    lines(mx.callback.Speedometer(32, frequent=5), at(0), at(5))
    assert caplog.messages == [f"Iter[0] Batch [5]\tSpeed: {speed} samples/sec"]


@pytest.mark.parametrize(("auto_reset", "resets"), [(False, 0), (True, 2)])
def test_log_train_metric(lines, auto_reset, resets):
    metric = FakeMetric(("accuracy", 0.5))
    params = [at(nbatch, each) for nbatch in range(3) for each in (metric, None)]
    found = lines(mx.callback.log_train_metric(2, auto_reset), *params)
    assert found == [f"Iter[0] Batch[{nbatch}] Train-accuracy=0.500000" for nbatch in (0, 2)]
    assert metric.resets == resets


def test_progress_bar_and_validation_lines_are_mxnets(lines):
    found = lines(mx.callback.ProgressBar(4, 8), *map(at, range(5)))
    bars = ("[--------] 0%", "[==------] 25%", "[====----] 50%", "[======--] 75%", "[========] 100%")
    assert tuple(text.rstrip("\r") for text in found) == bars
    metric = FakeMetric(("accuracy", 0.5), ("ce", 0.25))
    found = lines(mx.callback.LogValidationMetricsCallback(), at(1, metric, epoch=3), at(1))
    assert found == ["Epoch[3] Validation-accuracy=0.500000", "Epoch[3] Validation-ce=0.250000"]


# which epochs' files are kept


@pytest.mark.parametrize(("kind", "format"), [("do", "safetensors"), ("module", "params")])
def test_only_last_and_best_epochs_are_kept(kind, format, tmp_path):
    prefix, module = str(tmp_path / "net"), mx.mod.Module(classifier())
    given = (module, prefix, 1, True) if kind == "module" else (prefix,)
    keep = {"keep_last": 2, "keep_best": 1, "metric": "train-fixed", "mode": "max"}
    save = getattr(mx.callback, f"{kind}_checkpoint")(*given, format=format, **keep)
    metric = fixed(0.1, 0.9, 0.3, 0.2, 0.4)
    module.fit(blobs(), num_epoch=5, eval_metric=metric, epoch_end_callback=save)
    assert mx.checkpoint.epochs(prefix) == [2, 4, 5]
    states = sorted(path.name for path in tmp_path.glob("*.states"))
    assert states == [f"net-{epoch:04d}.states" for epoch in (2, 4, 5) if kind == "module"]


def test_files_of_later_epochs_are_anothers(tmp_path):
    prefix, module = str(tmp_path / "net"), mx.mod.Module(classifier())
    module.fit(blobs(), num_epoch=6, epoch_end_callback=mx.callback.do_checkpoint(prefix, period=2))
    module.fit(blobs(), num_epoch=3, epoch_end_callback=mx.callback.do_checkpoint(prefix, keep_last=2))
    assert mx.checkpoint.epochs(prefix) == [2, 3, 4, 6]
    mx.callback.do_checkpoint(prefix, keep_last=1)(6, module.symbol, *module.get_params())
    assert mx.checkpoint.epochs(prefix) == [7]
