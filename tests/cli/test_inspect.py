"""Looking at networks, and at the installation."""

import json
import re
from pathlib import Path

import pytest

import dpmodule as mx
from dpmodule.cli.__main__ import main
from dpmodule.cli.networks import NETWORKS

DATA = Path(__file__).parents[1] / "data"
DET2 = DATA / "checkpoints" / "mtcnn_det2"


def check(*words):
    return main(["check", *map(str, words)])


def test_a_published_network_with_its_parameters(capsys):
    assert check(DET2 / "mtcnn_det2-symbol.json", DET2 / "mtcnn_det2-0001.params") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "operators: Convolution 3, FullyConnected 3, LeakyReLU 4, Pooling 2, SoftmaxOutput 1 (none missing)"
    )
    assert "input: data (1, 3, 24, 24) (assumed)" in lines
    assert "parameters: 100,178 numbers in 16 arrays" in lines
    assert any(line.startswith("output: prob1_output (1, 2) float32 min ") for line in lines)
    assert not any("not finite" in line for line in lines)


def test_shapes_may_be_given(capsys):
    assert check(DET2 / "mtcnn_det2-symbol.json", "--shape", "data=2,3,24,24") == 0
    shown = capsys.readouterr().out
    assert "input: data (2, 3, 24, 24)\n" in shown
    assert "output: conv5_2_output (2, 4)" in shown


@pytest.mark.parametrize("path", sorted((DATA / "symbols").glob("*resnet*-symbol.json")))
def test_without_parameters_random_ones_serve(path, capsys):
    assert check(path) == 0
    assert "not finite" not in capsys.readouterr().out


def test_parameters_that_do_not_fit_are_listed(tmp_path, capsys):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    net.save(str(tmp_path / "net-symbol.json"))
    mx.nd.save(str(tmp_path / "net.params"), {"arg:fc_weight": mx.nd.ones((3, 5)), "arg:old": mx.nd.ones(2)})
    assert check(tmp_path / "net-symbol.json", tmp_path / "net.params", "--shape", "data=1,5") == 0
    shown = capsys.readouterr().out
    assert "parameters missing: fc_bias" not in shown  # without a value it counts as an input
    assert "input: fc_bias (3,)" in shown
    assert "parameters not used: old" in shown


def test_all_missing_operators_come_in_one_message(tmp_path, capsys):
    names = ["MyLayer", "Other", "MyLayer"]
    nodes = [{"op": "null", "name": "x", "inputs": []}]
    nodes += [{"op": op, "name": f"n{i}", "inputs": [[i, 0, 0]]} for i, op in enumerate(names)]
    path = tmp_path / "odd-symbol.json"
    path.write_text(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[3, 0, 0]]}))
    assert check(path) == 2
    assert "MyLayer (2 nodes, the first is 'n0'), Other ('n1')" in capsys.readouterr().err


def test_shapes_that_cannot_be_guessed_are_asked_for(tmp_path, capsys):
    path = tmp_path / "two-symbol.json"
    (mx.sym.Variable("a") + mx.sym.Variable("b")).save(str(path))
    mx.nd.save(str(tmp_path / "no.params"), {"arg:c": mx.nd.ones(1)})
    assert check(path, tmp_path / "no.params") == 2
    assert "--shape a=... --shape b=..." in capsys.readouterr().err


def test_bad_words(capsys):
    for words, match in [
        (("--shape", "1x2"), "data=1,3,224,224"),
        (("--shape", "3,24,24", "--shape", "x=1"), "--shape names x"),
    ]:
        assert check(DET2 / "mtcnn_det2-symbol.json", *words) == 2
        assert match in capsys.readouterr().err


# --- folders of models


def test_every_model_of_a_folder_is_tried(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    params = {"fc_weight": mx.nd.ones((3, 5)), "fc_bias": mx.nd.array([1, float("nan"), 2])}
    mx.model.save_checkpoint("b", 2, net, params, {})
    mx.checkpoint.save_checkpoint("c", 1, net, params, {}, format="safetensors")
    mx.interop.save_pretrained("d", net, params, {}, [("data", (1, 5))])
    mx.nd.save("numbers.safetensors", {"a": mx.nd.ones((1,))})
    (tmp_path / "e.safetensors").write_bytes(b"\x30\0\0\0\0\0\0\0{}")
    (tmp_path / "other.json").write_text('{"rows": []}')
    (tmp_path / "text.txt").write_text("x")
    (tmp_path / "sub").mkdir()
    graph = json.loads(net.tojson())
    graph["nodes"][3]["op"] = "Missing"
    (tmp_path / "sub" / "a.json").write_text(json.dumps(graph))
    assert check(".") == 1
    *lines, odd, total = capsys.readouterr().out.splitlines()
    assert odd.startswith("error ./sub/a.json: ")
    assert "Missing" in odd
    assert total == "3 of 5 models can be used"
    assert lines == [
        "ok    ./b-symbol.json: mxnet epoch 2, 4 nodes, 18 parameters; data (1, 5) -> fc_output (1, 3) (1 numbers not "
        "finite)",
        "ok    ./c-0001.safetensors: safetensors, 4 nodes, 18 parameters; data (1, 5) -> fc_output (1, 3) (1 numbers "
        "not finite)",
        "error ./e.safetensors: byte 0 (the header): invalid header length; the file is truncated or damaged",
        "ok    ./d: folder, 4 nodes, 18 parameters; data (1, 5) -> fc_output (1, 3) (1 numbers not finite)",
    ]
    (tmp_path / "e.safetensors").unlink()
    (net * mx.sym.Variable("x")).save("sub/a.json")
    assert check(".", "--shape", "x=1,3", "--shape", "data:1,5") == 0
    said = capsys.readouterr().out
    assert re.search(r"no parameters, random ones; data \(1, 5\) -> _mul\d+_output", said)


def test_a_folder_that_is_a_model_is_checked_as_one(tmp_path, capsys):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    params = {"fc_weight": mx.nd.ones((3, 5)), "fc_bias": mx.nd.ones((3,))}
    mx.interop.save_pretrained(tmp_path / "d", net, params, {}, [("data", (1, 5))])
    assert check(tmp_path / "d") == 0
    assert "operators: FullyConnected 1 (none missing)" in capsys.readouterr().out
    assert check(tmp_path / "d", "--epoch", "3") == 2
    assert "is a folder" in capsys.readouterr().err


def test_a_folder_without_models(tmp_path, capsys):
    assert check(tmp_path) == 2
    assert "no model in this folder" in capsys.readouterr().err


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
    assert " backward, measured as a whole" in shown
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
        (("lenet", "--shape", "data=1,3"), "a sample has shape (3,)"),
        (("lenet", "--shape", "data"), "expected a name and a shape"),
        (("lenet", "--context", "tpu(0)"), "expected devices"),
        (("lenet", "--context", "cpu(0),cpu(1)"), "expected one device"),
        ((DET2 / "mtcnn_det2", "--shape", "data=1,3,2,2"), "conv"),
        ((), "NET"),
        ((DET2 / "mtcnn_det2-symbol.json",), "set them: --shape data=..."),
    ],
)
def test_words_that_explain_refuses(words, text, capsys):
    assert explain(*words) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert "Traceback" not in shown.err


def test_explain_asks_for_shapes_that_cannot_be_guessed(tmp_path, capsys):
    path = tmp_path / "two-symbol.json"
    mx.sym.dot(mx.sym.Variable("a"), mx.sym.Variable("b")).save(str(path))
    assert explain(path) == 2
    assert "--shape a=..." in capsys.readouterr().err
    assert explain(path, "--shape", "a=2,3", "--shape", "b=3,4", "--no-source") == 0
    shown = capsys.readouterr().out
    assert "input: a (2, 3)\ninput: b (3, 4)\n" in shown
    assert "parameters: 0\nFLOPs: 48 forward;" in shown
