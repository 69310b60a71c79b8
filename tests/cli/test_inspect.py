"""``dpmodule check``, ``explain``, ``summary`` and ``info``."""

import json
from importlib import metadata
from pathlib import Path

import pytest

import dpmodule as mx

DATA = Path(__file__).parents[1] / "data"
FC = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")


def shown(run, *words, code=0):
    done = run(*words)
    assert done.code == code, done
    return done.out


@pytest.mark.parametrize("path", sorted((DATA / "symbols").glob("*resnet*-symbol.json")))
def test_without_parameters_random_ones_serve(path, run):
    assert "not finite" not in shown(run, "check", path)


def test_parameters_that_do_not_fit_are_listed(run):
    FC.save("net-symbol.json")
    mx.nd.save("net.params", {"arg:fc_weight": mx.nd.ones((3, 5)), "arg:old": mx.nd.ones(2)})
    text = shown(run, "check", "net-symbol.json", "net.params", "--shape", "data=1,5")
    assert "input: fc_bias (3,)" in text  # without a value it counts as an input, and is not missing
    assert "parameters missing: fc_bias" not in text
    assert "parameters not used: old" in text


def test_all_missing_operators_and_shapes_come_in_one_message(run):
    names, nodes = ["MyLayer", "Other", "MyLayer"], [{"op": "null", "name": "x", "inputs": []}]
    nodes += [{"op": op, "name": f"n{i}", "inputs": [[i, 0, 0]]} for i, op in enumerate(names)]
    Path("odd-symbol.json").write_text(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[3, 0, 0]]}))
    error = run("check", "odd-symbol.json").error
    assert "MyLayer (node 'n0' with input 'x' and 1 more; MXNet itself does not have it); Other (" in error
    (mx.sym.Variable("a") + mx.sym.Variable("b")).save("two-symbol.json")
    mx.nd.save("no.params", {"arg:c": mx.nd.ones(1)})
    assert "--shape a=... --shape b=..." in run("check", "two-symbol.json", "no.params").error
    mx.sym.dot(mx.sym.Variable("a"), mx.sym.Variable("b")).save("dot-symbol.json")
    assert "--shape a=..." in run("explain", "dot-symbol.json").error
    text = shown(run, "explain", "dot-symbol.json", "--shape", "a=2,3", "--shape", "b=3,4", "--no-source")
    assert "input: a (2, 3)\ninput: b (3, 4)\n" in text
    assert "parameters: 0\nFLOPs: 48 forward;" in text


# --- explain


def test_networks_that_come_along(run):
    text = shown(run, "explain", "mlp")
    assert text.startswith("input: data (1, 1, 8, 8) (assumed)\ninput: softmax_label (1,) (assumed)\n")
    assert text.count("def forward(values, env, shaped):") == 2
    assert "\npredict: " in text
    assert f"\nparameters: {64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10:,}" in text
    assert "(64, 128)" in shown(run, "summary", "--network", "mlp")


@pytest.mark.parametrize(
    ("words", "told", "absent"),
    [
        ("lenet --shape data=2,1,20,20", "data (2, 1, 20, 20)\n|(2, 16, 20, 20)|with backward (about)|nhwc", "whole"),
        ("mlp --times --measure-memory", "backward\n---|backward, measured as a whole|run (measured): ", "off: "),
        ("lenet --disable channels_last,pooling_first", "off: pooling_first, channels_last", "nhwc"),
    ],
)  # fmt: skip
def test_options_of_explain(words, told, absent, run):
    text = shown(run, "explain", *words.split(), "--train", "--no-source")
    assert [each for each in told.split("|") if each not in text] == []
    assert absent not in text
    assert "channels_last" not in mx.executor.passes.settings()


# --- summary and info


def test_help_version_and_info(run):
    assert {"fit", "predict", "check", "summary", "explain", "info"} <= {*shown(run, "--help").split()}
    assert shown(run, "--version") == f"dpmodule {mx.__version__}\n"
    lines = shown(run, "info")
    for name in ("dpmodule", "native", "Python", "torch", "NumPy", "CPU", "GPU"):
        assert f"\n{name}" in f"\n{lines}", name
    with mx.test_utils.environment("OMP_NUM_THREADS", "3"):
        first, *report, last = shown(run, "info", "--report").splitlines()
    assert (first, last) == ("```text", "```")
    found = dict(line.split(maxsplit=1) for line in report)
    assert {
        *[
            "dpmodule",
            "torch",
            "GPU",
            "system",
            "processor",
            "instructions",
            "threads",
            "extension",
            "packages",
        ]
    } <= {*found}
    assert f"onnx {metadata.version('onnx')}" in found["packages"]
    assert "OMP_NUM_THREADS=3" in found["variables"]
