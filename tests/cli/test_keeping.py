"""Trainings that are broken off: what is saved, and how they go on."""

import json
import re
import shlex
import signal
import sys

import numpy as np
import pytest

import dpmodule as mx
from helpers.processes import until
from helpers.programs import Program, run_module

FIT = ("fit", "--network", "mlp", "--epochs", "3", "--save-every", "1", "--prefix", "my run/net")
SAVED = ["my run/net-interrupted.json", "my run/net-interrupted.params", "my run/net-interrupted.states"]


@pytest.fixture
def at(monkeypatch):
    """Return what makes training do something at the end of a batch."""
    show = mx.callback.TqdmBar.__call__

    def at(epoch, batch, action):
        def call(bar, param):
            show(bar, param)
            if (param.epoch, param.nbatch) == (epoch, batch):
                action(param.locals["module"])

        monkeypatch.setattr(mx.callback.TqdmBar, "__call__", call)

    return at


def interrupt(module):
    signal.raise_signal(signal.SIGINT)


def fail(module):
    raise mx.MXNetError("the disk has caught fire")


def poison(module):
    arg_params, aux_params = module.get_params()
    bias = mx.nd.full(arg_params["scores_bias"].shape, np.nan)
    module.set_params({**arg_params, "scores_bias": bias}, aux_params)


def command_in(text):
    program, *words = shlex.split(re.search(r"to go on from there: (.*)", text)[1])
    assert program == "dpmodule"
    return words


def arrays(path):
    return {k: v.asnumpy() for k, v in mx.nd.load(path).items()}


@pytest.mark.parametrize(
    ("action", "code", "last"), [(interrupt, 130, "dpmodule: interrupted"), (fail, 2, "caught fire")]
)
def test_the_last_whole_batch_is_saved_and_the_printed_command_goes_on(action, code, last, run, at, tmp_path):
    expected = {}

    def remember_and_act(module):
        expected.update({f"arg:{k}": v.asnumpy() for k, v in module.get_params()[0].items()})
        action(module)

    at(1, 4, remember_and_act)
    done = run(*FIT)
    assert done.code == code
    assert done.err.strip().endswith(last)
    epoch_files = {path: path.read_bytes() for path in tmp_path.glob("my run/*-0001.*")}
    assert len(epoch_files) == 2
    assert [
        str(path.relative_to(tmp_path)) for path in sorted(tmp_path.glob("my run/*-interrupted*"))
    ] == SAVED
    saved = arrays(SAVED[1])
    assert saved.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(saved[name], values)
    assert json.loads((tmp_path / SAVED[0]).read_text()) == {"epoch": 1, "batches": 5}

    started = []
    at(1, 0, lambda module: started.append(module.get_params()[0]["fc1_weight"].asnumpy()))
    words = command_in(done.err)
    assert run("predict", words[words.index("--prefix") + 1], "--epoch", "interrupted").code == 0
    again = run(*words)
    assert again.code == 0
    assert "Epoch 0" not in again.err
    assert 0 < abs(started[0] - expected["arg:fc1_weight"]).max() < 0.05  # one step away from what was saved
    assert {path: path.read_bytes() for path in epoch_files} == epoch_files
    assert sorted(path.name for path in tmp_path.glob("my run/*")) == sorted(
        [f"net-000{n}.{kind}" for n in (1, 2, 3) for kind in ("params", "states")] + ["net-symbol.json"]
    )


def test_an_interrupted_training_may_be_interrupted_again(run, at):
    at(0, 2, interrupt)
    words = command_in(run(*FIT).err)
    again = run(*words)
    assert again.code == 130
    assert command_in(again.err) == words


def test_before_the_first_batch_there_is_nothing_to_save(run, monkeypatch, tmp_path):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(mx.mod.Module, "forward_backward", stop)
    done = run(*FIT)
    assert done.code == 130
    assert "nothing to save" in done.err
    assert list(tmp_path.glob("my run/*")) == []


@pytest.mark.parametrize("network", ["mlp", "resnet"])
def test_what_is_saved_is_finite(network, run, at):
    expected = {}

    def remember_and_poison(module):
        expected.update({f"arg:{k}": v.asnumpy() for k, v in module.get_params()[0].items()})
        poison(module)

    at(0, 3, remember_and_poison)
    done = run("fit", "--network", network, "--epochs", "1")
    assert "not finite in batch 4 of epoch 0" in done.error
    saved = arrays("model-interrupted.params")
    assert all(np.isfinite(values).all() for values in saved.values())
    for name, values in expected.items():
        np.testing.assert_array_equal(saved[name], values)
    assert run(*command_in(done.err)).code == 2  # the same way into the same trap


def test_moving_means_that_met_nan_are_not_saved(run):
    x = np.random.RandomState(0).rand(64, 1, 4, 4).astype("f4")
    x[40:] = np.nan
    np.savez("d.npz", x=x, y=np.arange(64) % 2)
    words = (
        "--network",
        "resnet",
        "--data",
        "d.npz",
        "--batch-size",
        "1",
        "--validation",
        "0",
        "--epochs",
        "1",
    )
    assert "not finite" in run("fit", *words).error
    assert all(np.isfinite(values).all() for values in arrays("model-interrupted.params").values())


def test_large_networks_are_copied_now_and_then(run, at, tmp_path):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4096)  # 3 x 2^17 parameters with the next
    net = mx.sym.FullyConnected(net, num_hidden=10, name="scores")
    mx.sym.SoftmaxOutput(net, name="softmax").save("large-symbol.json")
    at(0, 4, poison)
    assert "not finite" in run("fit", "--symbol", "large-symbol.json", "--shape", "64", "--lr", "0.001").error
    assert json.loads((tmp_path / "model-interrupted.json").read_text()) == {"epoch": 0, "batches": 3}
    assert all(np.isfinite(values).all() for values in arrays("model-interrupted.params").values())


def test_an_update_that_is_broken_off_does_not_count(run, monkeypatch):
    before = []
    update = mx.mod.Module.update

    def update_and_stop(module):
        before.append(module.get_params()[0]["fc1_weight"].asnumpy())
        update(module)
        if len(before) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(mx.mod.Module, "update", update_and_stop)
    done = run(*FIT)
    assert done.code == 130
    assert "batches done: 4)" in done.err
    np.testing.assert_array_equal(arrays(SAVED[1])["arg:fc1_weight"], before[-1])


def test_a_damaged_position_is_told(run, at, tmp_path):
    at(1, 0, interrupt)
    words = command_in(run(*FIT).err)
    for text in ("", "[]", '{"epoch": -1}', '{"epoch": "x"}'):
        (tmp_path / SAVED[0]).write_text(text)
        assert "net-interrupted.json: tells no epoch" in run(*words).error


@pytest.mark.timeout(120)
def test_ctrl_c_in_a_process_of_its_own(tmp_path):
    words = ("fit", "--network", "mlp", "--epochs", "100000")
    with Program("module", "dpmodule", *words, cwd=tmp_path) as training:
        until(lambda: "Epoch 1" in training.output()[1], 100)
        training.send_signal(signal.SIGINT)
        assert training.wait() == 130
        told = training.output()[1]
    assert told.strip().endswith("dpmodule: interrupted")
    epoch = json.loads((tmp_path / "model-interrupted.json").read_text())["epoch"]
    python, *words = shlex.split(re.search(r"to go on from there: (.*)", told)[1])
    assert (python, words[:2]) == (sys.executable, ["-m", "dpmodule"])
    done = run_module("dpmodule", *words[2:], "--epochs", epoch + 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Epoch {epoch}:" in done.stderr
    assert f"model-{epoch + 1:04d}.params" in done.stdout
