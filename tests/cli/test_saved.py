"""Naming a network: by prefix, by files, by name."""

import numpy as np
import pytest

import dpmodule as mx

DIGITS = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
FOUR = 4 * 128 + 128 + 128 * 64 + 64 + 64 * 2 + 2


@pytest.fixture
def four(run, tmp_path):
    """Train an MLP on samples of four values, saved as "four"; the issue's 9,026 parameters."""
    np.savez("four.npz", x=np.random.RandomState(0).rand(40, 4), y=np.arange(40) % 2)
    fit = ("fit", "--network", "mlp", "--data", "four.npz", "--prefix", "four", "--epochs")
    assert run(*fit, "1").code == 0
    assert run(*fit, "2").code == 0
    return [tmp_path / "four-symbol.json", tmp_path / "four-0002.params"]


def commands(*network):
    yield "summary", *network
    yield "check", *network
    yield "explain", *network, "--no-source"
    yield "predict", *network, "--data", "four.npz"


def test_every_command_takes_a_prefix_or_files(run, four):
    symbol, params = four
    ways = [
        ("four",),
        ("--prefix", "four"),
        ("four", "--epoch", "2"),
        (symbol, params),
        ("--symbol", symbol, "--params", params),
        ("four", params),
    ]
    shown = []
    for way in ways:
        found = [run(*words) for words in commands(*way)]
        assert [each.code for each in found] == [0] * 4, found
        for each in found[:3]:
            assert f"{FOUR:,}" in each.out
            assert " 4) (as saved)" in each.out
        shown.append(found[3].out)
    assert len(set(shown)) == 1
    first, second = (run("predict", "four", "--data", "four.npz", "--epoch", n).out for n in (1, 2))
    assert first != second
    assert second == shown[0]


def test_a_graph_tells_its_shapes_or_they_are_asked_for(run):
    data = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=2, name="fc")
    mx.sym.SoftmaxOutput(net, name="softmax").save("net-symbol.json")
    for command in ("summary", "explain"):
        assert "give them: --shape data=..." in run(command, "net").error
        assert "parameters: 16" in run(command, "net", "--shape", "7").out
        assert "parameters: 16" in run(command, "net", "--shape", "data=5,7").out
    mx.nd.save("net-0000.params", {"arg:fc_weight": mx.nd.ones((2, 75)), "arg:fc_bias": mx.nd.ones(2)})
    for command in ("summary", "explain", "check"):
        shown = run(command, "net").out
        assert "parameters: 152" in shown
        assert ", 75) (assumed)" in shown
        assert "does not fit the parameters" in run(command, "net", "--shape", "7").error


def test_a_name_of_ours_and_a_prefix(run):
    run("fit", "--network", "mlp", "--epochs", "1", "--prefix", "mlp", "--shape", "64")
    for command in ("summary", "explain"):
        assert "expected --network mlp or --prefix mlp" in run(command, "mlp").error
        assert "(as saved)" in run(command, "--prefix", "mlp").out
        assert "(assumed)" in run(command, "--network", "mlp").out
    assert f"parameters: {DIGITS - 9 * 65:,}" in run("summary", "--network", "mlp", "--classes", "1").out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["check"], "which network? Expected NET"),
        (["explain"], "which network? Expected NET"),
        (["predict"], "nothing is saved under the prefix 'model'"),
        (["predict", "--epoch", "3"], "nothing is saved under the prefix 'model'"),
        (["summary", "--prefix", "nowhere"], "there is no nowhere-symbol.json"),
        (["check", "lenet"], "there is no lenet-symbol.json"),
        (["check", "four", "--prefix", "four"], "NET four and --prefix four are given, expected one network"),
        (
            ["check", "four", "four-0001.params", "--params", "four-0002.params"],
            "PARAMS four-0001.params and --params",
        ),
        (
            ["check", "four", "four-0001.params", "--epoch", "2"],
            "--epoch 2 and the parameters four-0001.params",
        ),
        (["check", "four-symbol.json", "--epoch", "2"], "--epoch 2 goes with a prefix"),
        (
            ["check", "four", "--epoch", "7"],
            "--epoch is 7; saved under the prefix 'four' are the epochs: 1, 2",
        ),
        (
            ["check", "four", "--epoch", "last"],
            "--epoch is last; saved under the prefix 'four'",
        ),
        (["check", "four-0001.params"], "four-0001.params"),
        (["check", "four", "four-symbol.json"], "four-symbol.json"),
        (["predict", "four-symbol.json"], "four-symbol.json comes without parameters"),
        (["summary", "lenet", "four-0001.params"], "goes with a saved network"),
        (["summary", "four", "--classes", "3"], "--classes 3 goes with --network"),
        (["summary", "--shape", "64"], "a sample is (64,)"),
        (["summary", "four", "--shape", "x=1,4"], "--shape names x, expected some of data, "),
    ],
)
def test_what_names_no_network_is_refused(words, match, run, four):
    assert match in run(*words).error
