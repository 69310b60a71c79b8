"""Callbacks: the lines MXNet 1.9.1 writes, when they write, and the tqdm bar."""

import io
import logging
import re

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.small_fits import blobs, classifier


class FakeMetric:
    """Remembers resets; shows the pairs it is given."""

    def __init__(self, *pairs):
        self.pairs, self.resets = list(pairs), 0

    def get_name_value(self):
        return self.pairs

    def reset_local(self):
        self.resets += 1


def at(nbatch, metric=None, epoch=0, **variables):
    return mx.callback.BatchEndParam(epoch, nbatch, metric, variables or None)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO)
    return caplog


def without_speed(messages):
    return [re.sub(r"Speed: (\d+\.\d\d|inf) samples/sec", "Speed", text) for text in messages]


def test_param_is_a_named_tuple():
    param = at(3)
    assert param._fields == ("epoch", "nbatch", "eval_metric", "locals")
    assert tuple(param) == (0, 3, None, None)


def test_speedometer_lines_are_mxnets(lines):
    metric = FakeMetric(("accuracy", 0.5), ("cross-entropy", 0.25))
    report = mx.callback.Speedometer(10, frequent=2)
    for nbatch in range(7):
        report(at(nbatch, metric))
    for nbatch in range(3):
        report(at(nbatch, metric, epoch=1))
    tail = "\tSpeed\taccuracy=0.500000\tcross-entropy=0.250000"
    assert without_speed(lines.messages) == [
        f"Epoch[0] Batch [0-2]{tail}",
        f"Epoch[0] Batch [2-4]{tail}",
        f"Epoch[0] Batch [4-6]{tail}",
        f"Epoch[1] Batch [0-2]{tail}",
    ]
    assert metric.resets == 4


def test_speedometer_without_reset_counts_from_the_start(lines):
    metric = FakeMetric(("accuracy", 0.5))
    report = mx.callback.Speedometer(10, frequent=2, auto_reset=False)
    for nbatch in range(5):
        report(at(nbatch, metric))
    assert without_speed(lines.messages) == [
        "Epoch[0] Batch [0-2]\tSpeed\taccuracy=0.500000",
        "Epoch[0] Batch [0-4]\tSpeed\taccuracy=0.500000",
    ]
    assert metric.resets == 0


def test_speedometer_without_metric(lines):
    report = mx.callback.Speedometer(10, frequent=2)
    for nbatch in range(3):
        report(at(nbatch, epoch=1))
    assert without_speed(lines.messages) == ["Iter[1] Batch [2]\tSpeed"]


def test_speed_is_samples_per_second(lines, monkeypatch):
    clock = iter([100.0])  # and 102 from then on: logging looks at the clock too
    monkeypatch.setattr(mx.callback.time, "time", lambda: next(clock, 102.0))
    report = mx.callback.Speedometer(32, frequent=5)
    report(at(0))
    report(at(5))
    assert lines.messages == ["Iter[0] Batch [5]\tSpeed: 80.00 samples/sec"]


def test_speed_without_time_is_infinite(lines, monkeypatch):
    monkeypatch.setattr(mx.callback.time, "time", lambda: 1.0)
    report = mx.callback.Speedometer(32, frequent=5)
    report(at(0))
    report(at(5))
    assert lines.messages == ["Iter[0] Batch [5]\tSpeed: inf samples/sec"]


@pytest.mark.parametrize(("auto_reset", "resets"), [(False, 0), (True, 2)])
def test_log_train_metric(lines, auto_reset, resets):
    metric = FakeMetric(("accuracy", 0.5))
    log = mx.callback.log_train_metric(2, auto_reset)
    for nbatch in range(3):
        log(at(nbatch, metric))
        log(at(nbatch))
    assert lines.messages == [f"Iter[0] Batch[{nbatch}] Train-accuracy=0.500000" for nbatch in (0, 2)]
    assert metric.resets == resets


def test_progress_bar_lines_are_mxnets(lines):
    bar = mx.callback.ProgressBar(4, 8)
    for nbatch in range(5):
        bar(at(nbatch))
    assert [text.rstrip("\r") for text in lines.messages] == [
        "[--------] 0%",
        "[==------] 25%",
        "[====----] 50%",
        "[======--] 75%",
        "[========] 100%",
    ]


def test_validation_metrics(lines):
    callback = mx.callback.LogValidationMetricsCallback()
    callback(at(1, FakeMetric(("accuracy", 0.5), ("ce", 0.25)), epoch=3))
    callback(at(1))
    assert lines.messages == ["Epoch[3] Validation-accuracy=0.500000", "Epoch[3] Validation-ce=0.250000"]


def test_module_checkpoint():
    class Module:
        saved = []

        def save_checkpoint(self, *args):
            self.saved.append(args)

    save = mx.callback.module_checkpoint(Module(), "run", 2, True)
    for epoch in range(4):
        save(epoch, None, {}, {})
    mx.callback.module_checkpoint(Module(), "every", 0)(0)
    assert Module.saved == [("run", 2, True), ("run", 4, True), ("every", 1, False)]


def test_do_checkpoint(tmp_path):
    prefix = str(tmp_path / "net")
    save = mx.callback.do_checkpoint(prefix, period=2)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    for epoch in range(4):
        save(epoch, net, {"fc_weight": mx.nd.full((2, 3), epoch)}, {})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["net-0002.params", "net-0004.params", "net-symbol.json"]
    _, arg_params, aux_params = mx.model.load_checkpoint(prefix, 4)
    assert arg_params["fc_weight"].asnumpy().tolist() == [[3] * 3] * 2
    assert aux_params == {}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mx.callback.Speedometer(1, 0), "frequent is 0"),
        (lambda: mx.callback.log_train_metric(0), "period is 0"),
        (lambda: mx.callback.ProgressBar(0), "total is 0"),
        (lambda: mx.callback.TqdmBar(every=0), "every is 0"),
    ],
)
def test_counts_from_one(make, text):
    with pytest.raises(ArgumentError, match=text):
        make()


def run(bar, epochs=1, batches=3, **variables):
    metric = FakeMetric(("accuracy", 0.5), ("loss", 1.25))
    for epoch in range(epochs):
        for nbatch in range(batches):
            bar(at(nbatch, metric, epoch, **variables))


def shown(out):
    """Return the last state of each bar."""
    return [line.split("\r")[-1] for line in out.getvalue().strip("\n").split("\n")]


def test_tqdm_bar_shows_metric_and_speed_and_closes():
    out = io.StringIO()
    bar = mx.callback.TqdmBar(total=3, batch_size=32, file=out, ascii=True, ncols=120)
    run(bar, epochs=2)
    first, second = shown(out)
    assert first.startswith("Epoch 0: 100%")
    assert second.startswith("Epoch 1: 100%")
    assert re.search(r"3/3 .*accuracy=0.5000, loss=1.2500, samples/s=\d+\]", first)
    assert out.getvalue().count("\n") == 2


def test_tqdm_bar_without_total_ends_with_the_epoch():
    out = io.StringIO()
    bar = mx.callback.TqdmBar(file=out, desc="epoch {epoch} of 2")
    run(bar, epochs=2)
    assert out.getvalue().count("\n") == 1  # the second one is still open
    bar.close(1, None, {}, {})
    bar.close()
    first, second = shown(out)
    assert first.startswith("epoch 0 of 2: 3batch")
    assert second.startswith("epoch 1 of 2: 3batch")
    assert "samples/s" not in first


def test_tqdm_bar_learns_end_and_batch_size_from_the_loop():
    class Data:
        batch_size = 8

    out = io.StringIO()
    bar = mx.callback.TqdmBar(file=out, ncols=120)
    bar(at(0, train_data=Data(), end_of_batch=False))
    assert not out.getvalue().endswith("\n")
    bar(at(1, train_data=Data(), end_of_batch=True))
    assert out.getvalue().endswith("\n")
    assert "samples/s=" in shown(out)[0]


def test_tqdm_bar_counts_the_time_of_the_first_batch(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])

    class Slow(mx.io.NDArrayIter):
        def next(self):
            now[0] += 0.5
            return super().next()

    out = io.StringIO()
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), name="softmax")
    bar = mx.callback.TqdmBar(total=3, every=1, file=out, ncols=120, mininterval=0)
    mx.mod.Module(net).fit(Slow(np.ones((12, 3)), np.zeros(12), 4), num_epoch=2, batch_end_callback=bar)
    found = [int(each) for each in re.findall(r"samples/s=(\d+)", out.getvalue())]
    assert max(found) <= 8  # a batch takes half a second
    assert "Epoch 1:   0%" in out.getvalue()
    out = io.StringIO()
    with mx.callback.TqdmBar(total=3, batch_size=4, every=1, file=out, ncols=120, mininterval=0) as bar:
        for nbatch in range(3):  # by hand, the first batch is over when the bar opens
            now[0] += 0.5
            bar(at(nbatch))
    assert set(re.findall(r"samples/s=(\d+)", out.getvalue())) == {"8"}


def test_tqdm_bar_reads_the_metric_seldom():
    class Counting(FakeMetric):
        reads = 0

        def get_name_value(self):
            self.reads += 1
            return super().get_name_value()

    metric = Counting(("accuracy", 0.5))
    with mx.callback.TqdmBar(total=100, every=20, file=io.StringIO()) as bar:
        for nbatch in range(100):
            bar(at(nbatch, metric))
    assert metric.reads == 6


def test_tqdm_bar_opens_again_for_another_run():
    out = io.StringIO()
    bar = mx.callback.TqdmBar(file=out)
    run(bar)
    run(bar)
    bar.close()
    assert [line.split(":")[0] for line in shown(out)] == ["Epoch 0", "Epoch 0"]


def test_tqdm_bar_may_be_disabled():
    out = io.StringIO()
    with mx.callback.TqdmBar(total=3, batch_size=2, file=out, disable=True) as bar:
        run(bar, epochs=2)
    assert out.getvalue() == ""


# which epochs' files are kept


class Scripted(mx.metric.EvalMetric):
    """A metric whose value at the end of each epoch is given."""

    def __init__(self, values):
        self._values = iter(values)
        super().__init__("scripted")

    def update(self, labels, preds):
        self._shown = True

    def get(self):
        return self.name, self._now

    def reset(self):
        self._now = next(self._values, 0.0)


@pytest.mark.parametrize("kind", ["do_checkpoint", "module_checkpoint"])
@pytest.mark.parametrize("format", ["params", "safetensors"])
def test_only_last_and_best_epochs_are_kept(kind, format, tmp_path):
    prefix = str(tmp_path / "net")
    module = mx.mod.Module(classifier())
    given = (module, prefix, 1, True) if kind == "module_checkpoint" else (prefix,)
    keep = {"keep_last": 2, "keep_best": 1, "metric": "train-scripted", "mode": "max"}
    save = getattr(mx.callback, kind)(*given, format=format, **keep)
    # a metric is reset once when it is made
    metric = Scripted([0.0, 0.1, 0.9, 0.3, 0.2, 0.4])
    module.fit(blobs(), num_epoch=5, eval_metric=metric, epoch_end_callback=save)
    assert mx.checkpoint.epochs(prefix) == [2, 4, 5]
    states = sorted(path.name for path in tmp_path.glob("*.states"))
    expected = [f"net-{epoch:04d}.states" for epoch in (2, 4, 5)] if kind == "module_checkpoint" else []
    assert states == expected


def test_files_of_later_epochs_are_anothers(tmp_path):
    prefix = str(tmp_path / "net")
    module = mx.mod.Module(classifier())
    module.fit(blobs(), num_epoch=6, epoch_end_callback=mx.callback.do_checkpoint(prefix, period=2))
    save = mx.callback.do_checkpoint(prefix, keep_last=2)
    module.fit(blobs(), num_epoch=3, epoch_end_callback=save)
    assert mx.checkpoint.epochs(prefix) == [2, 3, 4, 6]
    by_hand = mx.callback.do_checkpoint(prefix, keep_last=1)
    by_hand(6, module.symbol, *module.get_params())
    assert mx.checkpoint.epochs(prefix) == [7]


def test_what_cannot_be_kept_is_told(tmp_path):
    with pytest.raises(ArgumentError, match="do_checkpoint: keep_last is 0, expected at least 1"):
        mx.callback.do_checkpoint("net", keep_last=0)
    with pytest.raises(ArgumentError, match="module_checkpoint: keep_best and metric belong together"):
        mx.callback.module_checkpoint(None, "net", keep_best=1)
    save = mx.callback.do_checkpoint(str(tmp_path / "net"), keep_best=1, metric="train-accurracy")
    with pytest.raises(
        ArgumentError, match="'train-accurracy' will not be measured; the metrics will be train-accuracy"
    ):
        mx.mod.Module(classifier()).fit(blobs(), num_epoch=1, epoch_end_callback=save)
