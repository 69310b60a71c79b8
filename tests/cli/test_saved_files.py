"""What a command writes, what is in its way, and interrupted commands, which end in the bits of a whole run."""

import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.callback import Callback
from dpmodule.cli import saved_files
from helpers.command import run_command
from helpers.programs import TESTS, Program, run_program

MLP = ("fit", "--network", "mlp", "--epochs")
FIT = (*MLP, "1")


def names(pattern="*"):
    return sorted(map(str, Path().glob(pattern)))


def test_files_of_another_network_are_refused_with_the_command_that_removes_them(run, tmp_path):
    run(*FIT, "--prefix", "my net")
    others = ["my net-2024", "my net-2024.txt", "my net-other-0001.params"]
    for name in others:
        Path(name).write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    words = ("fit", "--network", "lenet", "--epochs", "3", "--prefix", "my net")
    error = run(*words).error
    assert "its fc1_weight has shape (128, 64)" in error
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    program, *command = shlex.split(re.search(r"remove the saved files: (dpmodule .*)", error)[1])
    assert (command, run(*command).code) == ([*words, "--overwrite"], 0)
    written = [f"my net-0003.{ending}" for ending in ("params", "run", "states")]
    assert names() == sorted([*written, *others, "my net-symbol.json"])
    assert run(*words).code == 0  # the same network again


def test_load_epoch_resumes_with_the_saved_network_only(run):
    Path("model-0003.params").write_bytes(b"")
    assert "the files do not have a readable network" in run(*FIT).error
    assert run(*FIT, "--overwrite").code == 0
    lenet = ("fit", "--network", "lenet", "--load-epoch", "1", "--epochs", "2")
    assert "--network lenet gives another network for these samples" in run(*lenet).error
    assert "not allowed with argument" in run(*FIT, "--load-epoch", "1", "--overwrite").error
    os.unlink("model-0001.states")
    done = run(*FIT, "--load-epoch", "1", "--epochs", "2")
    assert (done.code, "the optimizer starts with new states" in done.err) == (0, True)
    done = run(*FIT)  # later epochs of an earlier training
    assert (done.code, "saved epoch 2 under this prefix" in done.err) == (0, True)
    assert "left epoch" not in run(*FIT, "--overwrite").err


@pytest.mark.parametrize(
    "error",
    [MemoryError("1 TiB"), OSError(12, "full"), RuntimeError("can't allocate memory"), RuntimeError("odd")],
)
def test_short_memory_names_its_option_and_unexpected_errors_keep_their_traceback(error, run, monkeypatch):
    monkeypatch.setattr(mx.mod.Module, "bind", mock.Mock(side_effect=error))
    words = ("summary", "--batch-size=999999", "--classes", "10")
    if str(error) == "odd":
        with pytest.raises(RuntimeError, match="odd"):
            run(*words)
    else:
        assert "not enough memory, with --batch-size 999999; try smaller numbers: " in run(*words).error


def test_a_reader_that_goes_away_is_no_error():
    code = """
import os, sys
from dpmodule.cli.__main__ import main
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)
sys.exit(main(["info"]) or sys.stdout.flush())"""
    done = run_program(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_to_run_next_name_the_program_as_it_was_called(monkeypatch):
    words = saved_files.Command(["fit", "--lr", "1", "--overwrite", "--load-epoch=3", "--prefix", "a b"])
    line = words.changed({"--overwrite": 0, "--load-epoch": 1, "--lr": 1}, ["--load-epoch", "4"])
    assert line == "dpmodule fit --prefix 'a b' --load-epoch 4"
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    for called, program in [
        ("/bin/dpmodule", "dpmodule"),
        ("venv/bin/dpmodule", "venv/bin/dpmodule"),
        ("/site/dpmodule/__main__.py", f"{sys.executable} -m dpmodule"),
        ("/site/pytest/__main__.py", "dpmodule"),
    ]:
        monkeypatch.setattr(sys, "argv", [called])
        assert saved_files.Command(["info"]).changed() == f"{program} info"


# interrupted commands


def interrupted(folder, place, count, times, *words):
    """Run a command that is interrupted, and return the words of the command that it prints."""
    path = TESTS / "programs" / "interrupted_command.py"
    with Program("file", path, place, count, times, *words, cwd=folder) as program:
        code, error = program.wait(60), program.output()[1]
    assert code == 130, error
    assert error.endswith("dpmodule: interrupted\n"), error
    return shlex.split(re.search(r"to (resume|start again): (.*)", error)[2])[1:]


def assert_same(first, second):
    first, second = (mx.nd.load(str(path)) for path in (first, second))
    for name, value in first.items():
        np.testing.assert_array_equal(value.asnumpy(), second[name].asnumpy(), err_msg=name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the parameters' file of a run that was not interrupted."""
    prefix = tmp_path_factory.mktemp("whole") / "net"
    assert run_command(*MLP, "3", "--prefix", prefix).code == 0
    return f"{prefix}-0003.params"


@pytest.mark.parametrize(
    ("place", "count", "times"), [("batch", 30, 1), ("first batch", 9, 2), ("save", 1, 2)]
)
def test_an_interrupted_fit_resumes(place, count, times, run, tmp_path, whole):
    words = interrupted(tmp_path, place, count, times, *MLP, "3", "--prefix", "my run/net")
    assert ("--resume" in words) is (times == 1 or place == "save")
    assert "--load-epoch" not in words
    if place == "batch":
        words = interrupted(tmp_path, place, 5, 1, *words)
    assert run(*words).code == 0
    assert_same(whole, "my run/net-0003.params")


SMALL = ("-m", "seq2seq", "-hs", "8", "-esz", "8", "-bs", "8", "-opt", "adam", "--num-epochs", "2", "--quiet")
AGENT = ("train-agent", "-t", "helpers.small_tasks:Dialogues", *SMALL, "--batch-sort", "false", "-mf")


@pytest.mark.parametrize(("count", "more"), [(11, ("-dt", "train:ordered", "-ve", "0")), (9, ())])
def test_an_interrupted_agent_resumes(count, more, run, tmp_path):
    """Within an episode, and at the end of an epoch."""
    assert run(*AGENT, "whole", *more).code == 0
    words = interrupted(tmp_path, "parley", count, 1, *AGENT, "part", *more)
    assert words == [*AGENT, "part", *more, "--resume"]
    assert os.path.exists("part.trainstats")
    assert run(*words).code == 0
    assert_same("whole-0000.params", "part-0000.params")
    assert names("part*") == ["part-0000.params", "part-symbol.json", "part.dict", "part.opt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_run_that_a_signal_ends_resumes(number, run, monkeypatch, whole):
    resumed, seen = (*MLP, 3, "--resume", "--prefix", "part"), []

    def ends(callback, run):
        seen.append(run.nbatch)
        if len(seen) == 30:
            signal.raise_signal(number)

    monkeypatch.setattr(Callback, "on_batch_end", ends)
    try:
        code = run(*resumed).code
    except SystemExit as error:
        code = error.code
    assert (code, len(seen), os.path.exists("part-last.run")) == (128 + number, 31, True)
    assert run(*resumed).code == 0
    assert_same(whole, "part-0003.params")


def test_a_finished_run_stays_as_it_is_and_can_be_removed(run):
    resumed = ("--resume", "--prefix", "a")
    assert run(*MLP, 3, *resumed, "--save-every", 2, "--save-batches", 10).code == 0
    assert names("a-0*.params") == ["a-0002.params", "a-0003.params"]
    before = Path("a-0003.params").read_bytes()
    assert run(*MLP, 3, *resumed, "--save-every", 2).code == 0
    assert Path("a-0003.params").read_bytes() == before
    assert "the batch size was 64, is 32" in run(*MLP, 3, *resumed, "--batch-size", 32).error
    told = "epoch 3 is saved under the prefix 'a'; give --epochs at least that number"
    assert told in run(*MLP, 2, *resumed).error
    assert run("fit", "--network", "lenet", "--epochs", 1, "--prefix", "a", "--overwrite").code == 0
    assert names("a-*.run") == ["a-0001.run"]


# saved networks as arguments

DIGITS = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
FOUR = 4 * 128 + 128 + 128 * 64 + 64 + 64 * 2 + 2


def test_every_command_takes_a_prefix_or_files(run):
    np.savez("four.npz", x=np.random.RandomState(0).rand(40, 4), y=np.arange(40) % 2)
    for epochs in "12":
        assert run(*MLP, epochs, "--data", "four.npz", "--prefix", "four").code == 0
    symbol, params, predict = "four-symbol.json", "four-0002.params", ("predict", "--data", "four.npz")
    outputs = {run(*predict, "four", "--epoch", 2).out}
    words = "--prefix four", f"{symbol} {params}", f"--symbol {symbol} --params {params}", f"four {params}"
    for way in map(str.split, words):
        for command in (("summary",), ("check",), ("explain", "--no-source")):
            done = run(*command, *way)
            assert (done.code, f"{FOUR:,}" in done.out, " 4) (as saved)" in done.out) == (0, True, True), done
        assert run(*predict, *way, "--output", "c/d/out.csv").code == 0
        outputs.add(Path("c/d/out.csv").read_text())
    assert len(outputs) == 1
    assert run(*predict, "four", "--epoch", 1).out not in outputs


def test_a_graph_tells_its_shapes_or_they_are_asked_for(run):
    net = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=2, name="fc")
    mx.sym.SoftmaxOutput(net, name="softmax").save("net-symbol.json")
    for command in ("summary", "explain"):
        assert "set them: --shape data=..." in run(command, "net").error
        assert "parameters: 16" in run(command, "net", "--shape", "7").out
        assert "parameters: 16" in run(command, "net", "--shape", "data=5,7").out
    mx.nd.save("net-0000.params", {"arg:fc_weight": mx.nd.ones((2, 75)), "arg:fc_bias": mx.nd.ones(2)})
    for command in ("explain", "check"):
        assert ", 75) (assumed)" in run(command, "net").out
        assert "does not fit the parameters" in run(command, "net", "--shape", "7").error


def test_a_built_in_name_and_a_prefix(run):
    run(*FIT, "--prefix", "mlp", "--shape", "64")
    for command in ("summary", "explain"):
        assert "expected --network mlp or --prefix mlp" in run(command, "mlp").error
        assert "(as saved)" in run(command, "--prefix", "mlp").out
        assert "(assumed)" in run(command, "--network", "mlp").out
    assert f"parameters: {DIGITS - 9 * 65:,}" in run("summary", "--network", "mlp", "--classes", "1").out
