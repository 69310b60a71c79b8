"""The commands from end to end, in this process and as programs."""

import csv
import signal
import subprocess
import sys

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.cli.__main__ import main

QUICK = ["--network", "mlp", "--epochs", "2"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fit(*words):
    return main(["fit", *QUICK, *words])


def accuracy(text):
    line = next(line for line in text.splitlines() if line.startswith("final validation accuracy"))
    return float(line.rsplit(" ", 1)[1])


def rows(text):
    return list(csv.reader(text.splitlines()))


@pytest.mark.timeout(90)
def test_fit_reaches_97_percent_and_writes_a_checkpoint(tmp_path, capfd):
    assert main(["fit", "--target", "0.97"]) == 0
    shown = capfd.readouterr()
    assert accuracy(shown.out) >= 0.97
    assert "accuracy" in shown.err
    assert "samples/s" in shown.err
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "model-0020.params",
        "model-0020.states",
        "model-symbol.json",
    ]


@pytest.mark.parametrize("network", ["mlp", "lenet", "resnet"])
def test_every_network_learns_on_two_contexts(network, capfd):
    words = ["--network", network, "--epochs", "6", "--contexts", "cpu(0),cpu(1)", "--workload", "1,3"]
    assert main(["fit", *words, "--target", "0.9"]) == 0, capfd.readouterr()


def test_contexts_do_not_change_the_result(capfd):
    fit("--prefix", "one")
    fit("--prefix", "two", "--contexts", "cpu(0),cpu(1)", "--kvstore", "device")
    one, two = (mx.nd.load(f"{name}-0002.params") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array.asnumpy(), two[name].asnumpy(), atol=1e-3)


def test_same_seed_same_bits_other_seed_others():
    for prefix, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        fit("--prefix", prefix, "--seed", seed)
    a, b, c = (mx.nd.load(f"{name}-0002.params")["arg:fc1_weight"].asnumpy() for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_load_epoch_goes_on(tmp_path, capfd):
    fit("--save-every", "1", "--schedule", "constant")
    before = accuracy(capfd.readouterr().out)
    assert main(["fit", "--epochs", "6", "--load-epoch", "2", "--schedule", "constant"]) == 0
    shown = capfd.readouterr()
    assert accuracy(shown.out) > before
    assert "Epoch 2" in shown.err
    assert "Epoch 0" not in shown.err
    assert {"model-0001.params", "model-0002.states", "model-0006.params"} <= {
        p.name for p in tmp_path.iterdir()
    }


def test_symbol_file_and_csv(tmp_path, capfd):
    x = np.random.RandomState(0).normal(size=(300, 2))
    table = np.column_stack([x, x[:, 0] > x[:, 1]])
    np.savetxt("data.csv", table, delimiter=",", header="a,b,truth", comments="")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    mx.sym.SoftmaxOutput(net, name="softmax").save("net-symbol.json")
    words = ["--data", "data.csv", "--label-column", "truth"]
    assert main(["fit", "--symbol", "net-symbol.json", *words, "--target", "0.9"]) == 0, capfd.readouterr()
    assert main(["predict", *words, "--output", "out.csv"]) == 0
    table = rows((tmp_path / "out.csv").read_text())
    assert table[0] == ["sample", "class", "p0", "p1"]
    assert len(table) == 301


def test_predict_prints_the_validation_digits(capfd):
    fit()
    expected = accuracy(capfd.readouterr().out)
    assert main(["predict", "--batch-size", "100"]) == 0
    shown = capfd.readouterr()
    table = rows(shown.out)
    assert len(table) == 360  # with the header
    scores = np.array(table[1:], float)
    np.testing.assert_allclose(scores[:, 2:].sum(axis=1), 1, atol=1e-4)
    np.testing.assert_array_equal(scores[:, 1], scores[:, 2:].argmax(axis=1))
    assert f"accuracy: {expected:.4f} of 359 samples" in shown.err


def test_missed_target_exits_with_1(capfd):
    assert fit("--target", "1.0", "--lr", "0.0001") == 1
    assert "missed" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["fit", "--data", "nowhere.csv"], "nowhere.csv"),
        (["fit", "--symbol", "nowhere.json"], "nowhere.json"),
        (["fit", "--load-epoch", "3"], "model-symbol.json"),
        (["fit", "--load-epoch", "20"], "leaves nothing to do"),
        (["fit", "--optimizer", "sdg"], "did you mean sgd?"),
        (["fit", "--optimizer", "torchoptimizer"], "factory"),
        (["fit", "--kvstore", "remote"], "remote"),
        (["fit", "--contexts", "gpu(99)"], "gpu(99)"),
        (["fit", "--contexts", "cpu(0),cpu(1)", "--workload", "1,2,3"], "2"),
        (["fit", "--shape", "64"], "--shape"),
        (["fit", "--prefix", "nowhere/net", "--epochs", "1"], "nowhere"),
        (["predict"], "nothing is saved"),
        (["predict", "--epoch", "3"], "model-symbol.json"),
        (["summary", "--prefix", "nowhere"], "nowhere-symbol.json"),
        (["summary", "--shape", "64"], "--shape"),
    ],
)
def test_errors_are_one_line_and_exit_with_2(words, match, capfd):
    assert main(words) == 2
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("dpmodule: error: ")
    assert match in line


@pytest.mark.parametrize("words", [[], ["train"], ["fit", "--epochs", "0"], ["fit", "--contexts", "tpu"]])
def test_wrong_arguments_exit_with_2(words, capfd):
    assert main(words) == 2
    assert "usage: dpmodule" in capfd.readouterr().err


def test_interrupt_exits_with_130(monkeypatch, capfd):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(mx.mod.Module, "fit", interrupt)
    assert fit() == 130
    assert capfd.readouterr().err.strip().endswith("interrupted")


@pytest.mark.timeout(90)
def test_ctrl_c_ends_a_training_with_130(tmp_path):
    command = [sys.executable, "-m", "dpmodule", "fit", "--network", "mlp", "--epochs", "100000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as training:
        for line in training.stderr:  # the bar of an epoch ends its line when it is full
            if "Epoch 1" in line:
                break
        training.send_signal(signal.SIGINT)
        rest = training.stderr.read()
        assert training.wait() == 130
    assert rest.strip().endswith("dpmodule: interrupted")
    assert list(tmp_path.iterdir()) == []


def test_summary_counts_parameters(capfd):
    assert main(["summary", "--network", "mlp"]) == 0
    text = capfd.readouterr().out
    assert f"{64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10:,}" in text
    assert "fc1" in text
    assert "(64, 128)" in text


def test_summary_of_a_saved_network(capfd):
    fit()
    capfd.readouterr()
    assert main(["summary", "--prefix", "model"]) == 0
    assert "scores" in capfd.readouterr().out


def test_info_names_versions_and_devices(capfd):
    assert main(["info"]) == 0
    text = capfd.readouterr().out
    for name in ("dpmodule", "native", "Python", "torch", "NumPy", "CPU", "GPU"):
        assert f"\n{name}" in f"\n{text}"


@pytest.mark.timeout(90)
def test_runs_as_a_program_with_help():
    done = subprocess.run(
        [sys.executable, "-m", "dpmodule", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    for command in ("fit", "predict", "summary", "info"):
        assert command in done.stdout


@pytest.mark.timeout(90)
def test_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m dpmodule info | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "error" not in done.stderr.lower()
