"""``dpmodule fit``: it learns, and what it writes."""

import csv
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import dpmodule as mx

QUICK = ("fit", "--network", "mlp", "--epochs", "2")


@pytest.fixture
def names(tmp_path):
    return lambda: sorted(path.name for path in tmp_path.iterdir())


def accuracy(done):
    return float(re.search(r"final validation accuracy: (\S+)", done.out)[1])


def params(prefix, epoch=2):
    return {k: v.asnumpy() for k, v in mx.nd.load(f"{prefix}-{epoch:04d}.params").items()}


def test_it_reaches_97_percent_and_writes_a_checkpoint(run, names):
    done = run("fit", "--target", "0.97")
    assert done.code == 0
    assert accuracy(done) >= 0.97
    assert done.err == ""  # no bar outside of a terminal
    assert names() == ["model-0020.params", "model-0020.run", "model-0020.states", "model-symbol.json"]


@pytest.mark.parametrize("network", ["mlp", "lenet", "resnet"])
def test_every_network_learns_on_two_contexts(network, run):
    words = ["--network", network, "--epochs", "6", "--contexts", "cpu(0),cpu(1)", "--workload", "1,3"]
    assert run("fit", *words, "--target", "0.9").code == 0


def test_contexts_do_not_change_the_result(run):
    run(*QUICK, "--prefix", "one")
    run(*QUICK, "--prefix", "two", "--contexts", "cpu(0),cpu(1)", "--kvstore", "device")
    one, two = params("one"), params("two")
    assert one.keys() == two.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, two[name], atol=1e-3)


def test_same_seed_same_bits_other_seed_others(run):
    a, b, c = (run(*QUICK, "--prefix", prefix, "--seed", seed) and params(prefix)["arg:fc1_weight"]
               for prefix, seed in (("a", 3), ("b", 3), ("c", 4)))  # fmt: skip
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_the_last_epoch_is_saved_whatever_save_every_says(run, names):
    assert run(*QUICK, "--epochs", "3", "--save-every", "2").code == 0
    assert [name for name in names() if name.endswith(".params")] == [
        "model-0002.params",
        "model-0003.params",
    ]


def test_load_epoch_goes_on_where_the_schedule_was(run, monkeypatch):
    run(*QUICK, "--save-every", "1")
    rates = {}

    def note(callback, run):
        rates.setdefault(run.epoch, run.module.optimizer.learning_rate)

    monkeypatch.setattr(mx.callback.Callback, "on_batch_end", note)
    done = run("fit", "--epochs", "4", "--load-epoch", "2")
    assert done.code == 0
    assert list(rates) == [2, 3]
    np.testing.assert_allclose(rates[2], 0.05, rtol=0.05)  # half the way of a cosine from 0.1 to 0
    assert rates[3] < rates[2]
    assert re.findall(r"^epoch (\d)", done.out, re.MULTILINE) == ["3", "4"]


def test_all_optimizers_have_defaults(run):
    for name in ("sgd", "nag", "adam", "rmsprop", "signum", "ftrl"):
        assert run(*QUICK, "--epochs", "1", "--optimizer", name, "--prefix", name).code == 0
    assert (
        "--momentum 0.5 is not supported by --optimizer adam"
        in run(*QUICK, "--optimizer", "adam", "--momentum", 0.5).error
    )


def test_missed_target_exits_with_1(run):
    done = run(*QUICK, "--target", "1.0", "--lr", "0.0001")
    assert done.code == 1
    assert "missed" in done.err


def test_a_symbol_of_ones_own_and_a_csv(run):
    x = np.random.RandomState(0).normal(size=(300, 2))
    table = np.column_stack([x, x[:, 0] > x[:, 1]])
    np.savetxt("data.csv", table, delimiter=",", header="a,b,truth", comments="")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    mx.sym.SoftmaxOutput(net, name="softmax").save("net-symbol.json")
    words = ["--data", "data.csv", "--label-column", "truth"]
    assert run("fit", "--symbol", "net-symbol.json", *words, "--target", "0.9").code == 0
    assert run("predict", *words, "--output", "out.csv").code == 0
    with open("out.csv") as file:
        lines = file.read().splitlines()
    assert lines[0] == "sample,class,p0,p1"
    assert len(lines) == 301


def test_too_few_rows_for_validation_are_told(run):
    np.savez("d.npz", x=[[1.0], [2.0]], y=[0, 1])
    words = (*QUICK, "--data", "d.npz", "--overwrite")
    note = "note: --validation 0.2 of 2 samples is less than one, so all samples are used for training"
    assert note in run(*words).err
    assert "note" not in run(*words, "--validation", "0").err
    assert "note" not in run(*words, "--validation", "0.5").err


def test_nan_is_an_error_a_warning_or_nothing(run, caplog):
    np.savez("d.npz", x=[[1.0], [np.nan]] * 4, y=[0, 1] * 4)
    words = (*QUICK, "--data", "d.npz", "--validation", "0", "--prefix")
    assert "'softmax_output' is not finite in batch 0 of epoch 0" in run(*words, "raised").error
    assert (
        "--on-nonfinite skip skips such batches, warn and ignore continue"
        in run(*words, "raised", "--overwrite").error
    )
    assert run(*words, "warned", "--on-nonfinite", "warn").code == 0
    assert "is not finite in batch 0 of epoch 1" in caplog.text
    caplog.clear()
    assert run(*words, "ignored", "--on-nonfinite", "ignore").code == 0
    assert "not finite" not in caplog.text


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--load-epoch", "3"], "--load-epoch 3 and --epochs 2 leave nothing to do"),
        (["--load-epoch", "1"], "nothing is saved under the prefix 'model'"),
        (["--load-epoch", "interrupted"], "argument --load-epoch: 'interrupted', expected an integer"),
        (["--contexts", "cpu(0),cpu(1)", "--workload", "1,2,3"], "--workload has 3 shares, expected 2"),
        (["--shape", "65"], "--shape (65,) has 65 values, but a sample of the digits has 64"),
        (["--validation-data", "set.npz"], "--validation-data needs --data"),
        (["--data", "set.npz", "--classes", "2"], "--classes is 2, but set.npz has a label 2; expected at least 3"),
        (["--data", "set.npz", "--symbol", "two-symbol.json"], "the largest label is 2, but the network has 2"),
        (["--symbol", "two-symbol.json", "--network", "mlp"], "--network: not allowed with argument --symbol"),
        (["--data", "set.npz", "--symbol", "open-symbol.json"], "the network has 0 inputs for labels"),
        (["--symbol", "set.npz"], "set.npz"),
    ],
)  # fmt: skip
def test_errors_before_training(words, match, run, names):
    np.savez("set.npz", x=np.eye(3).repeat(5, 0), y=np.arange(15) % 3)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
    net.save("open-symbol.json")
    mx.sym.SoftmaxOutput(net, name="softmax").save("two-symbol.json")
    there = names()
    quick = ("fit", "--epochs", "2") if "--symbol" in words else QUICK
    if "--network" in words:
        quick = ("fit",)
    assert match in run(*quick, *words).error
    assert names() == there


# predict

FIT = ("fit", "--network", "mlp", "--epochs", "2")


def rows(text):
    return list(csv.reader(text.splitlines()))


def test_the_digits_kept_for_validation(run):
    trained = run(*FIT)
    done = run("predict", "--batch-size", "100")
    table = rows(done.out)
    assert len(table) == 360  # with the header
    scores = np.array(table[1:], float)
    np.testing.assert_allclose(scores[:, 2:].sum(axis=1), 1, atol=1e-4)
    np.testing.assert_array_equal(scores[:, 1], scores[:, 2:].argmax(axis=1))
    assert f"final validation accuracy: {done.err.split()[1]}\n" in trained.out
    assert len(rows(run("predict", "--validation", "1").out)) == 1798
    assert (
        "--validation 0.0 leaves nothing of the digits to predict"
        in run("predict", "--validation", "0").error
    )


def test_flat_rows_become_the_images_that_the_network_takes(run):
    np.savez("images.npz", x=np.random.RandomState(0).rand(30, 1, 6, 6), y=np.arange(30) % 3)
    assert run("fit", "--network", "lenet", "--data", "images.npz", "--epochs", "1").code == 0
    np.savez("flat.npz", x=np.load("images.npz")["x"].reshape(30, 36))
    assert run("predict", "--data", "flat.npz").out == run("predict", "--data", "images.npz").out
    np.savez("turned.npz", x=np.ones((2, 6, 6, 1)))
    assert (
        "a sample has the shape (6, 6, 1), but the network takes (1, 6, 6)"
        in run("predict", "--data", "turned.npz").error
    )


def test_a_column_too_many_is_told_by_the_file(run):
    table = np.column_stack([np.random.RandomState(0).rand(20, 5), np.arange(20) % 2])
    np.savetxt("five.csv", table, delimiter=",")
    np.savetxt("four.csv", table[:, 1:], delimiter=",")
    assert run(*FIT, "--data", "four.csv").code == 0
    wrong = "five.csv: a sample has 5 values, but the network takes 4"
    assert wrong in run("predict", "--data", "five.csv").error
    assert wrong in run("fit", "--data", "five.csv", "--load-epoch", "2", "--epochs", "3").error
    assert (
        "--validation-data five.csv: a sample has 5 values, expected 4 values as in four.csv"
        in run(*FIT, "--data", "four.csv", "--validation-data", "five.csv").error
    )
    assert (
        "--label-column sets the label column"
        in run("predict", "--data", "four.csv", "--label-column", "none").error
    )


def test_networks_that_give_no_classes_are_refused(run):
    data = mx.sym.Variable("data")
    fc = mx.sym.FullyConnected(data, num_hidden=2, name="fc")
    params = {"arg:fc_weight": mx.nd.ones((2, 3)), "arg:fc_bias": mx.nd.ones(2)}
    np.savez("x.npz", x=np.ones((5, 3)))
    mx.sym.Group([fc, fc * 2]).save("two-symbol.json")
    mx.sym.sum(fc, axis=1).save("flat-symbol.json")
    mx.nd.save("net.params", params)
    for name, match in [("two", "(5, 2)"), ("flat", "(5,)")]:
        error = run("predict", f"{name}-symbol.json", "net.params", "--data", "x.npz").error
        assert match in error
        assert "expected one output of shape (samples, classes)" in error
    fc.save("less-symbol.json")
    mx.nd.save("less.params", {"arg:fc_weight": params["arg:fc_weight"]})
    assert (
        "2 inputs without values (data, fc_bias)"
        in run("predict", "less-symbol.json", "less.params", "--data", "x.npz").error
    )


@pytest.mark.parametrize("marks", [[0, 1] * 10, ["train", "validation"] * 10])
def test_the_part_that_a_column_keeps_apart(marks, run):
    x = np.random.RandomState(0).rand(20, 2)
    with open("d.csv", "w") as file:
        file.write("a,part,b,kind\n")
        file.writelines(f"{a},{mark},{b},{int(a > b)}\n" for (a, b), mark in zip(x, marks))
    words = ("--data", "d.csv", "--validation-column", "part")
    trained = run(*FIT, *words)
    assert trained.code == 0
    done = run("predict", *words)
    assert len(rows(done.out)) == 11
    assert f"final validation accuracy: {done.err.split()[1]}\n" in trained.out


# lines of epochs, the bar and the curve


def test_every_epoch_prints_a_line(run):
    lines = run(*QUICK).out.splitlines()
    values = r"accuracy=\d\.\d{4}, cross-entropy=\d\.\d{4}"
    pattern = rf"epoch (\d): {values}, validation {values.replace(', ', ', validation ')}, \d+\.\d\d s"
    assert [re.fullmatch(pattern, line)[1] for line in lines[:2]] == ["1", "2"]
    alone = run(*QUICK, "--validation", "0").out.splitlines()
    assert re.fullmatch(rf"epoch 1: {values}, \d+\.\d\d s", alone[0])


@pytest.mark.parametrize("words", [("--plot",), ("--plot", "svg")])
def test_the_curve_has_a_line_for_training_and_one_for_validation(words, run):
    done = run(*QUICK, "--prefix", "runs/net", *words)
    assert "written: runs/net-curve.svg" in done.out
    root = ElementTree.parse("runs/net-curve.svg").getroot()
    text = "".join(root.itertext())
    assert "train-accuracy" in text
    assert "validation-accuracy" in text
    assert (
        len(
            [
                path
                for path in root.iter("{http://www.w3.org/2000/svg}path")
                if path.get("stroke") != "#808080"
            ]
        )
        == 2
    )


def test_the_curve_of_a_resumed_run_has_all_epochs(run):
    run(*QUICK, "--resume", "--plot")
    first = Path("model-curve.svg").read_text()
    run("fit", "--network", "mlp", "--epochs", "4", "--resume", "--plot")
    both = Path("model-curve.svg").read_text()
    assert ">2</text>" in first
    assert ">4</text>" in both
    assert ">1</text>" in both


def test_the_curve_as_png(run):
    pytest.importorskip("matplotlib")
    assert run(*QUICK, "--plot", "png").code == 0
    assert Path("model-curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_png_needs_matplotlib_before_anything_is_trained(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run(*QUICK, "--plot", "png")
    assert "--plot png needs Matplotlib" in done.error
    assert not Path("model-symbol.json").exists()


def test_a_bar_is_shown_in_a_terminal(run, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "Epoch 1: 100%" in run(*QUICK).err
