"""``dpmodule fit`` and ``predict``: learning, results, files and errors."""

import csv
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import dpmodule as mx

QUICK = ("fit", "--network", "mlp", "--epochs", "2")


def accuracy(done):
    return re.search(r"final validation accuracy: (\S+)", done.out)[1]


def test_it_reaches_97_percent_and_writes_a_checkpoint(run):
    done = run("fit", "--target", "0.97")
    assert (done.code, done.err) == (0, "")  # no bar outside of a terminal
    assert float(accuracy(done)) >= 0.97
    names = ["model-0020.params", "model-0020.run", "model-0020.states", "model-symbol.json"]
    assert sorted(os.listdir()) == names


@pytest.mark.parametrize("network", ["lenet", "resnet"])
def test_every_network_learns_on_two_contexts(network, run):
    words = ["--network", network, "--epochs", "6", "--contexts", "cpu(0),cpu(1)", "--workload", "1,3"]
    assert run("fit", *words, "--target", "0.9").code == 0
    done = run(*f"fit --network {network} --epochs 1 --target 1.0 --lr 0.0001 --overwrite".split())
    assert (done.code, "missed" in done.err) == (1, True)


def test_load_epoch_resumes_the_schedule(run, monkeypatch):
    run(*QUICK, "--save-every", "1")
    rates = {}

    def note(callback, run):
        rates.setdefault(run.epoch, run.module.optimizer.learning_rate)

    monkeypatch.setattr(mx.callback.Callback, "on_batch_end", note)
    done = run("fit", "--epochs", "4", "--load-epoch", "2")
    assert (done.code, list(rates)) == (0, [2, 3])
    np.testing.assert_allclose(rates[2], 0.05, rtol=0.05)  # half the way of a cosine from 0.1 to 0
    assert rates[3] < rates[2]
    assert re.findall(r"^epoch (\d)", done.out, re.MULTILINE) == ["3", "4"]


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "rmsprop", "signum", "ftrl"])
def test_all_optimizers_have_defaults(name, run):
    assert run(*QUICK, "--epochs", "1", "--optimizer", name).code == 0


def test_too_few_rows_for_validation_are_noted(run):
    np.savez("d.npz", x=[[1.0], [2.0]], y=[0, 1])
    words = (*QUICK, "--data", "d.npz", "--overwrite")
    note = "note: --validation 0.2 of 2 samples is less than one, so all samples are used for training"
    assert note in run(*words).err
    assert "note" not in run(*words, "--validation", "0").err + run(*words, "--validation", "0.5").err


def test_nan_is_an_error_a_warning_or_nothing(run, caplog):
    np.savez("d.npz", x=[[1.0], [np.nan]] * 4, y=[0, 1] * 4)
    words = (*QUICK, "--data", "d.npz", "--validation", "0", "--prefix")
    error = run(*words, "raised").error
    assert "'softmax_output' is not finite in batch 0 of epoch 0" in error
    assert "--on-nonfinite skip skips such batches, warn and ignore continue" in error
    for choice in ("ignore", "warn"):
        assert run(*words, choice, "--on-nonfinite", choice).code == 0
        assert ("is not finite in batch 0 of epoch 1" in caplog.text) is (choice == "warn")


# predict


def rows(text):
    return list(csv.reader(text.splitlines()))


def test_predictions_of_the_digits_kept_for_validation(run):
    trained, done = run(*QUICK), run("predict", "--batch-size", "100")
    table = rows(done.out)
    assert len(table) == 360  # with the header
    scores = np.array(table[1:], float)
    np.testing.assert_allclose(scores[:, 2:].sum(axis=1), 1, atol=1e-4)
    np.testing.assert_array_equal(scores[:, 1], scores[:, 2:].argmax(axis=1))
    assert accuracy(trained) == done.err.split()[1]
    assert len(rows(run("predict", "--validation", "1").out)) == 1798
    told = "--validation 0.0 leaves nothing of the digits to predict"
    assert told in run("predict", "--validation", "0").error


def test_flat_rows_become_the_images_that_the_network_takes(run):
    np.savez("images.npz", x=np.random.RandomState(0).rand(30, 1, 6, 6), y=np.arange(30) % 3)
    assert run("fit", "--network", "lenet", "--data", "images.npz", "--epochs", "1").code == 0
    np.savez("flat.npz", x=np.load("images.npz")["x"].reshape(30, 36))
    assert run("predict", "--data", "flat.npz").out == run("predict", "--data", "images.npz").out
    np.savez("turned.npz", x=np.ones((2, 6, 6, 1)))
    told = "a sample has the shape (6, 6, 1), but the network takes (1, 6, 6)"
    assert told in run("predict", "--data", "turned.npz").error


def test_a_file_with_a_column_too_many_is_named(run):
    table = np.column_stack([np.random.RandomState(0).rand(20, 5), np.arange(20) % 2])
    np.savetxt("five.csv", table, delimiter=",")
    np.savetxt("four.csv", table[:, 1:], delimiter=",")
    assert run(*QUICK, "--data", "four.csv").code == 0
    wrong = "five.csv: a sample has 5 values, but the network takes 4"
    assert wrong in run("predict", "--data", "five.csv").error
    assert wrong in run("fit", "--data", "five.csv", "--load-epoch", "2", "--epochs", "3").error
    told = "--validation-data five.csv: a sample has 5 values, expected 4 values as in four.csv"
    assert told in run(*QUICK, "--data", "four.csv", "--validation-data", "five.csv").error


@pytest.mark.parametrize(
    ("make", "left", "told"),
    [
        (lambda fc: mx.sym.Group([fc, fc * 2]), 2, "(5, 2).*expected one output of shape (samples, classes)"),
        (lambda fc: mx.sym.sum(fc, axis=1), 2, "(5,).*expected one output of shape (samples, classes)"),
        (lambda fc: fc, 1, "2 inputs without values (data, fc_bias)"),
    ],
)
def test_networks_that_give_no_classes_are_refused(make, left, told, run):
    fc = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    params = {"arg:fc_weight": mx.nd.ones((2, 3)), "arg:fc_bias": mx.nd.ones(2)}
    np.savez("x.npz", x=np.ones((5, 3)))
    make(fc).save("net-symbol.json")
    mx.nd.save("net.params", dict([*params.items()][:left]))
    error = run("predict", "net-symbol.json", "net.params", "--data", "x.npz").error
    assert all(each in error for each in told.split(".*"))


# lines of epochs, the bar and the curve


def test_a_bar_is_shown_in_a_terminal(capsys, monkeypatch, tmp_path):
    from dpmodule.cli.__main__ import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    main(list(QUICK))
    assert "Epoch 1: 100%" in capsys.readouterr().err


def test_the_curve_of_a_resumed_run_has_all_epochs(run):
    run(*QUICK, "--resume", "--plot")
    first = Path("model-curve.svg").read_text()
    run("fit", "--network", "mlp", "--epochs", "4", "--resume", "--plot", "svg")
    both = Path("model-curve.svg").read_text()
    assert [">2</text>" in first, ">4</text>" in both, ">1</text>" in both] == [True] * 3
    root = ElementTree.fromstring(both)
    assert {"train-accuracy", "validation-accuracy"} <= {*root.itertext()}
    lines = root.iter("{http://www.w3.org/2000/svg}path")
    assert len([path for path in lines if path.get("stroke") != "#808080"]) == 2


def test_the_curve_as_png(run, monkeypatch):
    pytest.importorskip("matplotlib")
    assert run(*QUICK, "--plot", "png").code == 0
    assert Path("model-curve.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "--plot png needs Matplotlib" in run(*QUICK, "--plot", "png", "--prefix", "other").error
    assert not Path("other-symbol.json").exists(), "refused before anything is trained"
