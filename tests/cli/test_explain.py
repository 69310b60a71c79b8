"""``dpmodule explain``: what it prints, and what it says when it cannot."""

from pathlib import Path

import pytest

import dpmodule as mx
from dpmodule.cli.__main__ import main
from dpmodule.cli.networks import NETWORKS

DATA = Path(__file__).parents[1] / "data"
DET2 = DATA / "checkpoints" / "mtcnn_det2"


def explain(*words):
    return main(["explain", *map(str, words)])


@pytest.mark.parametrize("net", sorted(NETWORKS))
def test_networks_that_come_along(net, capsys):
    assert explain(net) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("input: data (1, 1, 8, 8) (assumed)\ninput: softmax_label (1,) (assumed)\n")
    assert shown.count("def forward(values, env, shaped):") == 2
    assert "\npredict: " in shown
    assert "\nparameters: " in shown


def test_a_file_and_a_prefix(capsys):
    shape = "data=1,3,24,24"
    assert explain(DET2 / "mtcnn_det2-symbol.json", "--no-source", "--shape", shape) == 0
    by_file = capsys.readouterr().out
    assert "def forward" not in by_file
    assert "input: data (1, 3, 24, 24)\n" in by_file
    assert "parameters: 100,178\n" in by_file
    assert explain(DET2 / "mtcnn_det2", "--shape", shape, "--no-source") == 0
    assert capsys.readouterr().out == by_file
    assert explain(DET2 / "mtcnn_det2", "--no-source") == 0
    assert capsys.readouterr().out == by_file.replace("data (1, 3, 24, 24)", "data (1, 3, 24, 24) (assumed)")


def test_shapes_and_training(capsys):
    assert explain("lenet", "--shape", "data=2,1,20,20", "--train", "--no-source") == 0
    shown = capsys.readouterr().out
    assert "input: data (2, 1, 20, 20)\n" in shown
    assert "\ntraining: " in shown
    assert "(2, 16, 20, 20)" in shown
    assert " with backward (about)" in shown
    assert "as a whole" not in shown


def test_times_and_measured_memory(capsys):
    words = ("mlp", "--train", "--times", "--measure-memory", "--no-source")
    assert explain(*words) == 0
    shown = capsys.readouterr().out
    assert "backward\n---" in shown
    assert " backward, as a whole" in shown
    assert "memory of a run (measured): " in shown


def test_passes_can_be_switched_off(capsys):
    assert explain("lenet", "--no-source", "--train") == 0
    assert "data_nhwc" in capsys.readouterr().out
    assert explain("lenet", "--no-source", "--train", "--disable", "channels_last, pooling_first") == 0
    shown = capsys.readouterr().out
    assert "off: pooling_first, channels_last" in shown
    assert "nhwc" not in shown
    assert "channels_last" not in mx.executor.passes.settings()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("nowhere",), "nowhere-symbol.json"),
        (("lenet", "--disable", "all"), "'all', expected some of "),
        (("lenet", "--shape", "dat=1,1,8,8"), "--shape names dat, expected some of data, "),
        (("lenet", "--shape", "data=1,3"), "a sample is (3,)"),
        (("lenet", "--shape", "data"), "expected a name and a shape"),
        (("lenet", "--context", "tpu(0)"), "expected devices"),
        (("lenet", "--context", "cpu(0),cpu(1)"), "expected one device"),
        ((DET2 / "mtcnn_det2", "--shape", "data=1,3,2,2"), "conv"),
        ((), "NET"),
        ((DET2 / "mtcnn_det2-symbol.json",), "give them: --shape data=..."),
    ],
)
def test_bad_words(words, text, capsys):
    assert explain(*words) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert "Traceback" not in shown.err


def test_shapes_that_cannot_be_guessed_are_asked_for(tmp_path, capsys):
    path = tmp_path / "two-symbol.json"
    mx.sym.dot(mx.sym.Variable("a"), mx.sym.Variable("b")).save(str(path))
    assert explain(path) == 2
    assert "--shape a=..." in capsys.readouterr().err
    assert explain(path, "--shape", "a=2,3", "--shape", "b=3,4", "--no-source") == 0
    shown = capsys.readouterr().out
    assert "input: a (2, 3)\ninput: b (3, 4)\n" in shown
    assert "parameters: 0\nFLOPs: 48 forward;" in shown
